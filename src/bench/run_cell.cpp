// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/order.h"
#include "bench/cell.h"
#include "bench/results.h"
#include "host/host_memory.h"
#include "run/inputs/resolve.h"
#include "run/session/session.h"
#include "search/planner.h"
#include "setup/speed.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

constexpr size_t kTopOps = 10, kSamples = 240;

Error no_room(const std::string& what, int64_t bytes, int64_t there) {
  return {fmt::format("{} take {}, {} are left", what, format_bytes(bytes), format_bytes(there)),
          ErrorKind::DoesNotFit};
}

// Persistent state must fit into main memory: known before anything is measured or searched for, which takes
// minutes where the model is far too large.
Status check_state(const BenchCell& cell, const Machine& machine) {
  SLUICE_ASSIGN(const Numerics numerics, resolve_numerics(cell.config, machine));
  const OptimizerConfig optimizer = resolve_optimizer(cell.config, machine);
  const StepShape shape{.seq_len = cell.seq_len, .chunk_tokens = cell.seq_len, .head_tokens = cell.seq_len};
  const BuiltProgram model = build_training(cell.spec, shape, numerics, optimizer);
  const int64_t bytes = persistent_bytes(model.program);
  if (bytes > available_bytes()) return no_room("weights, gradients and state", bytes, available_bytes());
  return {};
}

class CellRun {
 public:
  CellRun(const BenchCell& cell, const Machine& machine, const BenchOptions& options,
          const std::atomic<bool>& interrupted, const std::function<void(const std::string&)>& say)
      : cell_(cell), machine_(machine), options_(options), interrupted_(interrupted), say_(say) {
    out_.model = cell.model, out_.compute = cell.compute;
    out_.inputs = inputs_of(cell, machine, options);
    out_.seq_len = cell.seq_len, out_.batch = cell.batch;
    const Stamp stamp = stamp_on(machine.description);
    out_.machine = stamp.machine, out_.sluice = stamp.sluice;
  }

  Result<CellResult> run() {
    const Status status = measure();
    out_.status = "ok";
    if (status.ok()) return out_;
    if (status.error().kind == ErrorKind::Cancelled) return status.error();
    out_.status = status.error().kind == ErrorKind::DoesNotFit ? "does not fit" : "error";
    out_.message = status.message();
    return out_;
  }

 private:
  Status measure();
  Status time_steps(Session& session);
  void add_step(std::span<const Interval> timeline, double step_ns);
  void add_ops(std::span<const Interval> timeline, std::span<const DeviceActivity> activities);
  void sum_up(std::span<const Interval> timeline);
  void sample_memory(std::span<const Interval> timeline);
  Status forward_only();
  // Whether both arenas lie in the host's memory: each may have all of it, not both.
  bool main_memory() const { return machine_.traits().shares_cores; }

  const BenchCell& cell_;
  const Machine& machine_;
  const BenchOptions& options_;
  const std::atomic<bool>& interrupted_;
  const std::function<void(const std::string&)>& say_;
  CellResult out_;
  std::optional<Prepared> p_;
  std::array<std::vector<double>, kPhases> phases_;
  std::vector<double> others_, steps_;
  std::map<std::string, OpTime> by_name_;
  bool kernels_ = false;  // by_name_ has a device's kernels, not ops
};

Status CellRun::measure() {
  if (main_memory()) SLUICE_TRY(check_state(cell_, machine_));
  say_("planning");
  SLUICE_ASSIGN(RunConfig config,
                typed_config({fmt::format("run.trace_kernels={}", machine_.traits().fast)}, cell_.config));
  const PlanCache cache = plan_cache_of(config);
  SLUICE_ASSIGN(p_,
                prepare_on(std::move(config), machine_, StepSpec{.model = cell_.spec}, {.cache = &cache}));
  const Stage& s = p_->stages.main;
  out_.shape = to_text(p_->shape);
  for (const Weight& w : s.model.weights) out_.params += w.elements();
  out_.predicted_s = s.plan.makespan_ns / 1e9;
  out_.model_flops = s.model.program.facts.model_flops;
  out_.peak_flops = peak_flops(*p_);
  const BytesByTier arenas = p_->stages.arena_bytes();
  const BytesByTier held = p_->stages.process_bytes(p_->machine.profile);
  out_.predicted_device_bytes = held[kDevice];
  out_.predicted_host_bytes = held[kHost];
  if (main_memory() && arenas[kDevice] + arenas[kHost] > available_bytes()) {
    return no_room("arenas", arenas[kDevice] + arenas[kHost], available_bytes());
  }
  SLUICE_TRY(forward_only());
  if (interrupted_) return error(ErrorKind::Cancelled, "interrupted");
  say_("starting");
  SLUICE_ASSIGN(const std::unique_ptr<Session> session, Session::open(*p_));
  return time_steps(*session);
}

