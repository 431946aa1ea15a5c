// SPDX-License-Identifier: Apache-2.0
// What the command line calls: a function per command.
//
// Requests name configuration files, overrides and run directories; results are written to the run directory
// and reported to standard output as the work goes. A function returns an Outcome. One thread at a time calls
// them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::core {

// How a command ended; docs/exit-codes.md has the program's exit status for each.
enum class Ending : uint8_t {
  Done,
  NothingLeft,  // what was asked for had been done before
  Interrupted,  // somebody asked to stop, and the same command goes on from what was saved
  Stopped,      // somebody asked to stop, and there was nothing to save
  Unsaved,      // the run's state is none that could be gone on from: what was saved before it stays
  Failed,
};

struct Outcome {
  Ending ending = Ending::Done;
  std::string message;  // one paragraph; of a failure: the thing, its value and what is allowed

  bool ok() const { return ending != Ending::Failed && ending != Ending::Unsaved; }
};

// Requests to a command while it works. Written from signal handlers, so nothing but atomics.
struct Requests {
  std::atomic<bool> stop = false;    // finish what is in progress, keep it, and end
  std::atomic<bool> save = false;    // write a checkpoint and go on; whoever takes the request clears it
  std::atomic<bool> replan = false;  // plan again, as run.replan = auto does by itself; cleared as `save`
  // Set by the command when it looks at `stop` from now on. Before that there is nothing to save: whoever
  // wants it to stop ends the process.
  std::atomic<bool> stop_is_handled = false;
};

struct RunRequest {
  std::string config_path;            // empty: defaults
  std::vector<std::string> settings;  // "key=value", applied in order after the file
  std::string machine;  // one to plan for instead of this one, by name or as a file; empty: this one
  // simulate only: machines that share a step, one process each, and the rate of the network between them.
  int64_t hosts = 1;
  std::string network = "10Gb/s";
  // train only:
  bool anew = false;  // in the next free directory where run.dir holds something
  std::string
      allow;  // what may differ from the run that goes on: run/prepare/manifest.h, with commas between
  // plan only:
  bool frontier = false;    // print the smallest caps and what they cost instead of one plan
  bool what_if = false;     // print what-ifs also for large programs
  bool passes = false;      // check what every pass of the planner makes, and print what they did
  std::string skip_passes;  // names of passes to leave out, with commas between
};

// Trains, or goes on with the run that is in run.dir. Asked to stop, it finishes the step in progress, writes
// a checkpoint and ends.
Outcome train(const RunRequest& request, Requests& asked);

// Where `plan` writes its explanation beside the run directory; empty: nowhere.
struct PlanFiles {
  std::string json;  // for machines
  std::string html;  // one self-contained page
};

// Finds the plan, prints a page of text about it and saves it. Asked to stop, a frontier ends with what it
// has, which the same command finds again.
Outcome plan(const RunRequest& request, Requests& asked, const PlanFiles& files = {});

// Says in words what changed from one saved plan to another (the plan.json of a run directory, or
// PlanFiles::json).
Outcome diff_plans(const std::string& before_path, const std::string& after_path);

// Finds the plan and runs it on the virtual clock: prints its timeline in numbers, saves trace.json and
// timeline.svg. Where run.devices is a range, it plans for several numbers of devices and prints how the
// speed grows, and why not more: scaling.json. Asked to stop, it ends with those that it has, which the same
// command finds again.
Outcome simulate(const RunRequest& request, Requests& asked);

struct DemoRequest {
  double host_gib = 0, device_gib = 0;  // caps; 0: none
  int64_t seq_len = 0;
  std::string size;  // tiny, 1, 8, 15, 32
  int64_t steps = 3;
  int64_t tokens_per_step = 0;  // 0: chosen
  bool explain = false;         // print the formulas
  bool simulate_only = false;
  std::string machine;                // as in RunRequest
  std::string devices;                // run.devices; empty: as configured
  std::vector<std::string> settings;  // more key=value
};

// Trains Llama-3 shapes with random weights and tokens and reports tokens/s, model TFLOP/s, MFU and HFU.
// Where the model cannot run (no GPU), it is planned and simulated. Asked to stop, it finishes the step in
// progress and reports what it has.
Outcome demo(const DemoRequest& request, Requests& asked);

