// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <utility>

#include "commands/commands.h"
#include "completions.h"
#include "help.h"
#include "interrupt.h"
#include "manual.h"

namespace {

// Exit statuses, beside 0; docs/exit-codes.md. What is wrong with the command line itself is misuse. That of
// an interrupted run is what sysexits.h calls a temporary failure: the same command goes on.
constexpr int kFailed = 1, kMisused = 2, kNothingLeft = 3, kInterrupted = 75, kStopped = 130;

int report(const sluice::core::Outcome& outcome) {
  if (!outcome.message.empty()) std::fprintf(stderr, "sluice: %s\n", outcome.message.c_str());
  switch (outcome.ending) {
    case sluice::core::Ending::Done:
      return 0;
    case sluice::core::Ending::NothingLeft:
      return kNothingLeft;
    case sluice::core::Ending::Interrupted:
      return kInterrupted;
    case sluice::core::Ending::Stopped:
      std::fflush(nullptr);
      end_by_signal();
      return kStopped;
    case sluice::core::Ending::Failed:
      break;
  }
  return kFailed;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string machine_help() {
  return "plan for a machine that is not here: " + joined(sluice::core::names().machines);
}

// A command and the lines of its examples.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& meaning,
                      const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, meaning);
  command->footer(examples);
  command->set_help_flag("-h,--help", "print this and end")->group("Options");
  return *command;
}

void add_set(CLI::App& command, std::vector<std::string>& settings) {
  command
      .add_option("--set", settings,
                  "override a key of the configuration; may be repeated; sluice keys lists all")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Configuration");
}

// Refuses what is no number before CLI11 does, which does not say what it wants.
template <class Number>
CLI::Validator number(const std::string& wanted) {
  return CLI::Validator(
      [=](const std::string& text) {
        Number value{};
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, value);
        return error == std::errc() && read == end ? "" : "'" + text + "' is not " + wanted;
      },
      "");
}
const char* const kWhole = "a whole number";

// Numbers of tokens take suffixes.
CLI::Validator tokens() {
  return CLI::Validator(
      [](std::string& text) {
        const std::string digits = sluice::core::tokens_in_digits(text);
        if (digits.empty())
          return "'" + text + "' is not a whole number, such as 8192 or 8k, which is 8 x 1024";
        text = digits;
        return std::string();
      },
      "");
}

// Options that train, plan and simulate share.
struct RunOptions {
  sluice::core::RunRequest request;
  std::string model, device_mem, host_mem, run_dir, backend, device;
  std::vector<std::string> set;

  void add_to(CLI::App& command, bool needs_config) {
    command
        .add_option("CONFIG", request.config_path,
                    needs_config ? "configuration file (TOML)"
                                 : "configuration file (TOML); without one every key has its default")
        ->required(needs_config)
        ->type_name("FILE")
        ->group("Arguments");
    const auto option = [&](const char* name, std::string& value, const char* meaning, const char* type,
                            const char* group) {
      command.add_option(name, value, meaning)->type_name(type)->group(group);
    };
    option("--device-mem", device_mem, "cap on device memory, such as 48MiB or none (memory.device)", "SIZE",
           "Caps");
    option("--host-mem", host_mem, "cap on host memory, such as 1GiB or none (memory.host)", "SIZE", "Caps");
    option("--model", model, "folder of a Hugging Face model (model.path)", "DIR", "Configuration");
    option("--run-dir", run_dir, "where results go (run.dir)", "DIR", "Configuration");
    option("--backend", backend, "auto, or one that this program has (run.backend)", "BACKEND",
           "Configuration");
    option("--device", device, "index of the GPU (run.device)", "N", "Configuration");
    add_set(command, set);
  }

  void add_machine(CLI::App& command) {
    command.add_option("--machine", request.machine, machine_help())
        ->type_name("MACHINE")
        ->group("Configuration");
  }