// A plan of the forward pass and its loss alone: inference keeps nothing for a backward pass.
Status CellRun::forward_only() {
  const BuiltProgram model = build_evaluation(cell_.spec, evaluation_shape(p_->shape), p_->numerics);
  PlanRequest request;
  request.caps = p_->machine.caps_here(p_->config.caps);
  request.quick = true;
  SLUICE_ASSIGN(const Plan plan, make_plan(model.program, p_->machine.profile, request));
  out_.forward_only_bytes = fullest_device(plan.arena_bytes());
  return {};
}

Status CellRun::time_steps(Session& session) {
  // Where timing every command makes a step longer, whole steps are timed by others.
  const bool apart = machine_.traits().fast;
  std::vector<Interval> timeline;
  for (int64_t i = 0; i < options_.warm_up + options_.steps; ++i) {
    if (interrupted_) return error(ErrorKind::Cancelled, "interrupted");
    const bool counts = i >= options_.warm_up;
    say_(counts ? fmt::format("step {} of {}", i - options_.warm_up + 1, options_.steps)
                : fmt::format("step {} of {} to warm up", i + 1, options_.warm_up));
    double step_ns = 0;
    if (apart) {
      SLUICE_ASSIGN(const StepResult whole, session.step());
      step_ns = whole.ns;
      session.engine().note_activities();
    }
    SLUICE_ASSIGN(const StepResult timed, session.step(&timeline));
    const std::vector<DeviceActivity> activities = session.engine().activities();
    if (!counts) continue;
    add_step(timeline, apart ? step_ns : timed.ns);
    add_ops(timeline, activities);
  }
  const MemoryReport memory = session.engine().memory();
  out_.device_bytes = memory.peak_bytes[kDevice];
  out_.host_bytes = memory.peak_bytes[kHost];
  sum_up(timeline);
  return {};
}

void CellRun::add_step(std::span<const Interval> timeline, double step_ns) {
  const Stage& s = p_->stages.main;
  std::array<double, kPhases> phases{};
  for (size_t id = 0; id < s.plan.actions.size(); ++id) {
    const Action& a = s.plan.actions[id];
    if (a.kind != ActionKind::Run) continue;
    const Phase phase = a.recompute ? Phase::Backward : s.model.program.task(a.task).phase;
    phases[size_t(phase)] += (timeline[id].end_ns - timeline[id].start_ns) / 1e9;
  }
  double rest = step_ns / 1e9;
  for (size_t p = 0; p < kPhases; ++p) {
    phases_[p].push_back(phases[p]);
    rest -= phases[p];
  }
  others_.push_back(rest);
  steps_.push_back(step_ns / 1e9);
}

void CellRun::add_ops(std::span<const Interval> timeline, std::span<const DeviceActivity> activities) {
  const Stage& s = p_->stages.main;
  const auto add = [](OpTime& to, double seconds, bool forward) {
    ++to.count;
    to.s += seconds;
    to.forward_s += forward ? seconds : 0;
  };
  const auto is_forward = [&](const Action& a) {
    return s.model.program.task(a.task).phase == Phase::Forward && !a.recompute;
  };
  for (size_t id = 0; id < s.plan.actions.size(); ++id) {
    const Action& a = s.plan.actions[id];
    const double seconds = (timeline[id].end_ns - timeline[id].start_ns) / 1e9;
    if (a.kind != ActionKind::Run) {
      out_.copies_s += seconds;
      continue;
    }
    const Task& task = s.model.program.task(a.task);
    add(out_.classes[size_t(class_of(task))], seconds, is_forward(a));
    if (activities.empty()) add(by_name_[std::string(name_of(task.op))], seconds, is_forward(a));
  }
  for (const DeviceActivity& a : activities) {
    kernels_ = true;
    const Action* action = a.command ? &s.plan.actions[*a.command] : nullptr;
    const bool forward = action != nullptr && action->kind == ActionKind::Run && is_forward(*action);
    add(by_name_[a.name], (a.time.end_ns - a.time.start_ns) / 1e9, forward);
  }
}

