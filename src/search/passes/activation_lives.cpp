// SPDX-License-Identifier: Apache-2.0
#include "search/passes/activation_lives.h"

#include <algorithm>

namespace sluice::core {
namespace {

bool recomputable(const Program& program, const Task& task) {
  return std::all_of(task.uses.begin(), task.uses.end(), [&](const Use& u) {
    return u.access == Access::Read || program.object(u.object).kind == ObjectKind::Activation;
  });
}

// Bytes of what tasks make an object of, if all of that outlives the step; kUnlimited otherwise. Tasks that
// make it once for the whole step may write more; those of a round bring back alone what they write alone.
int64_t bytes_made_of(const Program& program, const std::vector<uint32_t>& writers, uint32_t object) {
  const bool once = program.objects()[object].round < 0;
  int64_t bytes = 0;
  for (const uint32_t t : writers) {
    for (const Use& u : program.tasks()[t].uses) {
      if (u.object.value == object || (u.access == Access::Write && once)) continue;
      if (!program.object(u.object).persistent) return kUnlimited;
      bytes += u.bytes;
    }
  }
  return bytes;
}

// A source that is larger than this many times what is made of it is not moved in its place.
constexpr int64_t kMuchLarger = 4;

}  // namespace

std::vector<bool> shared_objects(const Program& program, const Placement& placement) {
  constexpr size_t kNobody = SIZE_MAX;
  std::vector<size_t> user(program.objects().size(), kNobody);
  std::vector<bool> shared(user.size(), false);
  for (uint32_t t = 0; placement.devices > 1 && t < program.tasks().size(); ++t) {
    const size_t device = placement.of(TaskId(t)).index();
    for (const Use& u : program.tasks()[t].uses) {
      size_t& first = user[u.object.value];
      if (first == kNobody) first = device;
      if (first != device) shared[u.object.value] = true;
    }
  }
  return shared;
}

ActivationLives lives_of_activations(const Program& program, const Placement& placement) {
  const size_t n = program.objects().size();
  ActivationLives lives{std::vector<std::vector<uint32_t>>(n), std::vector<bool>(n, false),
                        std::vector<bool>(n, false), std::vector<bool>(n, false),
                        std::vector<uint32_t>(n, 0)};
  std::vector<uint32_t> seen;
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const Task& task = program.tasks()[t];
    seen.clear();
    for (const Use& u : task.uses) {
      const uint32_t o = u.object.value;
      if (program.object(u.object).kind != ObjectKind::Activation) continue;
      if (u.access != Access::Read) lives.writers[o].push_back(t);
      if (task.phase == Phase::Backward) lives.crosses[o] = true;
      if (task.phase != Phase::Forward || std::find(seen.begin(), seen.end(), o) != seen.end()) continue;
      ++lives.forward_uses[o];
      seen.push_back(o);
    }
  }
  const std::vector<bool> shared = shared_objects(program, placement);
  for (size_t o = 0; o < n; ++o) {
    const auto& writers = lives.writers[o];
    const bool again = !shared[o] && !writers.empty() &&
                       std::all_of(writers.begin(), writers.end(),
                                   [&](uint32_t t) { return recomputable(program, program.tasks()[t]); });
    // To make it again of less moves less than to move it, and holds less than to keep it.
    const int64_t bytes = program.objects()[o].bytes;
    const int64_t from = again ? bytes_made_of(program, writers, uint32_t(o)) : 0;
    // Copies that are kept for the whole step have scales; indices that are made once for it are small.
    const Object& object = program.objects()[o];
    const bool of_step =
        again && object.round < 0 && object.format.block > 0 && from >= bytes && from <= kMuchLarger * bytes;
    const bool crosses = again && lives.crosses[o] && from >= bytes && !of_step;
    // A task that makes something for several devices, too, runs once.
    lives.of_step[o] = of_step && std::ranges::none_of(writers, [&](uint32_t t) {
                         return std::ranges::any_of(program.tasks()[t].uses, [&](const Use& u) {
                           return u.access != Access::Read && shared[u.object.value];
                         });
                       });
    lives.temporary[o] = again && !crosses && !of_step;
    lives.crosses[o] = crosses;
  }
  return lives;
}

}  // namespace sluice::core
