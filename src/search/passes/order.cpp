// SPDX-License-Identifier: Apache-2.0
// The order of tasks: as in the Program, or with the forward pass of each round spread over the backward pass
// of the round before it.
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "search/passes/passes.h"

namespace sluice::core {
namespace {

// Consecutive tasks of the program, [begin, end).
struct Stretch {
  uint32_t begin, end;
};

// Where a round's forward pass begins and where its backward pass does.
struct Round {
  uint32_t forward = UINT32_MAX, backward = UINT32_MAX;
};

std::vector<Round> rounds_of(const Program& program) {
  std::vector<Round> rounds;
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const Task& task = program.tasks()[t];
    if (task.round < 0) continue;
    if (size_t(task.round) >= rounds.size()) rounds.resize(size_t(task.round) + 1);
    Round& round = rounds[size_t(task.round)];
    round.forward = std::min(round.forward, t);
    if (task.phase == Phase::Backward) round.backward = std::min(round.backward, t);
  }
  return rounds;
}

// Whether the two may run in any order: neither writes what the other uses.
bool independent(const Program& program, Stretch a, Stretch b) {
  for (int turn = 0; turn < 2; ++turn, std::swap(a, b)) {
    std::unordered_set<uint32_t> written;
    for (uint32_t t = a.begin; t < a.end; ++t) {
      for (const Use& u : program.tasks()[t].uses) {
        if (u.access != Access::Read) written.insert(u.object.value);
      }
    }
    for (uint32_t t = b.begin; t < b.end; ++t) {
      for (const Use& u : program.tasks()[t].uses) {
        if (written.count(u.object.value)) return false;
      }
    }
  }
  return true;
}

// Layer by layer, so that both have done the same part of their time at any moment.
void merge(const Program& program, const TaskCosts& costs, Stretch a, Stretch b, std::vector<TaskId>& out) {
  const auto total = [&](Stretch s) {
    return std::accumulate(costs.ns.begin() + s.begin, costs.ns.begin() + s.end, 1.0);
  };
  const double total_a = total(a), total_b = total(b);
  double done_a = 0, done_b = 0;
  while (a.begin < a.end || b.begin < b.end) {
    const bool first = b.begin == b.end || (a.begin < a.end && done_a / total_a <= done_b / total_b);
    Stretch& s = first ? a : b;
    const int32_t layer = program.tasks()[s.begin].layer;
    while (s.begin < s.end && program.tasks()[s.begin].layer == layer) {
      (first ? done_a : done_b) += costs.ns[s.begin];
      out.push_back(TaskId(s.begin++));
    }
  }
}

}  // namespace

std::vector<TaskId> task_order(const Program& program, const TaskCosts& costs, bool overlap_rounds) {
  const auto n = static_cast<uint32_t>(program.tasks().size());
  const std::vector<Round> rounds = rounds_of(program);
  std::vector<TaskId> out;
  uint32_t next = 0;
  const auto until = [&](uint32_t end) {
    while (next < end) out.push_back(TaskId(next++));
  };
  for (size_t r = 0; overlap_rounds && r + 1 < rounds.size(); ++r) {
    const Round &round = rounds[r], &after = rounds[r + 1];
    if (round.backward == UINT32_MAX || after.backward == UINT32_MAX) break;
    const Stretch backward{round.backward, after.forward}, forward{after.forward, after.backward};
    if (!independent(program, backward, forward)) continue;
    until(backward.begin);
    merge(program, costs, backward, forward, out);
    next = forward.end;
  }
  until(n);
  return out;
}

}  // namespace sluice::core
