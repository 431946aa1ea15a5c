// SPDX-License-Identifier: Apache-2.0
#include "search/lower_bound.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace sluice::core {
namespace {

// Bytes that running a task again makes up for, and its time.
struct Again {
  double ns = 0;
  double bytes = 0;

  bool cheaper(const Again& other) const { return ns * other.bytes < other.ns * bytes; }
};

// The objects at a moment of a round.
struct Turn {
  double kept = 0;               // bytes that cannot be computed again
  std::vector<Again> again;      // the rest, by the task that would run again, cheapest per byte first
  std::vector<uint32_t> values;  // of the rest

  double again_bytes() const {
    double bytes = 0;
    for (const Again& a : again) bytes += a.bytes;
    return bytes;
  }
};

// Whether the content that a value has just after a position is used later, in this step or the next.
bool live_after(const Value& v, uint32_t position) {
  const auto next = std::ranges::upper_bound(v.uses, position, {}, &ValueUse::position);
  if (next == v.uses.begin() && !v.given) return false;  // not made yet
  if (next != v.uses.end()) return !next->overwrites;
  return v.circular && !v.uses.front().overwrites;
}

// Small, or at home in another plan's arenas.
bool counts(const Value& v) {
  return !v.fixed && !v.host_home;
}

bool is_used_at(const Value& v, uint32_t position) {
  return std::ranges::binary_search(v.uses, position, {}, &ValueUse::position);
}

// Which values may be there at some positions, so that a round is not asked for what others made.
class ThereAt {
 public:
  ThereAt(const DeviceSchedule& s, std::vector<uint32_t> positions)
      : positions_(std::move(positions)), passing_(positions_.size()) {
    std::ranges::sort(positions_);
    for (uint32_t i = 0; i < s.values.size(); ++i) {
      const Value& v = s.values[i];
      if (!counts(v)) continue;
      if (v.given || v.circular) {
        lasting_.push_back(i);
        continue;
      }
      auto at = std::ranges::lower_bound(positions_, v.uses.front().position);
      for (; at != positions_.end() && *at <= v.uses.back().position; ++at)
        passing_[size_t(at - positions_.begin())].push_back(i);
    }
  }

  // In their order. REQUIRES: the position is one of those given.
  std::vector<uint32_t> at(uint32_t position) const {
    const auto& passing =
        passing_[size_t(std::ranges::lower_bound(positions_, position) - positions_.begin())];
    std::vector<uint32_t> out;
    std::ranges::merge(lasting_, passing, std::back_inserter(out));
    return out;
  }

 private:
  std::vector<uint32_t> positions_;
  std::vector<uint32_t> lasting_;
  std::vector<std::vector<uint32_t>> passing_;  // by position
};

Turn turn_at(const Program& program, const DeviceSchedule& s, const TaskCosts& costs,
             const std::vector<uint32_t>& writer, int32_t round, uint32_t position, const ThereAt& there) {
  // While a task runs, its workspace and operands are there, too.
  Turn turn{double(s.workspace_bytes[position]), {}, {}};
  std::map<uint32_t, Again> by_task;
  for (const uint32_t i : there.at(position)) {
    const Value& v = s.values[i];
    const Object& object = program.object(v.object);
    if (is_used_at(v, position)) {
      turn.kept += double(v.bytes);
      continue;
    }
    if (v.on_disk) continue;
    // Where rounds overlap, what one computes again may make room at the turns of two.
    if (object.kind == ObjectKind::Activation && object.round != round) continue;
    if (!live_after(v, position)) continue;
    const uint32_t task = writer[v.object.value];
    if (task == UINT32_MAX) {
      turn.kept += double(v.bytes);
    } else {
      by_task[task].ns = costs.ns[task];
      by_task[task].bytes += double(v.bytes);
      turn.values.push_back(i);
    }
  }
  for (const auto& [task, again] : by_task) turn.again.push_back(again);
  std::stable_sort(turn.again.begin(), turn.again.end(),
                   [](const Again& a, const Again& b) { return a.cheaper(b); });
  return turn;
}

// Bytes that are in use at a position, or later what they are then.
std::vector<int64_t> bytes_there(const DeviceSchedule& s) {
  std::vector<int64_t> change(s.size() + 1, 0);
  const auto add = [&](uint32_t first, uint32_t end, int64_t bytes) {
    change[first] += bytes, change[end] -= bytes;
  };
  for (uint32_t p = 0; p < s.size(); ++p) add(p, p + 1, s.workspace_bytes[p]);
  for (const Value& v : s.values) {
    if (!counts(v)) continue;
    const uint32_t first = v.uses.front().position, last = v.uses.back().position;
    if (v.given && !v.uses.front().overwrites) add(0, first, v.bytes);
    for (size_t k = 0; k + 1 < v.uses.size(); ++k) {
      const ValueUse &now = v.uses[k], &next = v.uses[k + 1];
      add(now.position, next.overwrites ? now.position + 1 : next.position, v.bytes);
    }
    add(last, live_after(v, last) ? s.size() : last + 1, v.bytes);
  }
  for (size_t p = 1; p < change.size(); ++p) change[p] += change[p - 1];
  return change;
}

// Takes up to `bytes` off the cheapest and returns what computing them again costs.
double take(std::vector<Again>& from, double bytes) {
  double ns = 0;
  for (Again& a : from) {
    if (bytes <= 0) break;
    const double part = std::min(bytes, a.bytes);
    ns += a.ns * part / a.bytes;
    a.ns -= a.ns * part / a.bytes;
    a.bytes -= part;
    bytes -= part;
  }
  std::erase_if(from, [](const Again& a) { return a.bytes <= 0; });
  return ns;
}

// A stretch of a step, and how many alike ones it stands for.
struct Stretch {
  uint32_t begin, end;  // positions, the end excluded
  double times;
};

// Bytes that links carry at least when nothing is computed again.
struct Traffic {
  double loads = 0, stores = 0;
};

// An object used in a stretch and made before it is on the device when the stretch begins, or loaded in it.
// An object that is changed in it and used later is there when it ends, or was stored. Objects of either kind
// need no transfer in the stretch only as far as the device then has room for them. The operands and
// workspace of its first or last task come before them. What can be computed again counts if a turn has it to
// choose, and in the first stretch that has it, so that computing it again saves its bytes once.
class Crossing {
 public:
  Crossing(const DeviceSchedule& s, const std::vector<uint32_t>& writer,
           const std::vector<bool>& can_be_again, double device_bytes)
      : s_(s), writer_(writer), can_be_again_(can_be_again), device_bytes_(device_bytes), uses_(s.size()) {
    for (uint32_t v = 0; v < s.values.size(); ++v) {
      if (!counts(s.values[v])) continue;
      for (uint32_t k = 0; k < s.values[v].uses.size(); ++k)
        uses_[s.values[v].uses[k].position].push_back({v, k});
    }
  }