struct SweepRequest {
  // Lists "a,b,c" and ranges "first:last:step"; see what_if/grid.h.
  std::string device_mem = "none", host_mem = "none", seq_len;
  std::string model;            // presets, or paths of a config.json
  std::string machine;          // as in RunRequest
  std::string devices;          // run.devices of every cell; empty: as configured
  bool measure = false;         // run every cell on this machine instead of simulating it
  bool fresh = false;           // plan cells again that the table has, which is kept under another name
  int64_t steps = 3;            // timed per measured cell
  int64_t tokens_per_step = 0;  // 0: chosen
  std::string out_dir = "runs/sweep";
  std::vector<std::string> settings;  // more key=value
};

// Plans (or measures) every cell of a grid of models, sequence lengths and caps, of which the device's is
// that of each device: sweep.csv and heatmaps in out_dir. Cells that the table has are not run again. Asked
// to stop, it finishes the cells in progress and keeps them.
Outcome sweep(const SweepRequest& request, Requests& asked);

struct CompareRequest {
  std::string model;               // a preset, or the path of a config.json
  std::string machines = "all";    // names and machine files with commas between
  std::string host_mem = "none";   // sizes, as in SweepRequest
  std::string device_mem;          // one for all; empty: each card's own
  std::string hosts = "1";         // numbers of hosts that share a step, with commas between
  std::string network = "10Gb/s";  // between them
  int64_t seq_len = 2048;
  int64_t tokens_per_step = 0;        // 0: chosen
  std::string price;                  // USD an hour: "2.5", or "rtx4090=0.4,h100=2.5"; empty: unknown
  std::string tokens;                 // to train on: "3B"; empty: not asked
  std::string html, svg;              // write a page, a picture to these files; empty: do not
  bool json = false;                  // print JSON instead of text
  std::vector<std::string> settings;  // more key=value
};

// Plans one model for many machines and prints a table of speeds, costs, and what binds. A machine that
// cannot train it says what is missing. Asked to stop, it prints those that it has, which the same command
// finds again.
Outcome compare(const CompareRequest& request, Requests& asked);

struct EstimateRequest {
  std::string model;       // as parse_subject() of estimate/subject.h takes it
  std::string machine;     // as in RunRequest; empty: none
  std::string device_mem;  // size instead of the card's; empty: the card's
  std::string optimizer;   // a name of Names::recipes; empty: the first
  int64_t seq_len = 2048, batch = 1, accumulate = 1;
  int64_t devices = 1, tp = 1, pp = 1;
  std::string tokens;  // to evaluate or train on: "3B"; empty: not asked
  double price = 0;    // USD per device and hour
  double mfu = 1;
  double tokens_per_s = 0, step_s = 0;  // measured; 0: not
  std::string mesh;                     // "fsdp=16/2,tp=4/1,link=180e9"
  // machine.KEY=VALUE; with `plan` also keys of the run that is planned
  std::vector<std::string> settings;
  bool plan = false;     // also what plans under caps say; needs a machine
  std::string host_mem;  // sizes, as in SweepRequest, each beside the device; with `plan`
  std::string section;   // only these sections of the page, by name with commas between; empty: all
  std::string html;      // write a page to this file; empty: do not
  bool json = false;     // print JSON instead of text
};

// Prints what a model takes: parameters, memory, FLOPs, time and cost, each with its formula. Needs neither a
// device nor data.
Outcome estimate(const EstimateRequest& request);

struct BenchRequest {
  std::string what;                 // a name of Names::benches
  std::vector<std::string> models;  // as bench_model() of bench/cell.h takes them; none: a small one
  std::string out_dir = "runs/bench";
  std::string devices;  // run.devices, of links; empty: as configured
  // Options of whole steps, and of attention where it has them:
  std::string seq_len = "128", compute = "auto";  // with commas between
  int64_t batch = 0;                              // sequences at once; 0: 4, of attention 8
  std::string head_dim = "64";                    // of attention: columns, with commas between
  std::string bytes =
      "1MiB,4MiB,16MiB,64MiB";        // of allreduce and sendrecv, of each rank: with commas between
  int64_t steps = 5, warm_up = 1;     // timed, and before those
  bool fresh = false;                 // measure again what out_dir has
  std::vector<std::string> settings;  // more key=value
};

