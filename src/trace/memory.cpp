// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "trace/trace.h"

namespace sluice::core {
namespace {

// Content of a byte range from its first access to its last.
struct Life {
  int64_t end_offset;
  size_t kind;
  int64_t bytes;
  double begin_ns, end_ns;
};

class ArenaLives {
 public:
  void touch(int64_t offset, int64_t bytes, size_t kind, bool fresh, const Interval& when) {
    auto it = lives_.find(offset);
    if (!fresh && it != lives_.end() && it->second.bytes == bytes) {
      it->second.end_ns = std::max(it->second.end_ns, when.end_ns);
      return;
    }
    auto next = lives_.lower_bound(offset);
    if (next != lives_.begin() && std::prev(next)->second.end_offset > offset) --next;
    while (next != lives_.end() && next->first < offset + bytes) {
      Life& old = next->second;
      // A value that was to stay until the end of the step gives way here.
      old.end_ns = std::clamp(when.start_ns, std::min(old.begin_ns, old.end_ns), old.end_ns);
      ended_.push_back(old);
      next = lives_.erase(next);
    }
    lives_[offset] = {offset + bytes, kind, bytes, when.start_ns, when.end_ns};
  }
  // Content that is there all the time, at least until something else takes its place.
  void resident(int64_t offset, int64_t bytes, size_t kind, double end_ns) {
    touch(offset, bytes, kind, true, {0, end_ns});
  }

  // A value at a home when the step ends stays there.
  void stays(int64_t offset, int64_t bytes, double end_ns) {
    const auto it = lives_.find(offset);
    if (it != lives_.end() && it->second.bytes == bytes) it->second.end_ns = end_ns;
  }

  std::vector<MemoryPoint> history() {
    for (const auto& [offset, life] : lives_) ended_.push_back(life);
    std::vector<std::tuple<double, size_t, int64_t>> changes;
    for (const Life& l : ended_) {
      changes.emplace_back(l.begin_ns, l.kind, l.bytes);
      changes.emplace_back(l.end_ns, l.kind, -l.bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::vector<MemoryPoint> out;
    MemoryPoint now{0, {}};
    for (const auto& [ns, kind, bytes] : changes) {
      now.bytes[kind] += bytes;
      now.ns = ns;
      if (!out.empty() && out.back().ns == ns) {
        out.back() = now;
      } else {
        out.push_back(now);
      }
    }
    return out;
  }

 private:
  std::map<int64_t, Life> lives_;
  std::vector<Life> ended_;
};

}  // namespace

int64_t MemoryPoint::total() const {
  int64_t sum = 0;
  for (const int64_t b : bytes) sum += b;
  return sum;
}

MemoryHistory memory_history(const Program& program, const Plan& plan, std::span<const Interval> timeline) {
  ByTier<ArenaLives> arenas;
  double end_ns = 0;
  for (const Interval& t : timeline) end_ns = std::max(end_ns, t.end_ns);
  const auto kind_of = [&](ObjectId id) { return static_cast<size_t>(program.object(id).kind); };
  for (uint32_t o = 0; o < plan.homes.size(); ++o) {
    for (const auto& [tier, offset] : plan.homes[o].places())
      arenas[tier].resident(offset, program.objects()[o].bytes, kind_of(ObjectId(o)), end_ns);
  }
  for (size_t id = 0; id < plan.actions.size(); ++id) {
    const Action& a = plan.actions[id];
    const Interval& when = timeline[id];
    if (a.kind == ActionKind::Copy) {
      const int64_t bytes = program.object(a.object).bytes;
      arenas[a.from.tier].touch(a.from.offset, bytes, kind_of(a.object), false, when);
      arenas[a.to.tier].touch(a.to.offset, bytes, kind_of(a.object), true, when);
      continue;
    }
    ArenaLives& device = arenas[plan.device_of(a)];
    const Task& task = program.task(a.task);
    for (size_t i = 0; i < task.uses.size(); ++i) {
      const Use& u = task.uses[i];
      device.touch(plan.addresses_of(a)[i], program.object(u.object).bytes, kind_of(u.object),
                   u.access == Access::Write, when);
    }
    if (a.bytes > 0) device.touch(a.workspace_offset, a.bytes, kObjectKinds, true, when);
  }
  for (uint32_t o = 0; o < plan.homes.size(); ++o) {
    for (const auto& [tier, offset] : plan.homes[o].places())
      arenas[tier].stays(offset, program.objects()[o].bytes, end_ns);
  }
  MemoryHistory out;
  for (const Tier tier : plan.lanes.tiers()) out[tier] = arenas[tier].history();
  return out;
}

}  // namespace sluice::core