  sluice::core::RunRequest& finish() {
    for (const auto& [key, value] : {std::pair<const char*, std::string&>{"model.path", model},
                                     {"memory.device", device_mem},
                                     {"memory.host", host_mem},
                                     {"run.dir", run_dir},
                                     {"run.backend", backend},
                                     {"run.device", device}}) {
      if (!value.empty()) request.settings.push_back(std::string(key) + "=" + value);
    }
    request.settings.insert(request.settings.end(), set.begin(), set.end());
    return request;
  }
};

// Each command: its options, which live as long as its callback, and the call. `status` becomes the
// program's.

void add_train(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& train =
      add_command(app, "train", "train a model under memory caps",
                  "sluice train configs/quickstart.toml --device-mem 64MiB --host-mem 1GiB\n"
                  "sluice train configs/quickstart.toml --set train.learning_rate=1e-3\n"
                  "    Ctrl-C finishes the step and writes a checkpoint; the same command goes on\n"
                  "sluice train configs/quickstart.toml --new\n"
                  "sluice train configs/quickstart.toml --set train.steps=80 --allow steps");
  options->add_to(train, true);
  train
      .add_flag(
          "--new", options->request.anew,
          "begin a run of its own: where the run directory holds something, in the next one that is free, "
          "such as runs/notes-2")
      ->group("Going on");
  train
      .add_option("--allow", options->request.allow,
                  "let these differ from the run that goes on: steps, learning_rate, data, backend")
      ->type_name("WHAT[,WHAT]")
      ->group("Going on");
  train.callback([=, &status] { status = report(sluice::core::train(options->finish(), watch_signals())); });
}

void add_plan(CLI::App& app, int& status) {
  struct Options {
    RunOptions run;
    sluice::core::PlanFiles files;
    std::vector<std::string> diff;
  };
  const auto options = std::make_shared<Options>();
  sluice::core::RunRequest& request = options->run.request;
  CLI::App& plan =
      add_command(app, "plan", "find, explain and save the plan without training",
                  "sluice plan configs/quickstart.toml --device-mem 48MiB --html plan.html\n"
                  "sluice plan --machine h200 --device-mem 16GiB --host-mem 110GiB --set model.preset=8\n"
                  "    Llama-3 8B on a machine that is not here\n"
                  "sluice plan configs/quickstart.toml --frontier\n"
                  "sluice plan --diff runs/a/plan.json runs/b/plan.json");
  options->run.add_to(plan, false);
  options->run.add_machine(plan);
  plan.add_option("--json", options->files.json, "write the plan's explanation for programs to this file")
      ->type_name("FILE")
      ->group("Output");
  plan.add_option("--html", options->files.html, "write one self-contained page to this file")
      ->type_name("FILE")
      ->group("Output");
  plan.add_option("--diff", options->diff,
                  "say what changed between two saved plans (plan.json), and plan nothing")
      ->expected(2)
      ->type_name("BEFORE AFTER")
      ->group("Questions");
  plan.add_flag("--frontier", request.frontier, "the smallest caps that work, and what each costs in speed")
      ->group("Questions");
  plan.add_flag("--what-if", request.what_if, "what other caps and steps would change; small models: always")
      ->group("Questions");
  plan.add_flag("--passes", request.passes,
                "check what every pass of the planner makes, and show what each decides, how often it ran "
                "and how long")
      ->group("Planner");
  plan.add_option("--skip-passes", request.skip_passes,
                  "leave passes out: " + joined(sluice::core::names().passes) + "; the plan stays valid")
      ->type_name("NAME[,NAME]")
      ->group("Planner");
  plan.callback([=, &status] {
    const std::vector<std::string>& diff = options->diff;
    status = report(diff.empty() ? sluice::core::plan(options->run.finish(), options->files)
                                 : sluice::core::diff_plans(diff[0], diff[1]));
  });
}

void add_simulate(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& simulate =
      add_command(app, "simulate", "run the plan on the virtual clock, also of a machine that is not here",
                  "sluice simulate configs/quickstart.toml --machine rtx4090");
  options->add_to(simulate, false);
  options->add_machine(simulate);
  simulate.callback([=, &status] { status = report(sluice::core::simulate(options->finish())); });
}