// Measures, prints a page of numbers and writes them into out_dir: WHAT.jsonl, .md, .html and .svg. Steps and
// attention are measured cell by cell and kept in cells.jsonl and attention_cells.jsonl. Asked to stop, it
// ends after the step in progress, and the same command goes on with the next cell.
Outcome bench(const BenchRequest& request, Requests& asked);

struct DoctorRequest {
  bool calibrate = false;    // also time the links and every op of a configuration's step
  std::string machine_file;  // write what was timed to this machine file; with `calibrate`. Empty: do not
  std::string config_path;   // as in RunRequest
  std::vector<std::string> settings;
};

// Prints what this machine has and what is missing, with the command that fixes it.
Outcome doctor(const DoctorRequest& request);

// Prints the machines that can be planned for by name; of one, or of a machine file, all that is known of it,
// as a machine file. `json`: as JSON, rates in FLOP/s and bytes per second.
Outcome machines(const std::string& name, bool json);

struct ModelsRequest {
  std::string family;  // only this model_type; empty: all
  bool json = false;   // for programs
};
// Prints the families of models that load, and the keys of config.json that each has for itself.
Outcome models(const ModelsRequest& request);

struct DataRequest {
  // A configuration, which ends in .toml; or files to learn, and in front of them, if text is not bytes, the
  // folder of a model.
  std::vector<std::string> paths;
  std::vector<std::string> settings;  // as in RunRequest
  int64_t rows = 2;                   // of the first ones to show
  std::string html;                   // write a page to this file; empty: do not
  std::string list;                   // print every place of this kind of finding; empty: do not
  bool show_template = false;         // print the chat template that is learnt with, and nothing else
  bool json = false;                  // for programs
};

// Prints what a run would learn, before it runs: counts, lengths, shares, what is left out, the first rows,
// and what usually is a mistake. Tokens are made, and kept in data.cache, if they are not there.
Outcome data(const DataRequest& request);

struct TokensRequest {
  // Text files of up to 1 GiB, "-" for the standard input; in front of them, if text is not bytes, the folder
  // of a model with its tokenizer.json.
  std::vector<std::string> paths;
  int64_t show = 50;  // tokens of each file
  bool json = false;  // all of them, for programs
};

// Prints the tokens that training would make of each file: pieces, ids and counts.
Outcome tokens(const TokensRequest& request);

struct GenerateRequest {
  std::string model;                 // a checkpoint's folder, or a preset: random weights, to measure with
  std::string base;                  // of an adapter: the folder of its base; empty: where it says
  std::vector<std::string> prompts;  // and those of `file`: a line each, or of JSON lines their "prompt",
                                     // and with `chat` their "messages"
  std::string file;
  std::optional<int64_t>
      tokens;  // at most, of each text; else as the folder says, or 256, or what the context leaves
  std::optional<double> temperature, top_p, min_p, repetition_penalty;  // else as the folder says
  std::optional<int64_t> top_k, seed;
  bool chat = false;                  // prompts are what a user says, in the folder's chat template
  std::string system;                 // with `chat`: a system message before; empty: none
  std::string answer;                 // with `chat`: what the answer begins with
  std::string tools, documents;       // with `chat`: files of JSON lists; empty: none
  std::vector<std::string> stop;      // strings that end a text and are not part of it
  std::vector<int64_t> stop_tokens;   // beside those of the folder
  bool ignore_stop_tokens = false;    // those of the folder and of its chat template
  std::vector<std::string> ignore;    // keys of generation_config.json, which change texts and are not done
  int64_t samples = 1;                // texts of each prompt
  std::optional<int64_t> batch;       // texts at once, at most; else as many as are fastest by prediction
  int64_t prompt_tokens = 64;         // of each prompt in one pass
  bool plan = false;                  // explain the plans and generate nothing
  std::string machine;                // as in RunRequest; with `plan`
  bool json = false;                  // print a line of JSON per text
  bool log_probs = false;             // with `json`: log p of each token, too
  bool raw = false;                   // print text as it is on a terminal, too, control characters included
  std::vector<std::string> settings;  // of run, memory and train.compute, "key=value"
};

