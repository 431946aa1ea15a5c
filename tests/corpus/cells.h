// SPDX-License-Identifier: Apache-2.0
// What the corpus plans: programs on machines, each under several caps.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "lowering/build.h"

namespace sluice::core::corpus {

struct Caps {
  int64_t device_bytes, host_bytes;  // of the arenas; kUnlimited: none
};

// One program on one machine under some caps.
struct Group {
  // Together they say everything about the program: "8Bx2", "4096 of 4096x1x2", "deferred", "h200".
  std::string model, shape, updates, machine;
  ModelSpec config;
  StepShape step;
  Numerics numerics;
  OptimizerConfig optimizer;
  std::vector<Caps> caps;

  std::string name() const { return model + " " + shape + " " + updates + " " + machine; }
  friend void PrintTo(const Group& group, std::ostream* out) { *out << group.name(); }
};

// Overheads beside the arenas are left out, so that a cap means the same on every machine.
Profile profile_of(const Group& group);

// With `whole_models` the full-size models instead of those of few layers: minutes of planning.
std::vector<Group> groups(bool whole_models);

}  // namespace sluice::core::corpus