  Traffic over(const std::vector<Stretch>& stretches) const {
    Traffic out;
    const size_t values = s_.values.size();
    std::vector<uint32_t> seen(values, UINT32_MAX), changed(values, UINT32_MAX);
    std::vector<bool> loaded(values, false), stored(values, false);
    for (uint32_t i = 0; i < stretches.size(); ++i) {
      const auto& [begin, end, times] = stretches[i];
      if (begin >= end) continue;
      double needed = 0, left = 0;
      // Needed bytes that are loaded in part, and the least part of any.
      double in_part = 0, least_part = 1;
      for (uint32_t p = begin; p < end; ++p) {
        for (const auto& [index, k] : uses_[p]) {
          const Value& v = s_.values[index];
          const bool again = can_be_again_[index];
          if (!again && writer_[v.object.value] != UINT32_MAX) continue;
          if (seen[index] != i) {
            seen[index] = i;
            const bool from_before = (k > 0 || v.given) && !v.uses[k].overwrites;
            // A link of its own brings what comes from the disk.
            if (from_before && p != begin && !v.on_disk && !(again && loaded[index])) {
              (v.chosen ? in_part : needed) += double(v.bytes);
              least_part = std::min(least_part, double(v.load_bytes()) / double(v.bytes));
              loaded[index] = true;
            }
          }
          if (!v.uses[k].writes || changed[index] == i) continue;
          changed[index] = i;
          if (!live_after(v, end - 1) || is_used_at(v, end - 1) || (again && stored[index])) continue;
          left += double(v.bytes);
          stored[index] = true;
        }
      }
      // Whole ones there leave least to load.
      const double missing = needed - (device_bytes_ - working_bytes(begin));
      out.loads +=
          times * (std::max(0.0, missing) + least_part * std::max(0.0, in_part + std::min(0.0, missing)));
      out.stores += times * std::max(0.0, left - (device_bytes_ - working_bytes(end - 1)));
    }
    return out;
  }

 private:
  struct Used {
    uint32_t value, use;
  };
  double working_bytes(uint32_t position) const {
    double bytes = double(s_.workspace_bytes[position]);
    for (const Used& u : uses_[position]) bytes += double(s_.values[u.value].bytes);
    return bytes;
  }