std::string model_help() {
  return joined(sluice::core::names().models) + ", or the path of a config.json";
}

void add_demo(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DemoRequest>();
  CLI::App& demo = add_command(app, "demo", "train Llama-3 shapes on random tokens and report speed",
                               "sluice demo 4 0.25 512 tiny --explain\n"
                               "    4 GiB of host memory, 0.25 GiB of device memory, sequences of 512\n"
                               "sluice demo 110 16 8k llama3-8b --machine h200");
  const auto argument = [&](const char* name, auto& value, const std::string& meaning, const char* type) {
    return demo.add_option(name, value, meaning)->required()->type_name(type)->group("Arguments");
  };
  const CLI::Validator gib = number<double>("a number of GiB, such as 16 or 0.25");
  argument("HOST_GIB", request->host_gib, "host cap, a number of GiB; 0: none", "GIB")->check(gib);
  argument("DEVICE_GIB", request->device_gib, "device cap, a number of GiB; 0: none", "GIB")->check(gib);
  argument("SEQ_LEN", request->seq_len, "tokens per sequence, such as 8192 or 8k", "N")->transform(tokens());
  argument("SIZE", request->size, model_help(), "MODEL");
  demo.add_option("--steps", request->steps, "steps to time after one to warm up")
      ->type_name("N")
      ->check(number<int64_t>(kWhole))
      ->group("Measuring");
  demo.add_option("--tokens-per-step", request->tokens_per_step, "0: chosen")
      ->type_name("N")
      ->transform(tokens())
      ->group("Measuring");
  demo.add_flag("--explain", request->explain, "print the formulas")->group("Measuring");
  demo.add_flag("--simulate", request->simulate_only, "plan and simulate only")->group("Measuring");
  demo.add_option("--machine", request->machine, machine_help())
      ->type_name("MACHINE")
      ->group("Configuration");
  add_set(demo, request->settings);
  demo.callback([=, &status] { status = report(sluice::core::demo(*request, watch_signals())); });
}

void add_sweep(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::SweepRequest>();
  CLI::App& sweep = add_command(app, "sweep", "plan or measure a grid of models, sequence lengths and caps",
                                "sluice sweep --device-mem 6GiB:24GiB:2GiB --host-mem 64GiB,128GiB "
                                "--seq-len 8k --model llama3-8b --machine rtx4090\n"
                                "    the same command goes on where it was stopped");
  const auto option = [&](const char* name, auto& value, const std::string& meaning, const char* type,
                          const char* group) {
    return sweep.add_option(name, value, meaning)->type_name(type)->group(group);
  };
  option("--model", request->model, "with commas between: " + model_help(), "MODEL", "Grid")->required();
  option("--seq-len", request->seq_len, "tokens per sequence: 512,8k", "LIST", "Grid")->required();
  option("--device-mem", request->device_mem, "device caps: 8GiB,16GiB or 6GiB:80GiB:2GiB", "LIST", "Grid");
  option("--host-mem", request->host_mem, "host caps, the same way", "LIST", "Grid");
  option("--tokens-per-step", request->tokens_per_step, "0: chosen", "N", "Grid")->transform(tokens());
  CLI::Option* measure = sweep.add_flag("--measure", request->measure, "run every cell on this machine");
  measure->group("Cells");
  sweep.add_flag("--simulate")
      ->description("plan and simulate every cell; the default")
      ->excludes(measure)
      ->group("Cells");
  option("--steps", request->steps, "steps to time per measured cell", "N", "Cells")
      ->check(CLI::Range(1, 1000000));
  option("--out", request->out_dir, "where the table and the heatmaps go", "DIR", "Output");
  sweep
      .add_flag("--fresh", request->fresh,
                "plan every cell again; the table that is there is kept as sweep-1.csv")
      ->group("Output");
  option("--machine", request->machine, machine_help(), "MACHINE", "Configuration");
  add_set(sweep, request->settings);
  sweep.callback([=, &status] { status = report(sluice::core::sweep(*request, watch_signals())); });
}

