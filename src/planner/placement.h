// SPDX-License-Identifier: Apache-2.0
// Which device runs which task. The Program does not change, and with it no bit of a result.
//
// A ring deals the layers of a model out to the devices in turn: stages of layers next to each other, in
// several turns around the ring, so that a device's next work arrives while the others are at theirs. What
// belongs to no layer (embedding, head, norms of gradients) stays with the first device, and with it a last
// stage of some layers: together they make its part as long as the others'.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "plan/plan.h"

namespace sluice::core {

struct Placement {
  std::vector<Tier> tasks;  // the device of each; empty: all run on the first one
  size_t devices = 1;
  std::string how;  // in words

  Tier of(TaskId task) const { return tasks.empty() ? kDevice : tasks[task.value]; }
};

struct RingShape {
  int turns = 1;  // around the ring
  int tail = 0;   // layers of the last stage, beside the head
  friend auto operator<=>(const RingShape&, const RingShape&) = default;
};

// By layer the device of a ring. `shares`, by device, say how much of all time is each one's, and sum up to
// 1; the first one has `beside_ns` beside its part of `layer_ns`. Stages of a device are about alike.
// REQUIRES: shape.tail <= layers.
std::vector<size_t> ring_of(std::span<const double> layer_ns, double beside_ns,
                            std::span<const double> shares, const RingShape& shape);

// The ring as a placement of a program's tasks.
Placement ring(const Program& program, const TaskCosts& costs, std::span<const double> shares,
               const RingShape& shape);
// The rings worth trying: turns up to where a stage is one layer, tails up to a device's part.
std::vector<RingShape> ring_shapes(const Program& program, size_t devices);

// For a program that runs beside another plan: each task where the objects of its layer that have a place on
// a device lie; what has none runs on the first.
Placement placed_at(const Program& program, std::span<const Home> homes, size_t devices);

// Layers, or their parts, anywhere. For tests: results must not depend on it.
Placement random_placement(const Program& program, size_t devices, uint64_t seed);

}  // namespace sluice::core
