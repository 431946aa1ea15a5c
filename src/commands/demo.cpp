// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "config/files/load_config.h"
#include "describe/describe.h"
#include "io/file.h"
#include "measure/calibrate.h"
#include "run/directory/run_directory.h"
#include "run/directory/save_plan.h"
#include "run/session/breakdown.h"
#include "run/training/trial.h"
#include "setup/speed.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

Speed print_speed(const Prepared& p, const std::string& what, double step_ns) {
  const Stage& s = p.stages.main;
  const Speed v = speed_of(s.model.program, s.plan, step_ns, peak_flops(p));
  say("{:<10} {:>10.1f} ms {:>10.0f} tok/s {:>9.2f} TFLOP/s   MFU {:>5.1f} %   HFU {:>5.1f} %\n", what,
      step_ns / 1e6, v.tokens_per_s, v.model_tflops, 100 * v.mfu, 100 * v.hfu);
  std::fflush(stdout);
  return v;
}

// The last of several: with what MFU is of, where that needs words.
void print_last_speed(const Prepared& p, const std::string& what, double step_ns) {
  const std::string words = peak_text(p, print_speed(p, what, step_ns));
  if (!words.empty()) say("{}\n", words);
}

nlohmann::ordered_json to_json(const Breakdown& b) {
  return {{"step", b.step_ns() / 1e6},
          {"compute", b.compute_ns / 1e6},
          {"recompute", b.recompute_ns / 1e6},
          {"stall_loads", b.stall_loads_ns / 1e6},
          {"stall_stores", b.stall_stores_ns / 1e6},
          {"stall_devices", b.stall_devices_ns / 1e6},
          {"stall_other", b.stall_other_ns / 1e6},
          {"tail", b.tail_ns / 1e6},
          {"loading", b.loading_ns / 1e6},
          {"storing", b.storing_ns / 1e6}};
}

// The content of demo.json. `timeline` is of one measured step; it may be empty.
nlohmann::ordered_json result_of(const Prepared& p, Session& session, std::span<const double> sorted_ns,
                                 const MemoryReport& memory, std::span<const Interval> timeline) {
  const Stage& s = p.stages.main;
  const double median = sorted_ns[sorted_ns.size() / 2];
  const Speed speed = speed_of(s.model.program, s.plan, median, peak_flops(p));
  const PlanTotals t = totals(s.model.program, s.plan);
  const StartUp& up = session.engine().start_up();
  nlohmann::ordered_json result = {
      {"machine", p.machine.description},
      {"tokens_per_step", p.shape.tokens()},
      {"seq_len", p.shape.seq_len},
      {"chunk_tokens", p.shape.chunk_tokens},
      {"shape", to_text(p.shape)},
      {"rounds", p.shape.rounds},
      {"steps", sorted_ns.size()},
      {"median_ms", median / 1e6},
      {"fastest_ms", sorted_ns.front() / 1e6},
      {"slowest_ms", sorted_ns.back() / 1e6},
      {"simulated_ms", s.plan.makespan_ns / 1e6},
      {"lower_bound_ms", s.plan.lower_bound_ns / 1e6},
      {"tokens_per_s", speed.tokens_per_s},
      {"model_tflops", speed.model_tflops},
      {"mfu", speed.mfu},
      {"hfu", speed.hfu},
      {"recompute_share", t.runs.ns > 0 ? t.recompute_ns / t.runs.ns : 0},
      {"loaded_bytes", t.loads.bytes},
      {"stored_bytes", t.stores.bytes},
      {"devices", s.plan.devices()},
      {"handed_over_bytes", t.hand_overs.bytes},
      {"device_arena_bytes", fullest_device(s.plan.arena_bytes())},
      {"device_ledger_bytes", fullest_device(session.engine().training().ledger())},
      {"host_arena_bytes", s.plan.arenas[kHost].bytes},
      {"host_ledger_bytes", session.engine().training().ledger()[kHost]},
      {"device_peak_bytes", fullest_device(memory.peak_bytes)},
      {"device_cap_bytes", p.config.caps[kDevice]},
      {"host_peak_bytes", memory.peak_bytes[kHost]},
      {"host_cap_bytes", p.config.caps[kHost]},
      {"policy", s.plan.policy}};
  result["start_up_s"] = {{"total", up.total_s()},   {"measure", up.measure_s},
                          {"plan", up.plan_s},       {"reserve", up.reserve_s},
                          {"prepare", up.prepare_s}, {"initialise", up.initialize_s},
                          {"pin", up.pin_s}};
  result["simulated_breakdown_ms"] = to_json(breakdown_of(s.plan, predicted_timeline(s.plan)));
  if (!timeline.empty()) result["measured_breakdown_ms"] = to_json(breakdown_of(s.plan, timeline));
  return result;
}

