// SPDX-License-Identifier: Apache-2.0
#include "search/few_rounds.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cost/profile.h"

namespace sluice::core {
namespace {

// So many of the alike rounds stay. The first one follows a round that differs, the last one has none after
// it, and two between them measure each further one. All stay where that saves less than a quarter.
constexpr int32_t kStay = 4;
// In a ring so many chunks of each device are under way until rounds end at an even pace.
constexpr int32_t kChunksOfDevice = 4;
constexpr double kWorthIt = 1.3;

class Rounds {
 public:
  Rounds(const Program& program, const TaskCosts& costs) : program_(program), costs_(costs) {
    for (uint32_t t = 0; t < program.tasks().size(); ++t) {
      const int32_t round = program.tasks()[t].round;
      if (round < 0) continue;
      if (size_t(round) >= tasks_.size()) tasks_.resize(size_t(round) + 1);
      tasks_[size_t(round)].push_back(t);
    }
  }

  // How many chunks a round has.
  int32_t chunks(int32_t round) const {
    int32_t most = 0;
    for (const uint32_t t : tasks_[size_t(round)]) most = std::max(most, program_.tasks()[t].chunk);
    return most + 1;
  }

  // The longest stretch of rounds that are alike: [first, end).
  std::pair<int32_t, int32_t> most_alike() const {
    std::pair<int32_t, int32_t> best{0, 0};
    for (int32_t first = 0, end = 1; end <= count(); ++end) {
      if (end < count() && alike(end - 1, end)) continue;
      if (end - first > best.second - best.first) best = {first, end};
      first = end;
    }
    return best;
  }

 private:
  int32_t count() const { return int32_t(tasks_.size()); }

  bool alike(int32_t one, int32_t other) const {
    const auto &a = tasks_[size_t(one)], &b = tasks_[size_t(other)];
    if (a.empty() || a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!alike_tasks(a[i], b[i])) return false;
    }
    return true;
  }
  bool alike_tasks(uint32_t one, uint32_t other) const {
    const Task &a = program_.tasks()[one], &b = program_.tasks()[other];
    if (a.phase != b.phase || a.layer != b.layer || a.chunk != b.chunk) return false;
    if (costs_.ns[one] != costs_.ns[other] || costs_.workspace_bytes[one] != costs_.workspace_bytes[other])
      return false;
    const auto alike_uses = [&](const Use& x, const Use& y) {
      if (x.access != y.access || x.offset != y.offset || x.bytes != y.bytes) return false;
      if (x.object == y.object) return program_.object(x.object).round < 0;
      const Object &o = program_.object(x.object), &p = program_.object(y.object);
      return o.round == a.round && p.round == b.round && o.role == p.role && o.kind == p.kind &&
             o.bytes == p.bytes && o.layer == p.layer && o.chunk == p.chunk;
    };
    return std::ranges::equal(a.uses, b.uses, alike_uses);
  }

  const Program& program_;
  const TaskCosts& costs_;
  std::vector<std::vector<uint32_t>> tasks_;  // by round
};

// `tasks` become those that stay.
Program without(const Program& program, int32_t first, int32_t end, std::vector<TaskId>& tasks) {
  Program out;
  out.facts = program.facts;
  const auto stays = [&](int32_t round) { return round < first || round >= end; };
  const auto renumbered = [&](int32_t round) { return round < end ? round : round - (end - first); };
  std::vector<ObjectId> now(program.objects().size());
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    Object object = program.objects()[o];
    if (!stays(object.round)) continue;
    object.round = renumbered(object.round);
    now[o] = out.add(std::move(object));
  }
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const Task& task = program.tasks()[t];
    if (!stays(task.round)) continue;
    tasks.push_back(TaskId(t));
    Task copy = task;
    copy.round = renumbered(task.round);
    for (Use& u : copy.uses) u.object = now[u.object.value];
    out.add(std::move(copy));
  }
  return out;
}

// When the tasks of a round have all run.
double end_of(const Program& program, const Plan& plan, int32_t round) {
  double end_ns = 0;
  for (const Action& a : plan.actions) {
    if (a.kind == ActionKind::Run && program.task(a.task).round == round) end_ns = std::max(end_ns, a.end_ns);
  }
  return end_ns;
}

}  // namespace

std::optional<FewRounds> few_rounds(const Program& program, const TaskCosts& costs, size_t devices) {
  const Rounds rounds(program, costs);
  const auto [first, end] = rounds.most_alike();
  if (first == end) return std::nullopt;
  const int32_t chunks = rounds.chunks(first), fill = devices > 1 ? kChunksOfDevice * int32_t(devices) : 0;
  // Work done once beside the last round, like sums over gradients, stays beside it.
  const int32_t stay = std::max(kStay, (fill + chunks - 1) / chunks);
  const int32_t stay_until = first + stay - 1, last = end - 1;
  if (last <= stay_until) return std::nullopt;
  double ns = 0;
  int64_t tasks = 0;
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const int32_t round = program.tasks()[t].round;
    if (round >= stay_until && round < last) ns += costs.ns[t], ++tasks;
  }
  FewRounds out{{}, {last - stay_until, tasks, ns, first, stay_until - 1}, {}};
  out.program = without(program, stay_until, last, out.tasks);
  if (double(program.tasks().size()) < kWorthIt * double(out.program.tasks().size())) return std::nullopt;
  return out;
}

double whole_step_ns(const Program& program, const Plan& plan, const LeftOut& left_out) {
  if (left_out.rounds == 0) return plan.makespan_ns;
  const double ns = end_of(program, plan, left_out.last) - end_of(program, plan, left_out.first);
  return plan.makespan_ns + double(left_out.rounds) * ns / double(left_out.last - left_out.first);
}

int64_t runs_in_whole_step(const Program& program, const Plan& plan, const LeftOut& left_out) {
  int64_t runs = 0, of_rounds = 0;
  for (const Action& a : plan.actions) {
    if (a.kind != ActionKind::Run) continue;
    const int32_t round = program.task(a.task).round;
    ++runs;
    of_rounds += left_out.rounds > 0 && round > left_out.first && round <= left_out.last;
  }
  return left_out.rounds == 0 ? runs : runs + left_out.rounds * of_rounds / (left_out.last - left_out.first);
}

}  // namespace sluice::core
