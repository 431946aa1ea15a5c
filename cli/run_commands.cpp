// SPDX-License-Identifier: Apache-2.0
// Commands that make, plan and try runs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "options.h"

namespace {

// Options that train, plan and simulate share.
struct RunOptions {
  sluice::core::RunRequest request;

  void add_to(CLI::App& command, bool needs_config) {
    OptionsOf{command}("CONFIG", request.config_path,
                       needs_config ? "configuration file (TOML)"
                                    : "configuration file (TOML); without one every key has its default",
                       "FILE", "Arguments")
        ->required(needs_config);
    add_caps(command, request.settings, "48MiB", "1GiB");
    const auto option = [&](const char* name, const char* key, const char* meaning, const char* type) {
      add_setting(command, request.settings, name, key, meaning, type, "Configuration");
    };
    option("--model", "model.path", "folder of a Hugging Face model, its config.json, or a run's directory",
           "PATH");
    option("--run-dir", "run.dir", "where results go", "DIR");
    add_backend(command, request.settings);
    option("--devices", "run.devices", "devices that share a step: all, how many, or indices: 0,2", "LIST");
    add_set(command, request.settings);
  }

  void add_machine(CLI::App& command) {
    OptionsOf{command}("--machine", request.machine, machine_help(), "MACHINE", "Configuration");
    excludes_all(command.get_option("--machine"), command, {"--backend", "--device"});
  }
};

void add_train(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& train =
      add_command(app, "train", "train a model under memory caps",
                  "sluice train configs/quickstart.toml --device-mem 64MiB --host-mem 1GiB\n"
                  "sluice train configs/quickstart.toml --set train.learning_rate=1e-3\n"
                  "    Ctrl-C finishes the step and writes a checkpoint; the same command goes on\n"
                  "sluice train configs/quickstart.toml --new\n"
                  "sluice train configs/quickstart.toml --set train.steps=720 --allow steps");
  options->add_to(train, true);
  train
      .add_flag(
          "--new", options->request.anew,
          "begin a run of its own: where the run directory holds something, in the next one that is free, "
          "such as runs/notes-2")
      ->group("Going on");
  const OptionsOf option{train};
  option("--allow", options->request.allow,
         "let these differ from the run that goes on: " + joined(sluice::core::names().allowed),
         "WHAT[,WHAT]", "Going on");
  train.callback([=, &status] { status = report(sluice::core::train(options->request, watch_signals())); });
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
      add_command(app, "plan", "make, explain and save a plan without training",
                  "sluice plan configs/quickstart.toml --device-mem 48MiB --html plan.html\n"
                  "sluice plan --machine h200 --device-mem 16GiB --host-mem 110GiB --set model.preset=8\n"
                  "    Llama-3 8B on a machine that is not here\n"
                  "sluice plan configs/quickstart.toml --frontier\n"
                  "sluice plan --diff runs/a/plan.json runs/b/plan.json");
  options->run.add_to(plan, false);
  options->run.add_machine(plan);
  const OptionsOf option{plan};
  option("--json", options->files.json, "write the plan's explanation for programs to this file", "FILE",
         "Output");
  option("--html", options->files.html, "write one self-contained page to this file", "FILE", "Output");
  CLI::Option* diff = option("--diff", options->diff,
                             "say what changed between two saved plans (plan.json), and plan nothing",
                             "BEFORE AFTER", "Questions")
                          ->expected(2);
  CLI::Option* frontier = plan.add_flag("--frontier", request.frontier,
                                        "the smallest caps that work, and what each costs in speed")
                              ->excludes(diff)
                              ->group("Questions");
  CLI::Option* what_if = plan.add_flag("--what-if", request.what_if,
                                       "what other caps and steps would change; small models: always")
                             ->excludes(diff)
                             ->excludes(frontier)
                             ->group("Questions");
  plan.add_flag("--passes", request.passes,
                "check what every pass of the planner makes, and show what each decides, how often it ran "
                "and how long")
      ->group("Planner");
  option("--skip-passes", request.skip_passes,
         "leave passes out: " + joined(sluice::core::names().passes) + "; the plan stays valid",
         "NAME[,NAME]", "Planner");
  // They print one answer, and save nothing.
  const std::vector<std::string> of_plans{"--json", "--html", "--passes", "--skip-passes", "--run-dir"};
  excludes_all(frontier, plan, of_plans);
  excludes_all(frontier, plan, {"--device-mem"});
  excludes_all(diff, plan, of_plans);
  excludes_all(diff, plan,
               {"CONFIG", "--device-mem", "--host-mem", "--model", "--backend", "--device", "--devices",
                "--machine", "--set"});
  excludes_all(what_if, plan, {"--skip-passes"});
  plan.callback([=, &status] {
    const std::vector<std::string>& plans = options->diff;
    status = report(plans.empty() ? sluice::core::plan(options->run.request, watch_stops(), options->files)
                                  : sluice::core::diff_plans(plans[0], plans[1]));
  });
}

void add_simulate(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& simulate =
      add_command(app, "simulate", "run the plan on the virtual clock, also of a machine that is not here",
                  "sluice simulate configs/quickstart.toml --machine rtx4090\n"
                  "sluice simulate configs/quickstart.toml --machine h100 --devices 1..8\n"
                  "    on 1, 2, 4 and 8 devices: speed-up, and where their time goes\n"
                  "sluice simulate configs/quickstart.toml --machine rtx4090 --hosts 2 --network 10Gb/s");
  options->add_to(simulate, false);
  simulate.get_option("--devices")
      ->description("as for plan; or a range, 1..64: a table over 1, 2, 4, ... 64 devices (run.devices)");
  options->add_machine(simulate);
  const OptionsOf option{simulate};
  CLI::Option* hosts = option("--hosts", options->request.hosts,
                              "hosts like it that train together, each with rows of its own "
                              "(docs/hosts.md)",
                              "N", "Hosts")
                           ->check(number<int64_t>(kWhole))
                           ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  option("--network", options->request.network, "the rate between them, such as 2.5Gb/s", "RATE", "Hosts")
      ->capture_default_str()
      ->needs(hosts);
  simulate.callback(
      [=, &status] { status = report(sluice::core::simulate(options->request, watch_stops())); });
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
  const OptionsOf option{demo};
  option("--steps", request->steps, "steps to time after one to warm up", "N", "Measuring")
      ->check(number<int64_t>(kWhole));
  option("--tokens-per-step", request->tokens_per_step, "0: chosen", "N", "Measuring")->transform(tokens());
  demo.add_flag("--explain", request->explain, "print the formulas")->group("Measuring");
  demo.add_flag("--simulate", request->simulate_only, "plan and simulate only")->group("Measuring");
  option("--machine", request->machine, machine_help(), "MACHINE", "Configuration");
  option("--devices", request->devices, "devices that share a step (run.devices)", "LIST", "Configuration");
  excludes_all(demo.get_option("--steps"), demo, {"--simulate", "--machine"});
  add_set(demo, request->settings,
          {{"--tokens-per-step", "train.tokens_per_step"},
           {"--devices", "run.devices"},
           {"SEQ_LEN", "train.seq_len"},
           {"HOST_GIB", "memory.host"},
           {"DEVICE_GIB", "memory.device"},
           {"SIZE", "model.preset"}});
  demo.callback([=, &status] { status = report(sluice::core::demo(*request, watch_signals())); });
}

void add_sweep(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::SweepRequest>();
  CLI::App& sweep = add_command(app, "sweep", "plan or measure a grid of models, sequence lengths and caps",
                                "sluice sweep --device-mem 6GiB:24GiB:2GiB --host-mem 64GiB,128GiB "
                                "--seq-len 8k --model llama3-8b --machine rtx4090\n"
                                "    the same command goes on where it was stopped\n"
                                "sluice sweep --device-mem 16GiB,80GiB --seq-len 8k --model llama3-8b "
                                "--machine h100 --devices 2");
  const OptionsOf option{sweep};
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
      ->check(CLI::Range(1, 1000000))
      ->needs(measure);
  option("--out", request->out_dir, "where the table and the heatmaps go", "DIR", "Output");
  sweep
      .add_flag("--fresh", request->fresh,
                "plan every cell again; the table that is there is kept as sweep-1.csv")
      ->group("Output");
  option("--machine", request->machine, machine_help(), "MACHINE", "Configuration");
  option("--devices", request->devices, "devices that share a step (run.devices)", "LIST", "Configuration");
  add_set(sweep, request->settings,
          {{"--model", "model.preset"},
           {"--seq-len", "train.seq_len"},
           {"--device-mem", "memory.device"},
           {"--host-mem", "memory.host"},
           {"--tokens-per-step", "train.tokens_per_step"},
           {"--devices", "run.devices"}});
  sweep.callback([=, &status] { status = report(sluice::core::sweep(*request, watch_signals())); });
}

void add_compare(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::CompareRequest>();
  CLI::App& compare =
      add_command(app, "compare", "plan one model for many machines: speed, what binds, cost",
                  "sluice compare llama3-8b --host-mem 64GiB,128GiB --seq-len 8k\n"
                  "    every machine that sluice machines lists, beside either memory\n"
                  "sluice compare llama3-1b --machines rtx4090,h100,mine.toml --host-mem 64GiB \\\n"
                  "    --price rtx4090=0.4,h100=2.5 --tokens 3B --html cards.html\n"
                  "    what 3 billion tokens cost, and the days they take");
  const OptionsOf option{compare};
  option("MODEL", request->model, model_help(), "MODEL", "Arguments")->required();
  option("--machines", request->machines,
         "all, or names that sluice machines lists and machine files (.toml), with commas between; "
         "2xrtx3090: two "
         "in one host",
         "MACHINES", "Machines");
  option("--host-mem", request->host_mem, "host caps: 64GiB,128GiB or 64GiB:256GiB:64GiB; none unless given",
         "LIST", "Machines");
  option("--device-mem", request->device_mem, "device cap of all; each card's memory unless given", "SIZE",
         "Machines");
  option("--hosts", request->hosts,
         "how many hosts of each share a step by data: 1,2,4; 1 unless given (docs/hosts.md)", "LIST",
         "Machines");
  option("--network", request->network, "rate between hosts, such as 2.5Gb/s; 10Gb/s unless given", "RATE",
         "Machines")
      ->needs(compare.get_option("--hosts"));
  option("--seq-len", request->seq_len, "tokens per sequence; 2048 unless given", "N", "Step")
      ->transform(tokens());
  option("--tokens-per-step", request->tokens_per_step, "0: chosen", "N", "Step")->transform(tokens());
  option("--price", request->price,
         "USD an hour of every host, or of those with each card: rtx4090=0.4,h100=2.5", "USD", "Cost");
  option("--tokens", request->tokens, "to train on, for days and cost in all: 100M, 3B, 1.4T", "AMOUNT",
         "Cost");
  compare.add_flag("--json", request->json, "print numbers for programs")->group("Output");
  option("--html", request->html, "write one self-contained page to this file, with the picture", "FILE",
         "Output");
  option("--svg", request->svg, "write the picture to this file", "FILE", "Output");
  add_set(compare, request->settings,
          {{"MODEL", "model.preset"},
           {"--host-mem", "memory.host"},
           {"--device-mem", "memory.device"},
           {"--seq-len", "train.seq_len"},
           {"--tokens-per-step", "train.tokens_per_step"}});
  compare.callback([=, &status] { status = report(sluice::core::compare(*request, watch_stops())); });
}

void add_serve(CLI::App& app, int& status) {
  struct Options {
    sluice::core::ServeRequest request;
    bool verbs = false;
  };
  const auto options = std::make_shared<Options>();
  sluice::core::ServeRequest& request = options->request;
  CLI::App& serve =
      add_command(app, "serve", "train and sample for clients of others, over loopback",
                  "sluice serve --verbs --model models/SmolLM2-135M --device-mem 1GiB --host-mem 3GiB\n"
                  "    the verbs of Tinker's client; it says what it refuses (docs/verbs.md)");
  serve
      .add_flag("--verbs", options->verbs,
                "the verbs of Tinker's client: forward_backward, optim_step, sample, save")
      ->required()
      ->group("Serving");
  const OptionsOf option{serve};
  option("CONFIG", request.config_path, "configuration file (TOML): model, memory, and keys of a step",
         "FILE", "Arguments");
  option("--name", request.name, "what clients call the model; its path unless given", "NAME", "Serving");
  option("--port", request.port, "of 127.0.0.1; one that is free unless given", "N", "Serving")
      ->check(number<int64_t>(kWhole))
      ->check(CLI::Range(int64_t{0}, int64_t{65535}));
  option("--sample-rows", request.sample_rows, "texts that are sampled at once; 16 unless given", "N",
         "Serving")
      ->check(number<int64_t>(kWhole))
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  option("--allow", request.allow, "pass over what clients ask for, where it is not followed: train_unembed",
         "WHAT[,WHAT]", "Serving");
  add_caps(serve, request.settings, "24GiB", "110GiB");
  add_setting(serve, request.settings, "--model", "model.path", "folder of a Hugging Face model", "PATH",
              "Configuration");
  add_setting(serve, request.settings, "--run-dir", "run.dir",
              "where checkpoints go; runs/verbs unless given", "DIR", "Configuration");
  add_backend(serve, request.settings);
  add_set(serve, request.settings);
  serve.callback([=, &status] { status = report(sluice::core::serve(options->request)); });
}

}  // namespace

void add_run_commands(CLI::App& app, int& status) {
  add_train(app, status);
  add_plan(app, status);
  add_simulate(app, status);
  add_demo(app, status);
  add_sweep(app, status);
  add_compare(app, status);
  add_serve(app, status);
}