void add_estimate(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::EstimateRequest>();
  CLI::App& estimate = add_command(
      app, "estimate", "say what a model takes: memory, FLOPs, time and cost, with formulas",
      "sluice estimate llama3-8b --machine a100 --seq-len 8k\n"
      "sluice estimate llama3-8b --machine h100 --devices 8 --tokens 15B --price 2.5 --mfu 0.4\n"
      "    hours and cost of 15 billion tokens on 8 cards\n"
      "sluice estimate layers=32,dim=4096,ffn=11008,heads=32,vocab=32000 --machine a100 --device-mem 80GB\n"
      "    a model of which only dimensions are known");
  const auto option = [&](const char* name, auto& value, const std::string& meaning, const char* type,
                          const char* group) {
    return estimate.add_option(name, value, meaning)->type_name(type)->group(group);
  };
  const CLI::Validator whole = number<int64_t>(kWhole), real = number<double>("a number");
  option("MODEL", request->model, model_help() + ", or dimensions (layers=...), or params=52B", "MODEL",
         "Arguments")
      ->required();
  option("--seq-len", request->seq_len, "tokens per sequence", "N", "Batch")->transform(tokens());
  option("--batch", request->batch, "sequences at once on each device", "N", "Batch")->check(whole);
  option("--accumulate", request->accumulate, "such batches per step", "N", "Batch")->check(whole);
  option("--devices", request->devices, "devices that share the work", "N", "Batch")->check(whole);
  option("--tp", request->tp, "devices that share each matrix", "N", "Batch")->check(whole);
  option("--pp", request->pp, "devices that share the layers", "N", "Batch")->check(whole);
  option("--optimizer", request->optimizer, "with number formats: " + joined(sluice::core::names().recipes),
         "OPTIMIZER", "Memory");
  option("--device-mem", request->device_mem, "instead of the card's memory, such as 80GB", "SIZE", "Memory");
  option("--tokens", request->tokens, "tokens to evaluate or train on: 100M, 3B, 1.4T", "AMOUNT", "Time");
  option("--mfu", request->mfu, "share of the peak at which hours are computed; 1 unless given", "X", "Time")
      ->check(real);
  option("--price", request->price, "USD per device and hour", "USD", "Time")->check(real);
  CLI::Option* speed =
      option("--tokens-per-s", request->tokens_per_s, "measured, of all devices: for MFU", "X", "Time")
          ->check(real);
  option("--step-s", request->step_s, "the same as seconds of a step", "X", "Time")
      ->check(real)
      ->excludes(speed);
  option("--mesh", request->mesh,
         "when FSDP x TP is bound by compute: fsdp=16/2,tp=4/1,link=180e9,peak=460e12 (devices/axes)", "MESH",
         "Machine");
  option("--machine", request->machine,
         "what depends on one is left out without: " + joined(sluice::core::names().machines), "MACHINE",
         "Machine");
  estimate.add_flag("--json", request->json, "print numbers and formulas for programs")->group("Output");
  option("--html", request->html, "write one self-contained page to this file, with the picture", "FILE",
         "Output");
  estimate.callback([=, &status] { status = report(sluice::core::estimate(*request)); });
}

void add_doctor(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DoctorRequest>();
  CLI::App& doctor = add_command(app, "doctor", "show what this machine has and what is missing",
                                 "sluice doctor\n"
                                 "sluice doctor --calibrate configs/quickstart.toml\n"
                                 "    also how long every op of its step takes here");
  doctor.add_option("CONFIG", request->config_path, "configuration file whose step to time")
      ->type_name("FILE")
      ->group("Arguments");
  doctor
      .add_flag("--calibrate", request->calibrate,
                "time the links and every op of a step in its mix, and keep the times")
      ->group("Measuring");
  add_set(doctor, request->settings);
  doctor.callback([=, &status] { status = report(sluice::core::doctor(*request)); });
}

