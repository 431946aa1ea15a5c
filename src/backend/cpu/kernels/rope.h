// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of the first heads of every row of y, in place.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace sluice::core::cpu {

// Angles of one token are kept on the stack.
constexpr int64_t kMaxHeadDim = 1024;

// Rotates as the Linear op asks for. REQUIRES: op.head_dim <= kMaxHeadDim
void apply_rope(const Linear& op, const Args& args, const Machine& machine);

}  // namespace sluice::core::cpu
