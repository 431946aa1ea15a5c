// SPDX-License-Identifier: Apache-2.0
// Plans of programs that run between the steps of another one: in its arenas, on what it leaves there, in the
// room that its plan keeps free at the boundary.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/build.h"
#include "search/planner.h"

namespace sluice::core {

// A program under its plan. Its name says what it is for.
struct Stage {
  BuiltProgram model;
  Plan plan;
  std::string name;
  bool optional = false;  // saves time where there is room for it, and is left out elsewhere
  // The stage beside the main one that it runs beside in turn: on what that one leaves, too, in the room that
  // its plan keeps free. Empty: none.
  std::string inside = {};
};

// Programs on one set of weights, by name: one, and those that run between its steps, in the room that its
// plan keeps free for them.
struct Stages {
  Stage main;
  std::vector<Stage> beside;

  // Finds a program beside the main one by name; null if there is none.
  const Stage* find(std::string_view name) const;
  Stage* find(std::string_view name);
  // REQUIRES: it is there.
  const Stage& at(std::string_view name) const;
  // Arenas large enough for every plan, and the whole memory of a process that runs them.
  BytesByTier arena_bytes() const;
  BytesByTier process_bytes(const Profile& profile) const;
};
// Calls f with every stage, the main one first.
template <class AnyStages, class F>
void for_each_stage(AnyStages& stages, F&& f) {
  f(stages.main);
  for (auto& stage : stages.beside) f(stage);
}
// Every op of every stage, or of a program, once per distinct attributes.
std::vector<SharedOp> all_ops(const Stages& stages);
std::vector<SharedOp> all_ops(const Program& program);

// Bytes that a program needs in each tier when everything that outlives it lies elsewhere. That is a little
// more than the least, so that other residents than assumed still leave a place for everything. Its caches
// are those of the program that it runs beside, or its own, for which there is room then.
enum class Caches : uint8_t { Shared, Own };
Result<BytesByTier> room_beside(const Program& program, const Profile& profile,
                                Caches caches = Caches::Shared);
// With room for a program that runs inside it, on its caches; null: there is none.
Result<BytesByTier> room_with(const Program& program, const Program* inner, const Profile& profile);

// The same for a program whose lasting objects lie where `stepping` has them.
Result<BytesByTier> room_beside(const Program& program, const Stage& stepping, const Profile& profile);

// Plans every program beside the main one, whose plan is there, in that room and what else is free around it
// between steps. Objects that outlive steps are where the main plan has those of the same name. One inside
// another comes behind it. An optional program that this does not hold is left out. References to stages
// beside the main one end. `stop` as PlanRequest's.
Status plan_beside(Stages& stages, const BytesByTier& room, const Profile& profile,
                   const std::stop_token& stop = {});

// Proves that a stage's plan leaves alone what the plans have lying there beside which it runs; `plan_of` has
// them.
Status verify_beside(const Stages& stages, const Stage& stage,
                     const std::function<const Plan&(const Stage&)>& plan_of);

}  // namespace sluice::core
