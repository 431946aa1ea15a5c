// SPDX-License-Identifier: Apache-2.0
#include "search/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/order.h"

namespace sluice::core {
namespace {

using Residents = std::vector<std::pair<int64_t, std::string>>;

std::string three_largest(Residents residents) {
  sort_by(residents, [](const auto& resident) { return -resident.first; });
  residents.resize(std::min<size_t>(3, residents.size()));
  std::string out;
  for (const auto& [bytes, name] : residents) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return out;
}

// The working set of the run at a position.
Residents working_set(const Program& program, const DeviceSchedule& s, uint32_t position) {
  Residents out;
  const int64_t workspace = s.workspace_bytes[position];
  if (workspace > 0) out.emplace_back(workspace, "workspace");
  if (s.runs[position].kind == RunKind::HandOver) {
    const Value& v = s.values[s.use_values[s.runs[position].first_value]];
    if (!v.fixed) out.emplace_back(v.bytes, program.object(v.object).name);
    return out;
  }
  const Task& task = program.task(s.runs[position].task);
  std::vector<uint32_t> seen;
  for (size_t i = 0; i < task.uses.size(); ++i) {
    const uint32_t v = s.use_values[s.runs[position].first_value + i];
    if (s.values[v].fixed || std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
    seen.push_back(v);
    out.emplace_back(s.values[v].bytes, program.object(s.values[v].object).name);
  }
  return out;
}

std::string name_of(const Program& program, const DeviceSchedule& s, uint32_t position) {
  if (position == s.size()) return "the boundary between steps";
  const Run& run = s.runs[position];
  return run.kind == RunKind::Task ? program.task(run.task).name
                                   : "handing over " + program.object(run.object).name;
}

std::string or_unknown(int64_t bytes) {
  return bytes == kNowhere ? "unknown" : format_bytes_up(bytes);
}

}  // namespace

Tightest tightest_on_device(const Program& program, const StepSchedule& step) {
  Tightest out;
  for (const DeviceSchedule& s : step.devices) {
    if (const int64_t bytes = s.workspace_bytes[s.size()]; bytes > out.bytes || out.moment.empty()) {
      out = {bytes, name_of(program, s, s.size()), ""};
      if (bytes > 0) out.largest = three_largest({{bytes, "room for what runs between steps"}});
    }
    for (uint32_t p = 0; p < s.size(); ++p) {
      if (!s.concerns(p)) continue;
      Residents here = working_set(program, s, p);
      int64_t bytes = 0;
      for (const auto& resident : here) bytes += resident.first;
      if (bytes > out.bytes) out = {bytes, name_of(program, s, p), three_largest(std::move(here))};
    }
  }
  return out;
}

Tightest tightest_on_host(const Program& program, const StepSchedule& step,
                          const std::vector<std::vector<HostSlot>>& slots, const Limits& limits) {
  const DeviceSchedule& s = step.devices.front();
  // Values without a given place, with their bytes; those at home there for several devices once.
  std::vector<std::pair<HostSlot, const Value*>> own;
  std::vector<bool> at_home(program.objects().size(), false);
  for (size_t d = 0; d < slots.size(); ++d) {
    for (const HostSlot& slot : slots[d]) {
      const Value& v = step.devices[d].values[slot.value];
      if (!limits.fixed_homes.empty() && limits.fixed_homes[v.object.value].on(kHost)) continue;
      if (slot.home && at_home[v.object.value]) continue;
      if (slot.home) at_home[v.object.value] = true;
      own.emplace_back(slot, &v);
    }
  }
  std::vector<int64_t> change(s.size() + 2, 0);
  for (const auto& [slot, v] : own) slot.hold(change, v->bytes);
  int64_t bytes = limits.boundary_bytes[kHost], most = -1;
  uint32_t at = 0;
  for (uint32_t p = 0; p <= s.size(); ++p) {
    bytes += change[p];
    if (bytes > most) most = bytes, at = p;
  }
  // By role: a single object is rarely what is in the way.
  struct Role {
    int64_t bytes = 0, count = 0;
    std::string_view name;  // of the first
  };
  std::map<std::string_view, Role> roles;
  for (const auto& [slot, v] : own) {
    if (!slot.covers(at)) continue;
    const Object& object = program.object(v->object);
    Role& role = roles.try_emplace(object.role, Role{0, 0, object.name}).first->second;
    role.bytes += v->bytes;
    ++role.count;
  }
  Residents here;
  if (limits.boundary_bytes[kHost] > 0)
    here.emplace_back(limits.boundary_bytes[kHost], "room for what runs between steps");
  for (const auto& [name, role] : roles) {
    here.emplace_back(role.bytes,
                      role.count == 1 ? std::string(role.name) : fmt::format("{} x {}", role.count, name));
  }
  return {most, name_of(program, s, at), three_largest(std::move(here))};
}

int64_t least_bytes(int64_t floor, int64_t ceiling, int64_t alignment,
                    const std::function<bool(int64_t)>& works) {
  const auto precision = [&](int64_t bytes) { return align_up(std::max(alignment, bytes / 256), alignment); };
  int64_t low = align_down(floor - 1, alignment), high = align_up(floor, alignment);
  // The least working cap is mostly close above the floor.
  for (int64_t step = precision(floor); !works(high); step *= 2) {
    if (high >= ceiling) return kNowhere;
    low = high;
    high = std::min(high + step, align_up(ceiling, alignment));
  }
  while (high - low > precision(low)) {
    const int64_t middle = align_up(low + (high - low) / 2, alignment);
    (works(middle) ? high : low) = middle;
  }
  return high;
}

Error does_not_fit(std::string_view tier, int64_t given_bytes, int64_t least_bytes, std::string message) {
  Error refusal{std::move(message), ErrorKind::DoesNotFit};
  refusal.shortage = {
      .tier = std::string(tier), .given_bytes = given_bytes, .more_host_helps = tier == name_of(kHost)};
  if (least_bytes != kNowhere) refusal.shortage->need_bytes = least_bytes;
  return refusal;
}

Error refuse_device(int64_t given_bytes, int64_t least_bytes, int64_t host_cap_bytes, HostCap host,
                    const Tightest& tightest) {
  const std::string cap = format_bytes(host_cap_bytes);
  const std::string beside = host_cap_bytes == kUnlimited ? ""
                             : host != HostCap::TooSmall  ? " beside a host cap of " + cap
                                                          : " beside a larger host cap than " + cap +
                                                               ", which no device cap works with,";
  const std::string message = fmt::format(
      "device memory: the smallest cap that works{} is {}, {} was given. The tightest moment is {}; its "
      "largest "
      "residents are {}. Raise the device cap, or make chunks or head_tokens smaller.",
      beside, or_unknown(least_bytes), format_bytes(given_bytes), tightest.moment, tightest.largest);
  Error refusal = does_not_fit("device", given_bytes, least_bytes, message);
  refusal.shortage->in_both_tiers = host == HostCap::TooSmall;
  refusal.shortage->more_host_helps = host != HostCap::Enough;
  return refusal;
}

Error refuse_host(int64_t given_bytes, int64_t least_bytes, int64_t device_cap_bytes, int64_t held_bytes,
                  const Tightest& tightest) {
  const std::string device =
      device_cap_bytes == kUnlimited ? "no device cap" : "a device cap of " + format_bytes(device_cap_bytes);
  const std::string held =
      given_bytes == kUnlimited ? "" : ", of which the process itself takes " + format_bytes(held_bytes);
  const std::string message = fmt::format(
      "host memory: the smallest cap that works beside {} is {}, {} was given{}. The tightest moment is {}, "
      "with {} on the host; its largest residents are {}. Raise the host cap or the device cap, use fewer "
      "tokens per round, or optimizer state of a smaller type.",
      device, or_unknown(least_bytes), format_bytes(given_bytes), held, tightest.moment,
      format_bytes(tightest.bytes), tightest.largest);
  return does_not_fit("host", given_bytes, least_bytes, message);
}

}  // namespace sluice::core
