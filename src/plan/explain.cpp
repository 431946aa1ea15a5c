// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "base/bytes.h"
#include "ops/op.h"
#include "plan/plan.h"
#include "plan/stalls.h"

namespace sluice::core {
namespace {

using ByKind = std::array<int64_t, kObjectKinds>;

// The kind in plain words.
std::string_view describe_kind(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::Param:
      return "weights";
    case ObjectKind::Grad:
      return "gradients";
    case ObjectKind::OptState:
      return "optimizer state";
    case ObjectKind::Activation:
      return "activations";
    case ObjectKind::ActGrad:
      return "gradients of activations";
    case ObjectKind::Input:
      return "tokens";
    case ObjectKind::Constant:
      return "constants";
    case ObjectKind::Metric:
      return "results";
    case ObjectKind::Cache:
      return "keys and values";
  }
  return {};
}

std::string list(const ByKind& bytes) {
  std::string out;
  for (int k = 0; k < kObjectKinds; ++k) {
    if (bytes[size_t(k)] == 0) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", describe_kind(static_cast<ObjectKind>(k)),
                       format_bytes(bytes[size_t(k)]));
  }
  return out.empty() ? "nothing" : out;
}

// Traffic between devices, and how long each computes, begins late and ends early.
std::string between_devices(const Plan& plan, const PlanTotals& t) {
  struct Device {
    double busy_ns = 0, first_ns = 0, last_ns = 0;
    bool any = false;
  };
  ByTier<Device> devices;
  for (const Action& a : plan.actions) {
    if (!plan.computes(a)) continue;
    Device& d = devices[plan.device_of(a)];
    if (!d.any) d.first_ns = a.start_ns;
    d.any = true;
    d.busy_ns += a.end_ns - a.start_ns;
    d.last_ns = std::max(d.last_ns, a.end_ns);
  }
  const double step = std::max(plan.makespan_ns, 1.0);
  std::string out = t.hand_overs.actions == 0
                        ? std::string("between  by way of the host")
                        : fmt::format("between  {} copies of {} from device to device", t.hand_overs.actions,
                                      format_bytes(t.hand_overs.bytes));
  for (const Tier tier : devices.tiers()) {
    const Device& d = devices[tier];
    if (!d.any) continue;
    out += fmt::format("; {} {:.1f} % at work, begins after {:.1f} %, ends {:.1f} % early", name_of(tier),
                       100 * d.busy_ns / step, 100 * d.first_ns / step, 100 * (1 - d.last_ns / step));
  }
  return out + "\n";
}

// Which layers each device computes: "layers   device 0-3, part of 4; device1 part of 4, 5-8".
std::string layers_by_device(const Program& program, const Plan& plan) {
  ByTier<std::set<int32_t>> layers;
  std::map<int32_t, std::set<Tier>> devices;  // of a layer
  for (const Action& a : plan.actions) {
    if (a.kind != ActionKind::Run || program.task(a.task).phase != Phase::Forward) continue;
    const int32_t layer = program.task(a.task).layer;
    if (layer < 0) continue;
    layers[plan.device_of(a)].insert(layer);
    devices[layer].insert(plan.device_of(a));
  }
  std::string out;
  for (size_t d = 0; d < plan.devices(); ++d) {
    const std::set<int32_t>& own = layers[Tier::device(d)];
    std::string list;
    const auto whole = [&](int32_t layer) { return own.contains(layer) && devices[layer].size() == 1; };
    for (const int32_t layer : own) {
      if (whole(layer) && whole(layer - 1)) continue;  // said with the first of them
      int32_t last = layer;
      while (whole(layer) && whole(last + 1)) ++last;
      list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", whole(layer) ? "" : "part of ", layer,
                          last == layer ? "" : fmt::format("-{}", last));
    }
    out += fmt::format("{}{} {}", out.empty() ? "layers   " : "; ", name_of(Tier::device(d)),
                       list.empty() ? "none" : list);
  }
  return out + "\n";
}

}  // namespace

