// SPDX-License-Identifier: Apache-2.0
// Which device runs which task. The Program does not change, and with it no bit of a result.
//
// A ring deals the layers of a model out to the devices in turn, as stages of layers next to each other.
// There are several turns around the ring, so that a device's next work arrives while the others are at
// theirs. What belongs to no layer (embedding, head, norms of gradients) stays with the first device, which
// has fewer layers for it. Where parts end within a layer, it is cut between two of its pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "plan/plan.h"
#include "search/pieces.h"

namespace sluice::core {

// How long the stages of a ring are.
struct RingLayout {
  // All are alike, of so many layers, but the others' last ones, which are longer: those are at work while
  // the first device is at the head. Where little is in memory at once.
  int stage_layers = 0;
  // Or so many turns, in each of which every device gets the same part of its layers. Where rounds overlap,
  // and the head of one is beside the first layers of the next.
  int turns = 0;
  // Evens out by rounds where pieces are too large: some at ends of stages are one device's in the first
  // rounds, and its neighbour's in the others.
  bool by_rounds = false;

  bool operator==(const RingLayout&) const = default;
};

// Which of the tasks that can begin a device runs first.
enum class RingRule : uint8_t {
  Stages,        // the backward pass first, then stage by stage
  Chunks,        // the backward pass first, then chunk by chunk
  ForwardFirst,  // the forward pass first, then stage by stage
  AsOne,         // what one device would run first, which keeps links evenly at work
};
constexpr RingRule kRingRules[] = {RingRule::Stages, RingRule::Chunks, RingRule::ForwardFirst,
                                   RingRule::AsOne};

struct Placement {
  std::vector<Tier> tasks;  // the device of each; empty: all run on the first one
  size_t devices = 1;
  std::string how;  // in words
  RingRule rule = RingRule::Stages;
  // Where rounds overlap, how many chunks are under way at most; 0: as many as two rounds have.
  int32_t chunks_at_once = 0;

  Tier of(TaskId task) const { return tasks.empty() ? kDevice : tasks[task.value]; }
};

// By piece the device of a ring. `shares`, by device, say how much of all time is each one's, and sum up to
// 1; the first one has `beside_ns` beside its part of `piece_ns`. REQUIRES: layer_of_piece does not decrease.
std::vector<size_t> ring_of(std::span<const double> piece_ns, std::span<const int32_t> layer_of_piece,
                            double beside_ns, std::span<const double> shares, const RingLayout& layout);

// The ring as a placement of the tasks of `program`, whose pieces and costs are given.
Placement ring(const Program& program, const Pieces& pieces, const TaskCosts& costs,
               std::span<const double> shares, const RingLayout& layout);
// Those worth trying.
std::vector<RingLayout> ring_layouts(const Program& program, const Pieces& pieces, size_t devices);

// For a program that runs beside another plan, with the homes of its objects there. Each task runs where what
// it uses of its layer has a place on a device. One that uses nothing of the kind runs where the task before
// it runs.
Placement placed_at(const Program& program, std::span<const Home> homes, size_t devices);

// Layers, or their parts, anywhere. For tests: results must not depend on it.
Placement random_placement(const Program& program, size_t devices, uint64_t seed);

}  // namespace sluice::core
