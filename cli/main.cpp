// The command line: parse, call, print.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "interrupt.h"

namespace {

int report(const sluice::Outcome& outcome) {
  if (outcome.ok) return 0;
  std::fprintf(stderr, "sluice: %s\n", outcome.error.c_str());
  return 1;
}

// Options that train, plan and simulate share.
struct RunOptions {
  sluice::RunRequest request;
  std::string device_mem, host_mem, run_dir, backend, device;
  std::vector<std::string> set;

  void add_to(CLI::App& command, bool needs_config = true) {
    command.add_option("CONFIG", request.config_path, "configuration file (TOML)")->required(needs_config);
    command.add_option("--device-mem", device_mem, "device cap, such as 48MiB or none (memory.device)");
    command.add_option("--host-mem", host_mem, "host cap, such as 1GiB or none (memory.host)");
    command.add_option("--run-dir", run_dir, "where results go (run.dir)");
    command.add_option("--backend", backend, "auto, cpu or cuda (run.backend)");
    command.add_option("--device", device, "index of the GPU (run.device)");
    command.add_option("--set", set, "override a key: key=value; may be repeated")->allow_extra_args(false);
  }

  sluice::RunRequest& finish() {
    for (const auto& [key, value] : {std::pair<const char*, std::string&>{"memory.device", device_mem},
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

constexpr const char* kMachines = "simulate h200, h100, a100, rtx3090, rtx4090 or rtx5090";

// Each command: its options, which live as long as its callback, and the call. `status` becomes the
// program's.

void add_train(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* train = app.add_subcommand("train", "train a model under memory caps");
  options->add_to(*train);
  train->callback([=, &status] { status = report(sluice::train(options->finish(), watch_interrupts())); });
}

void add_plan(CLI::App& app, int& status) {
  struct Options {
    RunOptions run;
    sluice::PlanFiles files;
    std::vector<std::string> diff;
  };
  const auto options = std::make_shared<Options>();
  sluice::RunRequest& request = options->run.request;
  CLI::App* plan = app.add_subcommand("plan", "find, explain and save the plan without training");
  options->run.add_to(*plan, false);
  plan->add_option("--json", options->files.json, "write the plan's explanation for machines to this file");
  plan->add_option("--html", options->files.html, "write one self-contained page to this file");
  plan->add_option("--diff", options->diff,
                   "say what changed between two saved plans (plan.json), and plan nothing")
      ->expected(2)
      ->type_name("BEFORE AFTER");
  plan->add_option("--machine", request.machine, "plan for h200, h100, a100, rtx3090, rtx4090 or rtx5090");
  plan->add_flag("--frontier", request.frontier, "the smallest caps that work, and what each costs in speed");
  plan->add_flag("--what-if", request.what_if,
                 "what other caps and steps would change; small models: always");
  plan->add_flag("--passes", request.passes,
                 "check what every pass of the planner makes, and show what each decides, how often it ran "
                 "and how long");
  plan->add_option("--skip-passes", request.skip_passes,
                   "leave passes out: " + sluice::pass_names() + "; the plan stays valid")
      ->type_name("NAME[,NAME]");
  plan->callback([=, &status] {
    const std::vector<std::string>& diff = options->diff;
    status = report(diff.empty() ? sluice::plan(options->run.finish(), options->files)
                                 : sluice::diff_plans(diff[0], diff[1]));
  });
}

void add_simulate(CLI::App& app, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* simulate = app.add_subcommand("simulate", "run the plan on the virtual clock");
  options->add_to(*simulate);
  simulate->add_option("--machine", options->request.machine, kMachines);
  simulate->callback([=, &status] { status = report(sluice::simulate(options->finish())); });
}

void add_demo(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::DemoRequest>();
  CLI::App* demo = app.add_subcommand("demo", "train Llama-3 shapes on random tokens and report speed");
  demo->add_option("HOST_GIB", request->host_gib, "host cap in GiB; 0: none")->required();
  demo->add_option("DEVICE_GIB", request->device_gib, "device cap in GiB; 0: none")->required();
  demo->add_option("SEQ_LEN", request->seq_len, "tokens per sequence")->required();
  demo->add_option("SIZE", request->size, "tiny, 1, 8, 15 or 32 (billions of parameters)")->required();
  demo->add_option("--steps", request->steps, "steps to time after one to warm up");
  demo->add_option("--tokens-per-step", request->tokens_per_step, "0: chosen");
  demo->add_flag("--explain", request->explain, "print the formulas");
  demo->add_flag("--simulate", request->simulate_only, "plan and simulate only");
  demo->add_option("--machine", request->machine, kMachines);
  demo->add_option("--set", request->settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  demo->callback([=, &status] { status = report(sluice::demo(*request, watch_interrupts())); });
}

void add_sweep(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::SweepRequest>();
  CLI::App* sweep =
      app.add_subcommand("sweep", "plan or measure a grid of models, sequence lengths and caps");
  sweep->add_option("--device-mem", request->device_mem, "device caps: 8GiB,16GiB or 6GiB:80GiB:2GiB");
  sweep->add_option("--host-mem", request->host_mem, "host caps, the same way");
  sweep->add_option("--seq-len", request->seq_len, "tokens per sequence: 512,8192")->required();
  sweep->add_option("--model", request->model, "tiny, 1, 8, 15, 32, or paths of a config.json")->required();
  sweep->add_option("--machine", request->machine, kMachines);
  sweep->add_option("--tokens-per-step", request->tokens_per_step, "0: chosen");
  sweep->add_option("--steps", request->steps, "steps to time per measured cell")
      ->check(CLI::Range(1, 1000000));
  sweep->add_option("--out", request->out_dir, "where the table and the heatmaps go");
  sweep->add_flag("--fresh", request->fresh, "forget the table that is there");
  sweep->add_option("--set", request->settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  CLI::Option* measure = sweep->add_flag("--measure", request->measure, "run every cell on this machine");
  sweep->add_flag("--simulate")->description("plan and simulate every cell; the default")->excludes(measure);
  sweep->callback([=, &status] { status = report(sluice::sweep(*request, watch_interrupts())); });
}

void add_doctor(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::DoctorRequest>();
  CLI::App* doctor = app.add_subcommand("doctor", "show what this machine has and what is missing");
  doctor->add_flag("--calibrate", request->calibrate,
                   "time the links and every op of a step in its mix, and keep the times");
  doctor->add_option("CONFIG", request->config_path, "configuration file whose step to time");
  doctor->add_option("--set", request->settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  doctor->callback([=, &status] { status = report(sluice::doctor(*request)); });
}

void add_keys(CLI::App& app) {
  app.add_subcommand("keys", "list every configuration key")->callback([] {
    std::fputs(sluice::keys_help().c_str(), stdout);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Sluice trains transformers whose working set does not fit the accelerator."};
  app.set_version_flag("-v,--version", sluice::version_text());
  app.require_subcommand(1);
  int status = 0;
  add_train(app, status);
  add_plan(app, status);
  add_simulate(app, status);
  add_demo(app, status);
  add_sweep(app, status);
  add_doctor(app, status);
  add_keys(app);
  CLI11_PARSE(app, argc, argv);
  return status;
}
