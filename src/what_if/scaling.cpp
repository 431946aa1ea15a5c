// SPDX-License-Identifier: Apache-2.0
#include "what_if/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "base/counts.h"
#include "plan/stalls.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"

namespace sluice::core {
namespace {

// When a device is at its layers.
struct AtLayers {
  double first_ns = std::numeric_limits<double>::infinity(), last_ns = 0;
};

ByTier<AtLayers> at_layers(const Program& program, const Plan& plan) {
  ByTier<AtLayers> out;
  for (const Action& a : plan.actions) {
    if (a.kind != ActionKind::Run) continue;
    const Task& task = program.task(a.task);
    if (task.layer < 0 || task.phase == Phase::Update) continue;
    AtLayers& at = out[plan.device_of(a)];
    at.first_ns = std::min(at.first_ns, a.start_ns);
    at.last_ns = std::max(at.last_ns, a.end_ns);
  }
  return out;
}

Status plan_point(ScalingPoint& point, const RunConfig& of_one, const Card& card, const StudyWatch& watch) {
  RunConfig config = on_devices(of_one, point.devices);
  SLUICE_ASSIGN(const Machine machine, simulated_machine(config, card));
  SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
  SLUICE_TRY(check_early(config, machine, model));
  PrepareOptions options;
  options.stop = watch.stop;
  const PlanCache cache(watch.cache);
  if (!watch.cache.empty()) options.cache = &cache;
  SLUICE_ASSIGN(const Prepared prepared, prepare_on(std::move(config), machine, false, options));
  const Stage& s = prepared.stages.main;
  point.found = outlook_of(prepared);
  point.time = device_time(s.model.program, s.plan);
  return {};
}

}  // namespace

DeviceTime device_time(const Program& program, const Plan& plan) {
  DeviceTime out;
  ByTier<double> busy_ns, end_ns;
  double end_of_compute_ns = 0;
  for (const Action& a : plan.actions) {
    if (!plan.computes(a)) continue;
    const Tier device = plan.device_of(a);
    (a.recompute ? out.again : out.work) += a.end_ns - a.start_ns;
    busy_ns[device] += a.end_ns - a.start_ns;
    end_ns[device] = std::max(end_ns[device], a.end_ns);
    end_of_compute_ns = std::max(end_of_compute_ns, a.end_ns);
  }
  const ByTier<AtLayers> layers = at_layers(program, plan);
  for (const Stall& stall : stalls_of(plan, predicted_timeline(plan))) {
    const AtLayers& at = layers[plan.device_of(plan.actions[stall.action])];
    double& others = stall.end_ns <= at.first_ns   ? out.fill
                     : stall.begin_ns < at.last_ns ? out.steady
                                                   : out.drain;
    others += stall.ns[size_t(StallCause::Device)];
    out.copies += stall.ns[size_t(StallCause::Load)] + stall.ns[size_t(StallCause::Store)];
    out.other += stall.ns[size_t(StallCause::Nothing)];
  }
  const auto devices = double(plan.devices());
  double sum_ns = 0, most_ns = 0;
  for (size_t d = 0; d < plan.devices(); ++d) {
    const Tier device = Tier::device(d);
    out.drain += end_of_compute_ns - end_ns[device];
    // The last stores, when no device computes any more.
    out.copies += plan.makespan_ns - end_of_compute_ns;
    sum_ns += busy_ns[device];
    most_ns = std::max(most_ns, busy_ns[device]);
  }
  for (double* ns : {&out.work, &out.again, &out.fill, &out.steady, &out.drain, &out.copies, &out.other})
    *ns /= plan.makespan_ns * devices;
  out.imbalance = most_ns / (sum_ns / devices) - 1;
  return out;
}

std::vector<ScalingPoint> find_scaling(const RunConfig& config, const Card& card, std::span<const int> counts,
                                       const StudyWatch& watch) {
  std::vector<ScalingPoint> out;
  for (const int count : counts) out.push_back({.devices = count});
  std::mutex mutex;
  int64_t done = 0;
  const std::string doing = "planning for numbers of devices";
  watch.say(doing, 0, int64_t(out.size()));
  for_each_parallel(int64_t(out.size()), search_threads(), [&](int64_t i) {
    if (watch.stop.stop_requested()) return;
    ScalingPoint& point = out[size_t(i)];
    const Status status = plan_point(point, config, card, watch);
    if (!status.ok()) point.missing = status.message();
    point.is_known = status.ok() || status.error().kind != ErrorKind::Cancelled;
    if (!point.is_known) return;
    const std::lock_guard lock(mutex);
    watch.say(doing, ++done, int64_t(out.size()));
    watch.row(fmt::format(
        "{}: {}", counted(point.devices, "device"),
        point.trains() ? fmt::format("{:.0f} tokens/s", point.found.speed.tokens_per_s) : point.missing));
  });
  std::erase_if(out, [](const ScalingPoint& point) { return !point.is_known; });
  return out;
}

Page scaling_page(std::span<const ScalingPoint> points, std::string title) {
  Page page{.title = std::move(title),
            .legend = {"Shares of all time of all devices. Fill: before a device's first layer, until others "
                       "have something for it. Steady: the same between its layers, with copies between "
                       "devices. Drain: behind its last layer. Copies: waiting for the host's memory. Again: "
                       "what is computed a second time. Imbalance: how much longer than in the mean the "
                       "busiest device computes."}};
  Section section{.key = "scaling", .title = "On more devices"};
  Table table{.key = "devices", .title = "Planned, not measured", .row_title = "devices"};
  table.note_key = "binds", table.note_title = "what binds";
  table.columns = {{"tokens_per_s", "tokens/s", Form::Count},
                   {"step_s", "step", Form::Seconds},
                   {"speed_up", "speed-up", Form::Number},
                   {"efficiency", "efficiency", Form::Share},
                   {"fill", "fill", Form::Share},
                   {"steady", "steady", Form::Share},
                   {"drain", "drain", Form::Share},
                   {"copies", "copies", Form::Share},
                   {"again", "again", Form::Share},
                   {"imbalance", "imbalance", Form::Share},
                   {"device_bytes", "fullest device", Form::Memory}};
  const auto first = std::ranges::find_if(points, &ScalingPoint::trains);
  if (first != points.end()) {
    section.facts.push_back({"tokens_per_step", "tokens of a step", double(first->found.shape.tokens()),
                             Form::Count, "as configured, on however many devices"});
  }
  for (const ScalingPoint& p : points) {
    Row row{.name = fmt::format("{}", p.devices)};
    if (p.trains()) {
      const double speed_up = p.found.speed.tokens_per_s / first->found.speed.tokens_per_s;
      const DeviceTime& t = p.time;
      row.values = {p.found.speed.tokens_per_s,
                    p.found.step_ns / 1e9,
                    speed_up,
                    speed_up * double(first->devices) / double(p.devices),
                    t.fill,
                    t.steady,
                    t.drain,
                    t.copies,
                    t.again,
                    t.imbalance,
                    double(fullest_device(p.found.bytes))};
      row.note = fmt::format("{}; {}", p.found.binds, to_text(p.found.shape));
    } else {
      row.values.resize(table.columns.size());
      row.note = p.missing;
    }
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace sluice::core