  const DeviceSchedule& s_;
  const std::vector<uint32_t>& writer_;
  const std::vector<bool>& can_be_again_;
  const double device_bytes_;
  std::vector<std::vector<Used>> uses_;  // by position
};

// When a round's forward pass has ended, when all of it has, and when most is there.
struct Ends {
  uint32_t turn = UINT32_MAX, last = 0, fullest = UINT32_MAX;
};

// The step cut where rounds turn, where they end, or at both.
std::vector<Stretch> cut(const std::map<int32_t, Ends>& rounds, uint32_t size, bool at_turns, bool at_ends,
                         const LeftOut& left_out) {
  std::map<uint32_t, double> begins{{0, 1}};  // with how many each stands for
  for (const auto& [round, ends] : rounds) {
    const double times = left_out.times(round);
    if (at_turns) begins[ends.turn + 1] = times;
    if (at_ends) begins[ends.last + 1] = times;
  }
  std::vector<Stretch> out;
  for (auto it = begins.begin(); it != begins.end(); ++it) {
    const auto next = std::next(it);
    out.push_back({it->first, next == begins.end() ? size : std::min(size, next->first), it->second});
  }
  return out;
}

// The time of all tasks of one kind of lane: an exchange takes its time beside any compute.
double ns_on(LaneKind kind, const Program& program, const TaskCosts& costs) {
  double ns = 0;
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    if (lane_of(program.tasks()[t].op) == kind) ns += costs.ns[t];
  }
  return ns;
}

}  // namespace

double lower_bound_ns(const Program& program, const DeviceSchedule& plain, const TaskCosts& costs,
                      const Profile& profile, const Limits& limits, const LeftOut& left_out) {
  const std::vector<uint32_t> writer = last_writers_that_can_run_again(program);
  const std::vector<int64_t> there = bytes_there(plain);
  std::map<int32_t, Ends> rounds;
  for (uint32_t p = 0; p < plain.size(); ++p) {
    const Task& task = program.task(plain.runs[p].task);
    Ends& ends = rounds[task.round];
    if (task.phase == Phase::Forward) ends.turn = p;
    ends.last = p;
    if (ends.fullest == UINT32_MAX || there[p] > there[ends.fullest]) ends.fullest = p;
  }
  std::erase_if(rounds, [](const auto& r) { return r.second.turn == UINT32_MAX; });
  std::vector<uint32_t> positions;
  for (const auto& [round, ends] : rounds) {
    for (const uint32_t position : {ends.turn, ends.fullest}) positions.push_back(position);
  }
  const ThereAt values_there(plain, std::move(positions));
  const double device = double(limits.bytes[kDevice]), both = device + double(limits.bytes[kHost]);
  // The exchange takes its share of a core whether or not something is computed meanwhile.
  double compute_ns =
             plain.whole_ns() + profile.network.core_share() * ns_on(LaneKind::Network, program, costs),
         again_bytes = 0;
  std::vector<bool> can_be_again(plain.values.size(), false);
  std::vector<Again> spare;
  for (const auto& [round, ends] : rounds) {
    // The dearer of the two moments: where rounds overlap, the fullest has less of this one.
    Turn turn;
    double excess = 0, ns = -1;
    for (const uint32_t position : {ends.turn, ends.fullest}) {
      Turn other = turn_at(program, plain, costs, writer, round, position, values_there);
      const double bytes = other.again_bytes(), too_many = std::clamp(other.kept + bytes - both, 0.0, bytes);
      const double takes_ns = take(other.again, too_many);
      if (takes_ns <= ns) continue;
      turn = std::move(other);
      excess = too_many;
      ns = takes_ns;
    }
    for (const uint32_t v : turn.values) can_be_again[v] = true;
    const double times = left_out.times(round);
    compute_ns += times * ns;
    again_bytes += times * excess;
    for (const Again& a : turn.again) spare.push_back({times * a.ns, times * a.bytes});
  }
  std::stable_sort(spare.begin(), spare.end(), [](const Again& a, const Again& b) { return a.cheaper(b); });
  // The least time of links, which computing more again shortens as long as that takes less time.
  const auto bound = [&](const Traffic& all) {
    const double load_ns = 1e9 / profile.bytes_per_s(kHost, kDevice),
                 store_ns = 1e9 / profile.bytes_per_s(kDevice, kHost);
    double compute = compute_ns, saved = again_bytes;
    const auto loading = [&] { return (all.loads - saved) * load_ns; };
    const auto storing = [&] { return (all.stores - saved) * store_ns; };
    for (const Again& a : spare) {
      // Part of it until neither link takes longer than computing.
      const double balance = std::max((loading() - compute) / (a.ns + a.bytes * load_ns),
                                      (storing() - compute) / (a.ns + a.bytes * store_ns));
      if (balance <= 0) break;
      const double part = std::min(1.0, balance);
      compute += a.ns * part;
      saved += a.bytes * part;
    }
    return std::max({compute, loading(), storing()});
  };
  const Crossing crossing(plain, writer, can_be_again, device);
  double most = ns_on(LaneKind::Network, program, costs);
  for (const auto& [at_turns, at_ends] : {std::pair(true, false), {false, true}, {true, true}})
    most = std::max(most, bound(crossing.over(cut(rounds, plain.size(), at_turns, at_ends, left_out))));
  return most;
}

double ring_bound_ns(const Program& program, const TaskCosts& costs, size_t devices) {
  return std::max(ns_on(LaneKind::Compute, program, costs) / double(devices),
                  ns_on(LaneKind::Network, program, costs));
}

}  // namespace sluice::core
