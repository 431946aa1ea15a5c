// SPDX-License-Identifier: Apache-2.0
// What the files of cases share: types and values that many of them take, and the list that they fill.
#pragma once

#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "conformance/cases.h"

namespace sluice::core::conformance {

inline constexpr auto kF32 = DType::F32;
inline constexpr auto kBf16 = DType::BF16;
inline constexpr std::initializer_list<DType> kDTypes{kF32, kBf16};
inline constexpr float kEps = 1e-5f;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct DTypes {
  DType dtype, grad;
};
inline constexpr std::initializer_list<DTypes> kGradDTypes{{kF32, kF32}, {kBf16, kBf16}, {kBf16, kF32}};

class List {
 public:
  void add(Op op, std::string note = "", Data data = {}) {
    data.seed = cases.size() + 1;
    cases.push_back({std::move(op), std::move(data), std::move(note)});
  }
  std::vector<Case> cases;
};

// cases_update.cpp: what follows a backward pass. Sums of replicas, norms, clipping and updates.
void add_updates(List& list);

// cases_attention.cpp; windows, sinks and soft caps apart, so that the other cases keep their numbers.
void add_attention(List& list);
void add_windows(List& list);
void add_sinks(List& list);
void add_softcaps(List& list);
void add_long_attention(List& list);
void add_wide_heads(List& list);

// cases_experts.cpp
void add_experts(List& list);

}  // namespace sluice::core::conformance
