// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "base/bytes.h"
#include "base/parallel.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "commands/watched.h"
#include "config/devices.h"
#include "config/files/load_config.h"
#include "describe/describe.h"
#include "draw/axis.h"
#include "io/directory.h"
#include "io/file.h"
#include "run/directory/run_directory.h"
#include "run/directory/save_plan.h"
#include "run/inputs/paths.h"
#include "run/prepare/checks.h"
#include "run/processes/processes.h"
#include "setup/learning_rate.h"
#include "setup/settle.h"
#include "setup/speed.h"
#include "what_if/frontier.h"
#include "what_if/grid.h"
#include "what_if/scaling.h"
#include "what_if/what_if.h"

namespace sluice::core {
namespace {

constexpr const char* kStopped =
    "stopped: that is what was planned; the same command goes on with the rest\n";

// Whatever of the schedule cannot take effect. Epochs are counted in data, which no plan reads.
void add_schedule_notices(Prepared& p) {
  const auto& train = p.config.train;
  if (train.epochs > 0 && p.config.given.contains("train.steps"))
    add_notices({fmt::format("train.epochs = {} counts, of data that a plan does not read; train.steps = {} "
                             "does not",
                             train.epochs, train.steps)},
                p.notices);
  if (train.epochs > 0) return;
  add_notices(schedule_notices(p.config, p.model), p.notices);
  add_notices(idle_notices(p.config), p.notices);
}

// Runs `search(std::stop_token)`, which a signal ends with the plan that there is by then.
template <class Search>
Result<Prepared> prepared_until_asked(Requests& asked, Console& console, Search&& search) {
  const StopWhenAsked hurry(asked.stop);
  asked.stop_is_handled = true;
  Result<Prepared> prepared = search(hurry.token());
  asked.stop_is_handled = false;
  console.stop();
  if (prepared.ok()) add_schedule_notices(*prepared);
  return prepared;
}

// Where results go can be written to.
Status check_outputs(const RunConfig& config, const PlanFiles& files) {
  SLUICE_TRY(check_directory("run.dir", config.run.dir));
  for (const auto& [option, path] : {std::pair{"--json", files.json}, {"--html", files.html}}) {
    if (!path.empty()) SLUICE_TRY(check_output(option, path));
  }
  return {};
}

// Saves the plan to its run directory, or where that holds more than a plan to the next one: which it was.
Result<std::filesystem::path> save_beside_runs(const Prepared& p, std::string_view json) {
  SLUICE_ASSIGN(const RunDirectory directory, RunDirectory::take_free("run.dir", p.config.run.dir));
  const RunConfig there = started(p.config, {.directory = directory.path().string()});
  SLUICE_TRY(save_plan(p, there, json, search_threads()));
  return directory.path();
}

// Prints the page of text, saves the plan, and writes what was asked for beside it.
Result<Ending> explain_plan(Prepared& prepared, const PlanFiles& files, bool with_what_ifs, Requests& asked) {
  const Stage& s = prepared.stages.main;
  const auto study = [&](const StudyWatch& watch) { return what_ifs(prepared, watch); };
  const std::vector<WhatIf> changes =
      with_what_ifs ? watched("planning what-ifs", prepared.config, asked, study) : std::vector<WhatIf>{};
  const auto pricing = [&](const StudyWatch& watch) { return price_of_exact(prepared, watch); };
  if (prepared.config.run.exact) {
    std::string price = watched("planning without run.exact", prepared.config, asked, pricing);
    if (!price.empty()) prepared.notices.push_back(std::move(price));
  }
  const PlanReport report = report_of(prepared, changes);
  show_text(fmt::format("{}\n{}\n", describe_run(prepared), to_page_of_text(report.summary)));
  const std::string json = to_json(report, s.model.program, s.plan);
  SLUICE_ASSIGN(const std::filesystem::path dir, save_beside_runs(prepared, json));
  if (!files.json.empty()) SLUICE_TRY(write_file(files.json, json));
  if (!files.html.empty()) SLUICE_TRY(write_file(files.html, to_html(json)));
  for (const std::string& path : {(dir / "plan.txt").string(), files.json, files.html}) {
    if (!path.empty()) say("saved: {}\n", path);
  }
  if (!asked.stop) return Ending::Done;
  say("{}", kStopped);
  return Ending::Interrupted;
}

Result<Ending> print_frontier(const RunConfig& config, const std::string& preset, Requests& asked) {
  SLUICE_ASSIGN(const Machine machine, resolve_machine(config, preset));
  const auto study = [&](const StudyWatch& watch) { return find_frontier(config, machine, watch); };
  const auto frontier = watched("planning without caps", config, asked, study);
  if (!frontier.ok() && frontier.error().kind == ErrorKind::Cancelled) return Ending::Stopped;
  if (!frontier.ok()) return frontier.error();
  show_text(fmt::format("machine  {}\n{}", machine.description, describe(*frontier)));
  if (!asked.stop) return Ending::Done;
  say("{}", kStopped);
  return Ending::Interrupted;
}

}  // namespace

Outcome plan(const RunRequest& request, Requests& asked, const PlanFiles& files) {
  auto config = load_config(request.config_path, request.settings);
  if (!config.ok()) return {Ending::Failed, config.message()};
  if (request.frontier) return outcome(print_frontier(*config, request.machine, asked));
  if (const Status status = check_outputs(*config, files); !status.ok())
    return {Ending::Failed, status.message()};
  PassRunner passes;
  if (const Status known = passes.skip(request.skip_passes); !known.ok())
    return {Ending::Failed, known.message()};
  if (request.passes) passes.check_all();
  Console console;
  // Else the plan is kept, and found again by the run that it is for.
  const bool shows_passes = request.passes || !request.skip_passes.empty();
  auto prepared = prepared_until_asked(asked, console, [&](std::stop_token hurry) {
    return prepare(std::move(*config), request.machine, true, shows_passes ? &passes : nullptr, console,
                   hurry);
  });
  if (!prepared.ok()) return {Ending::Failed, prepared.message()};
  // Plans of --what-if use every pass: beside a plan without some they would say nothing.
  const bool with_what_ifs =
      request.skip_passes.empty() && (request.what_if || what_ifs_are_cheap(*prepared));
  const Outcome explained = outcome(explain_plan(*prepared, files, with_what_ifs, asked));
  if (explained.ok() && request.passes) show_text("\n" + passes.table());
  return explained;
}

Outcome diff_plans(const std::string& before_path, const std::string& after_path) {
  const auto read = [](const std::string& path) -> Result<PlanSummary> {
    SLUICE_ASSIGN(const std::string text, read_file(path));
    auto summary = parse_summary(text);
    if (!summary.ok()) return error_at(path, summary.error());
    return summary;
  };
  const auto before = read(before_path);
  if (!before.ok()) return {Ending::Failed, before.message()};
  const auto after = read(after_path);
  if (!after.ok()) return {Ending::Failed, after.message()};
  show_text(describe_difference(*before, *after));
  return {};
}

namespace {

// The step on several numbers of devices, as a table.
Result<Ending> simulate_scaling(const RunConfig& config, std::span<const int> counts,
                                const std::string& machine, Requests& asked) {
  if (machine.empty()) {
    return error("run.devices = {}: a range is planned for a machine that is named: --machine",
                 to_text(config.run.devices));
  }
  SLUICE_ASSIGN(const Card card, card_for(config, machine));
  const auto study = [&](StudyWatch watch) {
    if (!watch.cache.empty()) watch.cache = watch.cache.replace_filename("plans");
    return find_scaling(config, card, counts, watch);
  };
  const std::vector<ScalingPoint> points = watched("planning for numbers of devices", config, asked, study);
  if (points.empty()) return Ending::Stopped;
  const std::string cap =
      config.caps[kDevice] == kUnlimited ? "all of its memory" : cap_text(config.caps[kDevice]) + " of each";
  Page page = scaling_page(points, fmt::format("{}: sequences of {}, {}", card.name,
                                               grouped(double(config.train.seq_len), 0), cap));
  const bool whole = points.size() == counts.size();
  if (!whole) page.legend.push_back(stopped_words(points.size(), counts.size()));
  const std::filesystem::path path = std::filesystem::path(config.run.dir) / "scaling.json";
  SLUICE_TRY(make_directories(path.parent_path()));
  SLUICE_TRY(write_file(path, to_json(page)));
  show_text(to_text(page));
  say("\nsaved: {}\n", path.string());
  return whole ? Ending::Done : Ending::Interrupted;
}

// As many of a machine as share the step.
Result<Machine> machine_of_hosts(const RunConfig& config, const RunRequest& request) {
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, request.machine));
  if (request.hosts == 1) return machine;
  const auto rate = parse_rate(request.network);
  if (!rate.ok()) return error_at("--network", rate.error());
  plan_to_share(machine, int(request.hosts), network_of_rate(machine, *rate));
  machine.description =
      fmt::format("{} x {}, {} between them", request.hosts, machine.description, request.network);
  return machine;
}

}  // namespace