// Generates text from prompts and prints it as it comes. Asked to stop, it ends after the pass in progress.
Outcome generate(const GenerateRequest& request, Requests& asked);

struct EvaluateRequest {
  std::string model;                  // as ExportRequest::from
  std::vector<std::string> files;     // as data.paths; none: what the run itself holds out
  std::string base;                   // as in GenerateRequest
  bool best = false;                  // of a run: the best model, not the newest
  int64_t seq_len = 0;                // tokens of a row; 0: what the model was made for, up to 2,048
  std::string each;                   // a file of lines of JSON, each for itself (evaluate_each.h), not files
  bool cut_prompts = false;           // with it, as EachRequest
  bool json = false;                  // print JSON instead of text
  std::vector<std::string> settings;  // "key=value", as in RunRequest
};

// Prints the loss of a model on text, prompts with completions or chats: every token that training would
// learn counts once. Of a run on its own held-out rows it is what the run itself says, to the bit. Asked to
// stop, it ends after the pass in progress.
Outcome evaluate(const EvaluateRequest& request, Requests& asked);

struct ExportRequest {
  std::string from;                // a checkpoint, the directory of a run, or a model's folder
  std::string to;                  // a folder that is not there yet
  std::string dtype = "input";     // f32, bf16, f16, or input: that of each tensor
  std::string shard_size = "5GB";  // of one file of weights
  bool best = false;               // of a run: the best model, not the newest
  bool merged = false;             // an adapter is added to its base
  std::string layout = "folder";   // of an adapter's experts: as the folder has them, or peft5
  std::string base;                // as in GenerateRequest
  bool drop_unread = false;        // leave out tensors that the model does not read
  bool end_token = false;          // the end of a turn is the eos_token of tokenizer_config.json
  std::string around;  // the folder of a model that wraps the text model; empty: `from`, if it does
  std::string
      without;  // tensors of that which are left out, by what is in front of the first dot; empty: none
};

// Writes a model as a folder that other programs load, and says what is in it. Asked to stop, it leaves
// nothing.
Outcome export_model(const ExportRequest& request, Requests& asked);

struct ServeRequest {
  std::string config_path;            // empty: defaults
  std::vector<std::string> settings;  // "key=value", as in RunRequest
  std::string name;                   // what clients call the model; empty: as model.path says
  std::string allow;                  // what clients ask for and is passed over, with commas between
  int64_t port = 0;                   // 0: one that is free
  int64_t sample_rows = 16;           // texts that are sampled at once
};

// Becomes the Python package's server of verbs (docs/verbs.md). Returns only where that cannot be started.
Outcome serve(const ServeRequest& request);

// Prints every configuration key with its default and what it means, by section: those that have `filter` in
// their name or meaning, in any case. Finding none is an error, which names a key that is spelt nearly so.
Outcome keys(const std::string& filter);

// How wide text on standard output may be; 0: as wide as it likes.
size_t text_columns();

// Version, commit, and the backends that this program has and lacks: a line each.
std::string version_text();

// Facts of this program for its manual page and completions.
struct Release {
  std::string version;
  std::string date;  // of its commit; empty: unknown
};
Release release();

// A number of tokens in digits: "8192" of "8k". Of what is none: empty.
std::string tokens_in_digits(const std::string& text);

// A configuration key; `value` is its default.
struct Key {
  std::string name, value, meaning;
  std::string allowed;  // values, in words
};
std::vector<Key> all_keys();

// Names that requests may use.
struct Names {
  std::vector<std::string> machines;
  std::vector<std::string> models;
  std::vector<std::string> backends;  // those that this program has, and auto
  std::vector<std::string> passes;    // of the planner, that RunRequest::skip_passes may name
  std::vector<std::string> allowed;   // differences that RunRequest::allow may name
  std::vector<std::string> benches;   // that BenchRequest may name
  std::vector<std::string> recipes;   // optimizers with number formats, that EstimateRequest may name
};
Names names();

}  // namespace sluice::core
