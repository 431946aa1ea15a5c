// SPDX-License-Identifier: Apache-2.0
// Recomputation: which activations could be dropped, and at what price.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "search/passes/activation_lives.h"

namespace sluice::core {
namespace {

// Whether a task that writes a copy with scales writes another that crosses into the backward pass, too. That
// is a unit of its own, which counts the task.
bool comes_with_another(const Program& program, const ActivationLives& lives, uint32_t o) {
  if (program.objects()[o].format.block == 0) return false;
  return std::ranges::any_of(lives.writers[o], [&](uint32_t t) {
    return std::ranges::any_of(program.tasks()[t].uses, [&](const Use& u) {
      return u.access != Access::Read && lives.crosses[u.object.value];
    });
  });
}

// Tasks to run again to have object `o` back when everything that crosses into the backward pass is kept, but
// `o`.
void closure(const Program& program, const ActivationLives& lives, uint32_t o, std::set<uint32_t>& tasks) {
  for (const uint32_t t : lives.writers[o]) {
    if (!tasks.insert(t).second) continue;
    for (const Use& u : program.tasks()[t].uses) {
      const uint32_t used = u.object.value;
      if (used != o && lives.temporary[used] && !comes_with_another(program, lives, used))
        closure(program, lives, used, tasks);
    }
  }
}

// By task, what it makes for the whole step.
std::vector<RecomputeUnit> units_of_step(const Program& program, const TaskCosts& costs,
                                         const ActivationLives& lives) {
  std::map<uint32_t, RecomputeUnit> units;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    if (!lives.of_step[o]) continue;
    const uint32_t task = lives.writers[o].back();
    RecomputeUnit& unit = units[task];
    unit.objects.emplace_back(o);
    unit.ns = costs.ns[task];
    unit.bytes += program.objects()[o].bytes;
    unit.of_step = true;
  }
  std::vector<RecomputeUnit> out;
  for (auto& [task, unit] : units) out.push_back(std::move(unit));
  return out;
}

}  // namespace

std::vector<uint32_t> last_writers_that_can_run_again(const Program& program, const Placement& placement) {
  const ActivationLives lives = lives_of_activations(program, placement);
  std::vector<uint32_t> out(program.objects().size(), UINT32_MAX);
  for (size_t o = 0; o < out.size(); ++o) {
    if (lives.crosses[o] || lives.temporary[o] || lives.of_step[o]) out[o] = lives.writers[o].back();
  }
  return out;
}

std::vector<RecomputeUnit> recompute_units(const Program& program, const TaskCosts& costs,
                                           const Placement& placement) {
  const ActivationLives lives = lives_of_activations(program, placement);
  const auto objects = static_cast<uint32_t>(program.objects().size());
  std::vector<std::set<uint32_t>> tasks(objects);
  std::vector<uint32_t> first(objects);  // the first object of its unit, so far
  std::iota(first.begin(), first.end(), 0u);
  const auto unit_of = [&](uint32_t o) {
    while (first[o] != o) o = first[o];
    return o;
  };
  // Outputs of the same tasks come back together.
  const auto droppable = [&](uint32_t o) {
    return lives.crosses[o] && program.objects()[o].stream != Stream::Between &&
           program.objects()[o].layer >= 0;
  };
  for (uint32_t o = 0; o < objects; ++o) {
    if (!droppable(o)) continue;
    closure(program, lives, o, tasks[o]);
    for (const uint32_t t : tasks[o]) {
      for (const Use& u : program.tasks()[t].uses) {
        if (u.access == Access::Read || !droppable(u.object.value)) continue;
        const uint32_t one = unit_of(o), other = unit_of(u.object.value);
        first[std::max(one, other)] = std::min(one, other);
      }
    }
  }
  std::map<uint32_t, std::pair<RecomputeUnit, std::set<uint32_t>>> units;
  for (uint32_t o = 0; o < objects; ++o) {
    if (!droppable(o)) continue;
    auto& [unit, again] = units[unit_of(o)];
    unit.objects.push_back(ObjectId(o));
    unit.bytes += program.objects()[o].bytes;
    again.insert(tasks[o].begin(), tasks[o].end());
  }
  std::vector<RecomputeUnit> out;
  for (auto& [o, entry] : units) {
    for (const uint32_t t : entry.second) entry.first.ns += costs.ns[t];
    out.push_back(std::move(entry.first));
  }
  std::ranges::move(units_of_step(program, costs, lives), std::back_inserter(out));
  return out;
}

}  // namespace sluice::core
