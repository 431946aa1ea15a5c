// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of the first heads of every row of y, in place.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "ops/attention.h"

namespace sluice::core::cpu {

// Angles of one token are kept on the stack.
constexpr int64_t kMaxHeadDim = 1024;

// The rotated part: the first heads of every row of y, [rows, columns].
struct Rotated {
  void* y;
  DType dtype;
  int64_t rows, columns, heads, head_dim;
  const int32_t* pos;
  const float* inv_freq;
  float scale, still_scale;  // still_scale 0: `scale`
  Temperature temperature;
};
// REQUIRES: head_dim is at most kMaxHeadDim.
Status rotate(const Rotated& what, const KernelContext& context);

}  // namespace sluice::core::cpu
