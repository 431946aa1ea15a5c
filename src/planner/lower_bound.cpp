// SPDX-License-Identifier: Apache-2.0
#include "planner/lower_bound.h"

#include <algorithm>
#include <map>

namespace sluice::core {
namespace {

// Bytes that running a task again makes up for, and its time.
struct Again {
  double ns = 0;
  double bytes = 0;

  bool cheaper(const Again& other) const { return ns * other.bytes < other.ns * bytes; }
};

// What is there between a round's forward and backward pass.
struct Turn {
  double kept = 0;           // bytes that cannot be computed again
  std::vector<Again> again;  // the rest, by the task that would run again, cheapest per byte first
};

// Whether the content that a value has just after a position is used later, in this step or the next.
bool live_after(const Value& v, uint32_t position) {
  const auto next = std::ranges::upper_bound(v.uses, position, {}, &ValueUse::position);
  if (next == v.uses.begin() && !v.given) return false;  // not made yet
  if (next != v.uses.end()) return !next->overwrites;
  return v.circular && !v.uses.front().overwrites;
}

Turn turn_at(const Program& program, const Schedule& s, const TaskCosts& costs,
             const std::vector<uint32_t>& writer, int32_t round, uint32_t position) {
  Turn turn;
  std::map<uint32_t, Again> by_task;
  for (const Value& v : s.values) {
    const Object& object = program.object(v.object);
    if (v.fixed || v.host_home) continue;  // small, or at home in another plan's arenas
    // Where rounds overlap, what one computes again may make room at the turns of two.
    if (object.kind == ObjectKind::Activation && object.round != round) continue;
    if (!live_after(v, position)) continue;
    const uint32_t task = writer[v.object.value];
    if (task == UINT32_MAX) {
      turn.kept += double(v.bytes);
    } else {
      by_task[task].ns = costs.ns[task];
      by_task[task].bytes += double(v.bytes);
    }
  }
  for (const auto& [task, again] : by_task) turn.again.push_back(again);
  std::stable_sort(turn.again.begin(), turn.again.end(),
                   [](const Again& a, const Again& b) { return a.cheaper(b); });
  return turn;
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

}  // namespace

double lower_bound_ns(const Program& program, const Schedule& plain, const TaskCosts& costs,
                      const Profile& profile, const Limits& limits) {
  const std::vector<uint32_t> writer = last_writers_that_can_run_again(program);
  std::map<int32_t, uint32_t> turns;  // by round: the position of its last forward task
  for (uint32_t p = 0; p < plain.size(); ++p) {
    const Task& task = program.task(plain.runs[p].task);
    if (task.phase == Phase::Forward) turns[task.round] = p;
  }
  const double both = double(limits.bytes[kDevice]) + double(limits.bytes[kHost]);
  double compute_ns = plain.start_ns.back(), crossing = 0;
  std::vector<Again> spare;
  for (const auto& [round, position] : turns) {
    Turn turn = turn_at(program, plain, costs, writer, round, position);
    double activations = 0;
    for (const Again& a : turn.again) activations += a.bytes;
    const double excess = std::max(0.0, turn.kept + activations - both);
    compute_ns += take(turn.again, excess);
    crossing += std::max(0.0, activations - excess - double(limits.bytes[kDevice]));
    spare.insert(spare.end(), turn.again.begin(), turn.again.end());
  }
  // The rest crosses, or is computed again as long as that shortens the step.
  std::stable_sort(spare.begin(), spare.end(), [](const Again& a, const Again& b) { return a.cheaper(b); });
  const double ns_per_byte =
      1e9 / std::min(profile.bytes_per_s(kHost, kDevice), profile.bytes_per_s(kDevice, kHost));
  for (const Again& a : spare) {
    if (crossing * ns_per_byte <= compute_ns) break;
    // Part of it until both take the same time.
    const double balance = (crossing * ns_per_byte - compute_ns) / (a.ns + a.bytes * ns_per_byte);
    const double part = std::min(1.0, balance);
    compute_ns += a.ns * part;
    crossing -= a.bytes * part;
  }
  return std::max(compute_ns, crossing * ns_per_byte);
}

}  // namespace sluice::core