void add_data(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DataRequest>();
  CLI::App& command =
      add_command(app, "data", "show what a run would learn, before it runs",
                  "sluice data chat.toml\n"
                  "sluice data chat.toml --rows 5 --html data.html\n"
                  "sluice data models/SmolLM2-135M-Instruct chats.jsonl --set train.seq_len=2k\n"
                  "    files by a model's tokenizer and chat template, without a configuration");
  command
      .add_option("CONFIG|FILE", request->paths,
                  "a configuration (.toml); or files to learn, and in front of them the folder of a model, "
                  "without which text is bytes")
      ->required()
      ->type_name("FILE")
      ->group("Arguments");
  command.add_option("--rows", request->rows, "how many of the first rows to show")
      ->type_name("N")
      ->check(number<int64_t>(kWhole))
      ->group("Output");
  command.add_option("--html", request->html, "write a page to this file")
      ->type_name("FILE")
      ->group("Output");
  add_set(command, request->settings);
  command.callback([=, &status] { status = report(sluice::core::data(*request)); });
}

void add_tokens(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::TokensRequest>();
  CLI::App& command = add_command(app, "tokens", "show the tokens that a model's tokenizer makes of text",
                                  "sluice tokens models/SmolLM2-135M notes.txt\n"
                                  "    the folder has a tokenizer.json\n"
                                  "sluice tokens models/SmolLM2-135M --json - < notes.txt\n"
                                  "sluice tokens notes.txt\n"
                                  "    as bytes");
  command
      .add_option(
          "FILE", request->paths,
          "text files, or - for the standard input; in front of them the folder of a model, without which "
          "text is bytes")
      ->required()
      ->type_name("FILE")
      ->group("Arguments");
  command.add_option("--show", request->show, "how many tokens of each file to show; 0: only counts")
      ->type_name("N")
      ->check(number<int64_t>(kWhole))
      ->group("Output");
  command.add_flag("--json", request->json, "print all of them as JSON")->group("Output");
  command.callback([=, &status] { status = report(sluice::core::tokens(*request)); });
}