Outcome simulate(const RunRequest& request, Requests& asked) {
  auto config = load_config(request.config_path, request.settings);
  if (!config.ok()) return {Ending::Failed, config.message()};
  if (const Status status = check_outputs(*config, {}); !status.ok())
    return {Ending::Failed, status.message()};
  if (const auto& counts = config->run.devices.counts; !counts.empty() && request.hosts > 1)
    return {Ending::Failed, "--hosts: a range of devices is of one host"};
  if (const auto& counts = config->run.devices.counts; !counts.empty())
    return outcome(simulate_scaling(*config, counts, request.machine, asked));
  Console console;
  auto machine = machine_of_hosts(*config, request);
  if (!machine.ok()) return {Ending::Failed, machine.message()};
  const PlanCache cache = plan_cache_of(*config);
  auto prepared = prepared_until_asked(asked, console, [&](std::stop_token hurry) {
    return prepare_on(std::move(*config), std::move(*machine), true, {nullptr, &cache, &console, {}, hurry});
  });
  if (!prepared.ok()) return {Ending::Failed, prepared.message()};
  const Stage& s = prepared->stages.main;
  const Speed v = speed_of(s.model.program, s.plan, s.plan.makespan_ns, peak_flops(*prepared));
  show_text(describe(*prepared));
  say("simulated step {:.3f} ms: {:.0f} tok/s, {:.2f} model TFLOP/s, MFU {:.1f} %, HFU {:.1f} %\n",
      s.plan.makespan_ns / 1e6, v.tokens_per_s, v.model_tflops, 100 * v.mfu, 100 * v.hfu);
  if (const std::string words = peak_text(*prepared, v); !words.empty()) say("{}\n", words);
  if (prepared->shape.processes > 1) say("TFLOP/s and MFU are of each host; tok/s of all\n");
  const auto dir = save_beside_runs(*prepared, {});
  if (!dir.ok()) return {Ending::Failed, dir.message()};
  say("saved: {} and {}\n", (*dir / "predicted.json").string(), (*dir / "timeline.svg").string());
  if (!asked.stop) return {};
  say("{}", kStopped);
  return {Ending::Interrupted, {}};
}

}  // namespace sluice::core
