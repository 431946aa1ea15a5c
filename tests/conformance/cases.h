// SPDX-License-Identifier: Apache-2.0
// The op instances that every backend is tested with.
#pragma once

#include <string>
#include <vector>

#include "conformance/data.h"
#include "ops/op.h"

namespace sluice::core::conformance {

struct Case {
  Op op;
  Data data;
  std::string note;  // what is special about it; part of the name

  // Letters, digits and underscores; different for every case.
  std::string name() const;
};

// Every op: f32 and bf16, overwriting and accumulating, sizes that no vector width or tile divides, and the
// situations an op's contract singles out.
std::vector<Case> all_cases();

// The op that makes what `update` without moments leaves out.
AdamWMoments state_of(const AdamW& update);
SgdMomentumState state_of(const SgdMomentum& update);  // REQUIRES: weight_decay is 0
LionState state_of(const Lion& update);

}  // namespace sluice::core::conformance