std::string describe(const Program& program, const Plan& plan) {
  const PlanTotals t = totals(program, plan);
  const auto stalls = sum_by_cause(stalls_of(plan, predicted_timeline(plan)));
  ByKind resident{}, loaded{}, stored{};
  for (size_t o = 0; o < plan.homes.size(); ++o) {
    const Object& object = program.objects()[o];
    for (const Location& place : plan.homes[o].places()) {
      if (place.tier.is_device()) resident[static_cast<size_t>(object.kind)] += object.bytes;
    }
  }
  std::map<std::string, double> recomputed;
  for (const Action& a : plan.actions) {
    if (a.loads()) loaded[static_cast<size_t>(program.object(a.object).kind)] += a.bytes;
    if (a.stores()) stored[static_cast<size_t>(program.object(a.object).kind)] += a.bytes;
    if (a.recompute) {
      const std::string& name = program.task(a.task).name;
      recomputed[name.substr(0, name.find('.'))] += a.cost_ns;
    }
  }
  std::string again;
  for (const auto& [name, ns] : recomputed) {
    again += fmt::format("{}{} ({:.1f} % of the step)", again.empty() ? "" : ", ", name,
                         100 * ns / (plan.makespan_ns * double(plan.devices())));
  }
  const double step = std::max(plan.makespan_ns, 1.0), devices = double(plan.devices());
  std::string out, arenas;
  for (const Tier tier : plan.lanes.tiers()) {
    arenas += fmt::format("{}{} on the {}", arenas.empty() ? "" : ", ", format_bytes(plan.arenas[tier].bytes),
                          name_of(tier));
  }
  const auto put = std::back_inserter(out);
  fmt::format_to(put, "plan     {}; {} computations, {} copies to the device, {} to the host\n", arenas,
                 t.runs.actions, t.loads.actions, t.stores.actions);
  fmt::format_to(put, "stays    on the device, from step to step: {}\n", list(resident));
  fmt::format_to(put, "loads    {} to the device in each step: {}\n", format_bytes(t.loads.bytes),
                 list(loaded));
  if (t.reads.actions > 0) {
    int64_t there = 0;
    for (size_t o = 0; o < plan.homes.size(); ++o)
      there += plan.homes[o].on(kDisk) ? program.objects()[o].bytes : 0;
    fmt::format_to(
        put,
        "disk     {} of the loads read {} from the base's files, of which {} have no place on the host; "
        "the disk is {:.0f} % busy, at {:.2f} GB/s\n",
        t.reads.actions, format_bytes(t.reads.bytes), format_bytes(there),
        100 * t.reads.ns / (step * devices), double(t.reads.bytes) / t.reads.ns * devices);
  }
  if (t.chosen.actions > 0) {
    fmt::format_to(
        put,
        "experts  {} of the loads wait for a layer's router and bring the experts that it chose: {} "
        "of {}, if all are as likely\n",
        t.chosen.actions, format_bytes(t.chosen.bytes), format_bytes(t.chosen_from));
  }
  fmt::format_to(put, "stores   {} to the host in each step: {}\n", format_bytes(t.stores.bytes),
                 list(stored));
  if (plan.devices() > 1) out += layers_by_device(program, plan) + between_devices(plan, t);
  fmt::format_to(put, "again    {}\n",
                 again.empty() ? "nothing is computed a second time" : "computed a second time: " + again);
  fmt::format_to(put, "policy   {}\n", plan.policy);
  fmt::format_to(put, "step     {:.1f} ms predicted; no plan can be faster than {:.1f} ms (gap {:.1f} %)\n",
                 step / 1e6, plan.lower_bound_ns / 1e6,
                 plan.lower_bound_ns > 0 ? 100 * (step / plan.lower_bound_ns - 1) : 0.0);
  fmt::format_to(
      put,
      "stalls   {:.1f} % of the step waits for copies to the device, {:.1f} % for copies to the host{}\n",
      100 * stalls[size_t(StallCause::Load)] / (step * devices),
      100 * stalls[size_t(StallCause::Store)] / (step * devices),
      devices == 1 && t.exchanges.actions == 0
          ? ""
          : fmt::format(", {:.1f} % for {}", 100 * stalls[size_t(StallCause::Device)] / (step * devices),
                        devices == 1               ? "other processes"
                        : t.exchanges.actions == 0 ? "another device"
                                                   : "another device or other processes"));
  fmt::format_to(put, "links    to the device {:.0f} % busy, to the host {:.0f} %\n",
                 100 * (t.loads.ns - t.reads.ns) / (step * devices), 100 * t.stores.ns / (step * devices));
  if (t.exchanges.actions > 0) {
    const int64_t shares = std::ranges::count_if(exchanges(plan), [&](TaskId task) {
      return std::holds_alternative<ShareWeight>(*program.task(task).op);
    });
    fmt::format_to(
        put, "network  {} sent and received for {} sums of gradients{}; {:.0f} % busy\n",
        format_bytes(t.exchanges.bytes), t.exchanges.actions - shares,
        shares == 0 ? "" : fmt::format(" and {} parts of weights that one process updates", shares),
        100 * t.exchanges.ns / step);
  }
  fmt::format_to(put, "binds    {}\n", what_binds(plan, t, stalls));
  return out;
}

}  // namespace sluice::core
