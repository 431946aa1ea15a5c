// SPDX-License-Identifier: Apache-2.0
// Which device runs which task. The Program does not change, and with it no bit of a result.
//
// A ring deals the layers of a model out to the devices in turn: stages of layers next to each other, in
// several turns around the ring, so that a device's next work arrives while the others are at theirs. What
// belongs to no layer (embedding, head, norms of gradients) stays with the first device, which has fewer
// layers for it. All stages are alike but the others' last ones, which are longer: those are at work while
// the first device is at the head.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "plan/plan.h"

namespace sluice::core {

// Which of the tasks that can begin a device runs first.
enum class RingRule : uint8_t {
  Stages,        // the backward pass first, then stage by stage
  Chunks,        // the backward pass first, then chunk by chunk
  ForwardFirst,  // the forward pass first, then stage by stage
  LongestPath,   // what most depends on
  AsOne,         // what one device would run first, which keeps links evenly at work
};
constexpr RingRule kRingRules[] = {RingRule::Stages, RingRule::Chunks, RingRule::ForwardFirst,
                                   RingRule::LongestPath, RingRule::AsOne};

struct Placement {
  std::vector<Tier> tasks;  // the device of each; empty: all run on the first one
  size_t devices = 1;
  std::string how;  // in words
  RingRule rule = RingRule::Stages;

  Tier of(TaskId task) const { return tasks.empty() ? kDevice : tasks[task.value]; }
};

// By layer the device of a ring whose stages have `stage_layers` layers. `shares`, by device, say how much of
// all time is each one's, and sum up to 1; the first one has `beside_ns` beside its part of `layer_ns`.
// REQUIRES: stage_layers > 0.
std::vector<size_t> ring_of(std::span<const double> layer_ns, double beside_ns,
                            std::span<const double> shares, int stage_layers);

// The ring as a placement of a program's tasks.
Placement ring(const Program& program, const TaskCosts& costs, std::span<const double> shares,
               int stage_layers);
// Layers of a stage of the rings worth trying: from one to a device's part.
std::vector<int> ring_stages(const Program& program, size_t devices);

// For a program that runs beside another plan: each task where the objects of its layer that have a place on
// a device lie; what has none runs on the first.
Placement placed_at(const Program& program, std::span<const Home> homes, size_t devices);

// Layers, or their parts, anywhere. For tests: results must not depend on it.
Placement random_placement(const Program& program, size_t devices, uint64_t seed);

}  // namespace sluice::core