void CellRun::sum_up(std::span<const Interval> timeline) {
  const Stage& s = p_->stages.main;
  out_.steps = int64_t(steps_.size());
  for (size_t p = 0; p < kPhases; ++p) out_.phases[p] = measured_of(phases_[p]);
  out_.others = measured_of(others_), out_.step = measured_of(steps_);
  out_.tokens_per_s = double(s.model.program.facts.tokens) / out_.step.mean;
  for (size_t c = 0; c < kOpClasses; ++c) out_.classes[c].name = name_of(OpClass(c));
  const auto per_step = [&](OpTime& t) {
    t.count /= out_.steps;
    t.s /= double(out_.steps);
    t.forward_s /= double(out_.steps);
  };
  for (OpTime& t : out_.classes) per_step(t);
  out_.copies_s /= double(out_.steps);
  if (!kernels_) {
    out_.notes = machine_.traits().fast ? "ops, not kernels: the device's profiler told none"
                                        : "ops, not kernels: this backend has none below them";
  }
  for (auto& [name, time] : by_name_) {
    time.name = name;
    per_step(time);
    out_.top.push_back(std::move(time));
  }
  sort_by(out_.top, [](const OpTime& time) { return -time.s; });
  out_.top.resize(std::min(out_.top.size(), kTopOps));
  sample_memory(timeline);
}

void CellRun::sample_memory(std::span<const Interval> timeline) {
  const Stage& s = p_->stages.main;
  const MemoryHistory history = memory_history(s.model.program, s.plan, timeline);
  const std::vector<MemoryPoint>& points = history[kDevice];
  if (points.empty()) return;
  // A point holds until the next one.
  const auto most_within = [&](const Interval& when) {
    auto it = std::upper_bound(points.begin(), points.end(), when.start_ns,
                               [](double ns, const MemoryPoint& p) { return ns < p.ns; });
    if (it != points.begin()) --it;
    int64_t most = 0;
    for (; it != points.end() && it->ns < when.end_ns; ++it) most = std::max(most, it->total());
    return most;
  };
  for (size_t id = 0; id < s.plan.actions.size(); ++id) {
    const Action& a = s.plan.actions[id];
    if (a.kind != ActionKind::Run) continue;
    const Phase phase = a.recompute ? Phase::Backward : s.model.program.task(a.task).phase;
    int64_t& peak = out_.peak_bytes[size_t(phase)];
    peak = std::max(peak, most_within(timeline[id]));
  }
  // The largest of each of so many equal stretches of time.
  const double end_ns = std::max(points.back().ns, 1.0);
  size_t column = kSamples;
  // At the last point the history ends, and with it all that it says is held.
  for (const MemoryPoint& p : std::span(points).first(points.size() - 1)) {
    MemorySample m{.at_s = p.ns / 1e9};
    m.params = p.bytes[size_t(ObjectKind::Param)];
    m.grads = p.bytes[size_t(ObjectKind::Grad)];
    m.state = p.bytes[size_t(ObjectKind::OptState)];
    m.activations = p.bytes[size_t(ObjectKind::Activation)] + p.bytes[size_t(ObjectKind::ActGrad)];
    m.others = p.total() - m.params - m.grads - m.state - m.activations;
    const auto at = std::min(kSamples - 1, size_t(double(kSamples) * p.ns / end_ns));
    if (at != column) {
      out_.memory.push_back(m);
    } else if (m.all() > out_.memory.back().all()) {
      out_.memory.back() = m;
    }
    column = at;
  }
}

}  // namespace

Result<CellResult> run_cell(const BenchCell& cell, const Machine& machine, const BenchOptions& options,
                            const std::atomic<bool>& interrupted,
                            const std::function<void(const std::string& doing)>& say) {
  const Machine own = machine_for(cell, machine);
  return CellRun(cell, own, options, interrupted, say).run();
}

}  // namespace sluice::core
