// SPDX-License-Identifier: Apache-2.0
// What is asked of planning, as one value: what is computed, under which caps, and how hard to search. What
// ops and copies take on the machine comes beside it, as a Profile. The answer is another value: the plans of
// Stages (setup/stages.h), which Prepared (setup/prepared.h) keeps with the run that they are for.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "lowering/build.h"
#include "search/shape.h"

namespace sluice::core {

// A program that is wanted between steps.
struct Wanted {
  std::string_view name;  // of setup/stages.h
  int64_t window = 0;     // tokens that a sampled text looks back at most
  int64_t rows = 1;       // texts that are sampled at once
};

// A step, by all that it computes.
struct StepSpec {
  ModelSpec model;
  Numerics numerics;
  OptimizerConfig optimizer;
  LossForm loss;
  Cut cut;
  std::vector<Wanted> between = {};

  // Null: it is not wanted.
  const Wanted* wants(std::string_view name) const {
    const auto it = std::ranges::find(between, name, &Wanted::name);
    return it == between.end() ? nullptr : &*it;
  }
};

// Copies of the model that share the rows of a step.
struct Replicas {
  int64_t here = 1;  // of each process
  int64_t processes = 1;

  int64_t all() const { return here * processes; }
};

struct Question : StepSpec, Effort {
  StepShape shape;  // that `cut` came to, for whoever asks for plans
  BytesByTier caps = BytesByTier(kUnlimited);
  BytesByTier held_bytes;  // Machine::held_bytes: kept plans made beside less than that are no answer
  Replicas replicas;
};

}  // namespace sluice::core