// `data` is opened here, if it is not yet.
Result<Ending> measure(const Prepared& p, std::optional<RunData> data, int64_t steps, Console& console,
                       Requests& asked) {
  const Stage& s = p.stages.main;
  SLUICE_TRY(save_plan(p, p.config));
  SLUICE_ASSIGN(const std::unique_ptr<Session> session,
                data ? Session::open(p, *std::move(data), console) : Session::open(p, console));
  console.stop();
  show_text(describe(session->engine().start_up()));
  std::fflush(stdout);
  const auto show = [&](const std::string& what, double ns) { print_speed(p, what, ns); };
  asked.stop_is_handled = true;
  SLUICE_ASSIGN(const MeasuredSteps measured,
                measure_steps(*session, steps, p.config.run.trace, asked.stop, show));
  const std::vector<double>& ns = measured.ns;
  const std::vector<Interval>& timeline = measured.timeline;
  if (ns.empty()) return Ending::Stopped;
  const double median = measured.median_ns();
  print_last_speed(p, "median", median);
  const MemoryReport memory = session->engine().memory();
  say("simulated  {:>10.1f} ms ({:+.1f} %)\npeak memory: device {} of {}, host {} of {}\n",
      s.plan.makespan_ns / 1e6, 100 * (s.plan.makespan_ns / median - 1),
      format_bytes(fullest_device(memory.peak_bytes)), format_bytes(p.config.caps[kDevice]),
      format_bytes(memory.peak_bytes[kHost]), format_bytes(p.config.caps[kHost]));
  const std::filesystem::path dir = p.config.run.dir;
  SLUICE_TRY(write_file(dir / "demo.json", result_of(p, *session, ns, memory, timeline).dump(1) + "\n"));
  const Ending ending = int64_t(ns.size()) < steps ? Ending::Stopped : Ending::Done;
  if (timeline.empty()) return ending;
  if (const std::string slow = session->engine().slow_links(timeline); !slow.empty()) console.warned(slow);
  // Noting kernels takes time of its own.
  if (!p.config.run.trace_kernels) {
    const BytesByTier arenas = p.stages.arena_bytes();
    const int64_t overhead = fullest_device(memory.peak_bytes) - fullest_device(arenas) -
                             p.machine.profile.table_bytes(arenas[kHost]);
    SLUICE_TRY(learn(s.model.program, s.plan, timeline, overhead, calibration_of(p),
                     cost_cache(p.config, p.machine), p.machine.profile));
  }
  say("\none step, by op:\n{}", compare_to_plan(s.model.program, s.plan, timeline));
  say("taking these times made the step {:+.1f} ms longer than the others\n",
      (measured.traced_ns - median) / 1e6);
  SLUICE_TRY(write_file(dir / "trace.json",
                        chrome_trace(s.model.program, s.plan, timeline, session->engine().activities())));
  return ending;
}

// The cost of packed rows depends on the data, which is opened first, into `data`, where steps can run.
Result<Prepared> prepare_demo(RunConfig config, const std::string& preset, std::optional<RunData>& data,
                              Console& console) {
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, preset));
  SLUICE_ASSIGN(StepSpec step, step_of(config, false));
  const PlanCache cache = plan_cache_of(config);
  PrepareOptions options{.cache = &cache, .observer = &console};
  if (step.cut.packed && machine.traits().runs_models) {
    SLUICE_ASSIGN(data, open_data(config, step.model.vocab, console));
    options.rows = sample_rows(*data);
  }
  return prepare_on(std::move(config), std::move(machine), std::move(step), options);
}

constexpr double kMostGib = 1 << 20;

int64_t bytes_of_gib(double gib) {
  return std::max<int64_t>(1, std::llround(gib * double(kGiB)));
}

}  // namespace

Outcome demo(const DemoRequest& r, Requests& asked) {
  for (const auto& [name, gib] : {std::pair{"HOST_GIB", r.host_gib}, {"DEVICE_GIB", r.device_gib}}) {
    if (!(gib >= 0 && gib <= kMostGib))
      return {Ending::Failed, fmt::format("{} = {}: allowed are 0, for no cap, and positive numbers up to {}",
                                          name, gib, kMostGib)};
  }
  RunConfig asked_for = demo_config(r.size, r.seq_len, r.tokens_per_step);
  if (r.device_gib > 0) asked_for.caps[kDevice] = bytes_of_gib(r.device_gib);
  if (r.host_gib > 0) asked_for.caps[kHost] = bytes_of_gib(r.host_gib);
  std::vector<std::string> settings{model_setting(r.size)};
  if (!r.devices.empty()) settings.push_back("run.devices=" + r.devices);
  settings.insert(settings.end(), r.settings.begin(), r.settings.end());
  auto config = load_config("", settings, std::move(asked_for));
  if (!config.ok()) return {Ending::Failed, config.message()};
  const auto directory = RunDirectory::take_free("run.dir", config->run.dir, RunDirectory::Content::Demo);
  if (!directory.ok()) return {Ending::Failed, directory.message()};
  if (r.explain) say("{}\n", explain_speed());
  Console console;
  std::optional<RunData> data;
  const auto prepared = prepare_demo(started(std::move(*config), {.directory = directory->path().string()}),
                                     r.machine, data, console);
  console.stop();
  if (!prepared.ok()) return {Ending::Failed, prepared.message()};
  show_text(describe(*prepared));
  std::fflush(stdout);
  const Stage& s = prepared->stages.main;
  const BackendTraits& traits = prepared->machine.traits();
  int64_t params = 0;
  for (const Weight& w : s.model.weights) params += w.elements();
  constexpr int64_t kMostOnCpu = 500'000'000;  // steps of more take minutes
  const bool too_large = !traits.fast && params > kMostOnCpu;
  if (r.simulate_only || too_large || !traits.runs_models) {
    if (too_large && !r.simulate_only) say("no GPU here: size {} is simulated, not run\n", r.size);
    print_last_speed(*prepared, "simulated", s.plan.makespan_ns);
    return {};
  }
  return outcome(measure(*prepared, std::move(data), r.steps, console, asked));
}

}  // namespace sluice::core
