// SPDX-License-Identifier: Apache-2.0
// Dropout of what an adapter reads. Which values stay depends on the seed, the step and the place of a token
// among those of the step, and on nothing of how a step is cut.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y[t, i] (+)= x[t, i] / (1 - rate) where the value stays, else 0. It is its own gradient.
struct Dropout {
  static constexpr std::string_view kName = "dropout";
  enum { kX, kArgs, kY };
  int64_t tokens, width;
  DType dtype;
  float rate = 0;
  int64_t first = 0;    // of the tokens, among those of this process's step
  int64_t seq_len = 0;  // tokens of a row
  uint64_t target = 0;  // of which product it is
  bool accumulate = false;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("width", width), f("dtype", dtype), f("rate", rate, kNoCost);
    f("first", first, kNoCost), f("seq_len", seq_len, kNoCost), f("target", target, kNoCost);
    f("acc", accumulate);
  }
};

}  // namespace sluice::core
