// The command line: parse, call the API, print.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "interrupt.h"
#include "sluice/sluice.h"

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

CLI::App* add_sweep(CLI::App& app, sluice::SweepRequest& request) {
  CLI::App* sweep =
      app.add_subcommand("sweep", "plan or measure a grid of models, sequence lengths and caps");
  sweep->add_option("--device-mem", request.device_mem, "device caps: 8GiB,16GiB or 6GiB:80GiB:2GiB");
  sweep->add_option("--host-mem", request.host_mem, "host caps, the same way");
  sweep->add_option("--seq-len", request.seq_len, "tokens per sequence: 512,8192")->required();
  sweep->add_option("--model", request.model, "tiny, 1, 8, 15, 32, or paths of a config.json")->required();
  sweep->add_option("--machine", request.machine, "simulate h200, h100, a100, rtx3090, rtx4090 or rtx5090");
  sweep->add_option("--tokens-per-step", request.tokens_per_step, "0: chosen");
  sweep->add_option("--steps", request.steps, "steps to time per measured cell")
      ->check(CLI::Range(1, 1000000));
  sweep->add_option("--out", request.out_dir, "where the table and the heatmaps go");
  sweep->add_flag("--fresh", request.fresh, "forget the table that is there");
  sweep->add_option("--set", request.settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  CLI::Option* measure = sweep->add_flag("--measure", request.measure, "run every cell on this machine");
  sweep->add_flag("--simulate")->description("plan and simulate every cell; the default")->excludes(measure);
  return sweep;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Sluice trains transformers whose working set does not fit the accelerator."};
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  int status = 0;

  RunOptions train_options, plan_options, simulate_options;
  CLI::App* train = app.add_subcommand("train", "train a model under memory caps");
  train_options.add_to(*train);
  train->callback([&] { status = report(sluice::train(train_options.finish(), watch_interrupts())); });

  sluice::PlanFiles plan_files;
  std::vector<std::string> diff;
  CLI::App* plan = app.add_subcommand("plan", "find, explain and save the plan without training");
  plan_options.add_to(*plan, false);
  plan->add_option("--json", plan_files.json, "write the plan's explanation for machines to this file");
  plan->add_option("--html", plan_files.html, "write one self-contained page to this file");
  plan->add_option("--diff", diff, "say what changed between two saved plans (plan.json), and plan nothing")
      ->expected(2)
      ->type_name("BEFORE AFTER");
  plan->add_option("--machine", plan_options.request.machine,
                   "plan for h200, h100, a100, rtx3090, rtx4090 or rtx5090");
  plan->add_flag("--frontier", plan_options.request.frontier,
                 "the smallest caps that work, and what each costs in speed");
  plan->add_flag("--what-if", plan_options.request.what_if,
                 "what other caps and steps would change; small models: always");
  plan->add_flag("--passes", plan_options.request.passes,
                 "check what every pass of the planner makes, and show what each decides, how often it ran "
                 "and how long");
  plan->add_option(
          "--skip-passes", plan_options.request.skip_passes,
          "leave passes out: overlap, prices, saves, drain, early, refine, submission; the plan stays valid")
      ->type_name("NAME[,NAME]");
  plan->callback([&] {
    status = report(diff.empty() ? sluice::plan(plan_options.finish(), plan_files)
                                 : sluice::diff_plans(diff[0], diff[1]));
  });

  CLI::App* simulate = app.add_subcommand("simulate", "run the plan on the virtual clock");
  simulate_options.add_to(*simulate);
  simulate->add_option("--machine", simulate_options.request.machine,
                       "simulate h200, h100, a100, rtx3090, rtx4090 or rtx5090");
  simulate->callback([&] { status = report(sluice::simulate(simulate_options.finish())); });

  sluice::DemoRequest demo_request;
  CLI::App* demo = app.add_subcommand("demo", "train Llama-3 shapes on random tokens and report speed");
  demo->add_option("HOST_GIB", demo_request.host_gib, "host cap in GiB; 0: none")->required();
  demo->add_option("DEVICE_GIB", demo_request.device_gib, "device cap in GiB; 0: none")->required();
  demo->add_option("SEQ_LEN", demo_request.seq_len, "tokens per sequence")->required();
  demo->add_option("SIZE", demo_request.size, "tiny, 1, 8, 15 or 32 (billions of parameters)")->required();
  demo->add_option("--steps", demo_request.steps, "steps to time after one to warm up");
  demo->add_option("--tokens-per-step", demo_request.tokens_per_step, "0: chosen");
  demo->add_flag("--explain", demo_request.explain, "print the formulas");
  demo->add_flag("--simulate", demo_request.simulate_only, "plan and simulate only");
  demo->add_option("--machine", demo_request.machine,
                   "simulate h200, h100, a100, rtx3090, rtx4090 or rtx5090");
  demo->add_option("--set", demo_request.settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  demo->callback([&] { status = report(sluice::demo(demo_request, watch_interrupts())); });

  sluice::SweepRequest sweep_request;
  add_sweep(app, sweep_request)->callback([&] {
    status = report(sluice::sweep(sweep_request, watch_interrupts()));
  });

  sluice::DoctorRequest doctor_request;
  CLI::App* doctor = app.add_subcommand("doctor", "show what this machine has and what is missing");
  doctor->add_flag("--calibrate", doctor_request.calibrate,
                   "time the links and every op of a step in its mix, and keep the times");
  doctor->add_option("CONFIG", doctor_request.config_path, "configuration file whose step to time");
  doctor->add_option("--set", doctor_request.settings, "override a key: key=value; may be repeated")
      ->allow_extra_args(false);
  doctor->callback([&] { status = report(sluice::doctor(doctor_request)); });
  app.add_subcommand("keys", "list every configuration key")->callback([&] {
    std::fputs(sluice::keys_help().c_str(), stdout);
  });

  CLI11_PARSE(app, argc, argv);
  return status;
}