void add_generate(CLI::App& app, int& status) {
  struct Options {
    sluice::core::GenerateRequest request;
    std::string device_mem, host_mem, backend, device;
    std::vector<std::string> set;
  };
  const auto options = std::make_shared<Options>();
  sluice::core::GenerateRequest& r = options->request;
  CLI::App& command =
      add_command(app, "generate", "generate text from prompts under memory caps",
                  "sluice generate models/SmolLM2-135M --prompt 'Once upon a time'\n"
                  "sluice generate models/SmolLM2-135M-Instruct --chat --prompt 'Why is the sky blue?'\n"
                  "    the prompt is what a user says, and the text is the answer\n"
                  "sluice generate models/Llama-3-8B --file prompts.txt --device-mem 9GiB --json\n"
                  "    a prompt per line; the weights stream, and 8 texts share each pass over them\n"
                  "sluice generate llama3-8b --plan --machine rtx4090 --device-mem 9GiB --host-mem 32GiB\n"
                  "    what stays on the device, what streams, and how fast that is");
  const auto option = [&](const char* name, auto& value, const std::string& meaning, const char* type,
                          const char* group) {
    return command.add_option(name, value, meaning)->type_name(type)->group(group);
  };
  const CLI::Validator whole = number<int64_t>(kWhole), real = number<double>("a number");
  option("MODEL", r.model, "folder of a model; or a preset with random weights, to measure", "DIR",
         "Arguments")
      ->required();
  option("--prompt", r.prompts, "text to go on from; may be repeated", "TEXT", "Prompts")
      ->allow_extra_args(false);
  option("--file", r.file,
         "a prompt per line; of a .jsonl file the lines' \"prompt\"; - is the standard input", "FILE",
         "Prompts");
  CLI::Option* chat = command.add_flag(
      "--chat", r.chat, "prompts are what a user says: the model's chat template makes turns of them");
  chat->group("Prompts");
  option("--system", r.system, "a system message before each", "TEXT", "Prompts")->needs(chat);
  option("--tokens", r.tokens, "of each text at most; 256, or what the model's context leaves", "N", "Text")
      ->transform(tokens());
  option("--temperature", r.temperature, "0: the most likely token; default: what the folder says", "X",
         "Text")
      ->check(real);
  option("--top-k", r.top_k, "draw from the so many most likely tokens; 0: from all", "N", "Text")
      ->check(whole);
  option("--top-p", r.top_p, "draw from the most likely tokens of this probability together", "X", "Text")
      ->check(real);
  option("--repetition-penalty", r.repetition_penalty, "above 1: tokens that were there become less likely",
         "X", "Text")
      ->check(real);
  option("--seed", r.seed, "of what is drawn; 1 unless given", "N", "Text")->check(whole);
  option("--stop", r.stop, "end a text before this string; may be repeated", "TEXT", "Text")
      ->allow_extra_args(false);
  option("--stop-token", r.stop_tokens, "end a text at this token, too; may be repeated", "N", "Text")
      ->allow_extra_args(false)
      ->check(whole);
  command.add_flag("--ignore-stop-tokens", r.ignore_stop_tokens, "go on at the folder's end tokens")
      ->group("Text");
  option("--device-mem", options->device_mem, "cap on device memory, such as 9GiB or none (memory.device)",
         "SIZE", "Caps");
  option("--host-mem", options->host_mem, "cap on host memory, such as 32GiB or none (memory.host)", "SIZE",
         "Caps");
  option("--batch", r.batch, "texts that share a pass, at most", "N", "Passes")->check(CLI::Range(1, 1024));
  option("--prompt-tokens", r.prompt_tokens, "of each prompt in one pass", "N", "Passes")
      ->check(CLI::Range(1, 65536));
  CLI::Option* plan = command.add_flag("--plan", r.plan, "explain the plans and generate nothing");
  plan->group("Output");
  command.add_flag("--json", r.json, "print a line of JSON per text")->group("Output");
  option("--machine", r.machine, machine_help(), "MACHINE", "Configuration")->needs(plan);
  option("--backend", options->backend, "auto, or one that this program has (run.backend)", "BACKEND",
         "Configuration");
  option("--device", options->device, "index of the GPU (run.device)", "N", "Configuration");
  add_set(command, options->set);
  command.callback([=, &status] {
    sluice::core::GenerateRequest& request = options->request;
    for (const auto& [key, value] :
         {std::pair<const char*, std::string&>{"memory.device", options->device_mem},
          {"memory.host", options->host_mem},
          {"run.backend", options->backend},
          {"run.device", options->device}}) {
      if (!value.empty()) request.settings.push_back(std::string(key) + "=" + value);
    }
    request.settings.insert(request.settings.end(), options->set.begin(), options->set.end());
    status = report(sluice::core::generate(request, watch_signals()));
  });
}

void add_export(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::ExportRequest>();
  CLI::App& command =
      add_command(app, "export", "write a model as a folder that transformers and llama.cpp take",
                  "sluice export runs/notes out --dtype bf16\n"
                  "    the newest checkpoint of a run\n"
                  "sluice export runs/notes/checkpoints/step-200 out --dtype f32\n"
                  "    its master weights, where it has any\n"
                  "sluice export models/SmolLM2-135M out --shard-size 100MB");
  const auto argument = [&](const char* name, std::string& value, const char* meaning) {
    command.add_option(name, value, meaning)->required()->type_name("DIR")->group("Arguments");
  };
  argument("FROM", request->from, "a checkpoint, the directory of a run, or a model's folder");
  argument("OUT", request->to, "a folder that is not there yet");
  command
      .add_option("--dtype", request->dtype,
                  "number format of the weights: f32, bf16, f16, or input: each as it is; the default")
      ->type_name("DTYPE")
      ->group("Output");
  command
      .add_option("--shard-size", request->shard_size,
                  "the most that one file of weights holds; 5GB unless given")
      ->type_name("SIZE")
      ->group("Output");
  command.callback([=, &status] { status = report(sluice::core::export_model(*request, watch_signals())); });
}

