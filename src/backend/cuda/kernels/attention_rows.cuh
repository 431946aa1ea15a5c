// SPDX-License-Identifier: Apache-2.0
// Rows of attention's results.
#pragma once

#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

// The place of (row, head, i) in lse, for the token row * q_len + i.
__device__ inline int64_t lse_index(int64_t token, int64_t head, int64_t heads, int64_t q_len) {
  return (token / q_len * heads + head) * q_len + token % q_len;
}

// A lane's part of the sum of a * b; a warp's lanes have all of it.
template <class T>
__device__ inline float dot_of_lane(int lane, const T* a, const T* b, int64_t base, int count) {
  float sum = 0;
  for (int i = lane * kVec; i < count; i += kWarp * kVec) {
    float x[kVec], y[kVec];
    load8(a + base + i, x);
    load8(b + base + i, y);
    for (int j = 0; j < kVec; ++j) sum += x[j] * y[j];
  }
  return sum;
}

}  // namespace sluice::core::cuda