void add_keys(CLI::App& app, int& status) {
  const auto filter = std::make_shared<std::string>();
  CLI::App& keys =
      add_command(app, "keys", "list configuration keys with default, allowed values and meaning",
                  "sluice keys\n"
                  "sluice keys memory\n"
                  "    those with 'memory' in their name or meaning\n"
                  "sluice train configs/quickstart.toml --set memory.device=64MiB");
  keys.add_option("FILTER", *filter, "part of a name or meaning")->type_name("KEY")->group("Arguments");
  keys.callback([=, &status] { status = report(sluice::core::keys(*filter)); });
}

void add_help(CLI::App& app, int& status) {
  const auto name = std::make_shared<std::string>();
  CLI::App& help = add_command(app, "help", "say more of a command", "sluice help plan");
  help.add_option("COMMAND", *name, "which")->type_name("COMMAND")->group("Arguments");
  help.callback([=, &app, &status] {
    const std::string text = name->empty() ? list_of_commands(app) : help_of(app, *name);
    std::fputs(text.c_str(), stdout);
    if (!text.empty()) return;
    std::fprintf(stderr, "%s\n", unknown_command(app, *name).c_str());
    status = kMisused;
  });
}

// For the build: files that say what the options above say. It is no command for people.
void add_installed(CLI::App& app) {
  const auto what = std::make_shared<std::string>();
  CLI::App* installed = app.add_subcommand("installed", "print a file to install");
  installed->group("");
  installed->add_option("WHAT", *what, "man, bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  installed->callback([=, &app] {
    const std::string text = *what == "man" ? manual(app) : completions(app, *what);
    std::fputs(text.c_str(), stdout);
  });
}

OptionHelp help_of_option(const CLI::Option& o) {
  OptionHelp help;
  help.is_argument = o.get_positional();
  help.required = o.get_required();
  help.group = o.get_group();
  help.meaning = o.get_description();
  if (help.is_argument) {
    help.name = o.get_name(true);
  } else {
    help.name = "--" + o.get_lnames().front();
    if (!o.get_snames().empty()) help.brief = "-" + o.get_snames().front();
  }
  if (o.get_items_expected_max() > 0) {
    const std::string type = o.get_type_name();
    help.value = type.substr(0, type.find(':'));  // bounds follow
  }
  return help;
}

}  // namespace

std::unique_ptr<CLI::App> make_command_line(int& status) {
  auto app = std::make_unique<CLI::App>(
      "Sluice trains transformers whose working set does not fit the accelerator.", "sluice");
  app->set_help_flag("-h,--help", "print this and end")->group("Options");
  app->set_version_flag("-v,--version", sluice::core::version_text(),
                        "print version, commit and backends, and end")
      ->group("Options");
  app->require_subcommand(1);
  add_train(*app, status);
  add_plan(*app, status);
  add_simulate(*app, status);
  add_demo(*app, status);
  add_sweep(*app, status);
  add_estimate(*app, status);
  add_doctor(*app, status);
  add_data(*app, status);
  add_tokens(*app, status);
  add_generate(*app, status);
  add_export(*app, status);
  add_keys(*app, status);
  add_help(*app, status);
  add_installed(*app);
  return app;
}

std::vector<OptionHelp> options_of(const CLI::App& app) {
  std::vector<OptionHelp> arguments, options;
  for (const CLI::Option* o : app.get_options()) {
    OptionHelp help = help_of_option(*o);
    (help.is_argument ? arguments : options).push_back(std::move(help));
  }
  // --help comes last, as what all commands have.
  if (!options.empty()) std::rotate(options.begin(), options.begin() + 1, options.end());
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

std::vector<CommandHelp> commands_of(const CLI::App& app) {
  std::vector<CommandHelp> commands;
  for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) {
    if (command->get_group().empty()) continue;
    CommandHelp help{command->get_name(), command->get_description(), options_of(*command), {}};
    std::istringstream lines(command->get_footer());
    for (std::string line; std::getline(lines, line);) help.examples.push_back(line);
    commands.push_back(std::move(help));
  }
  return commands;
}
