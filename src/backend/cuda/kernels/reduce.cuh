// SPDX-License-Identifier: Apache-2.0
// Sums over a warp and over a block, in an order that depends on the block's size only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sluice::core::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;

template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}

// Every thread receives the sum. `scratch` holds kMaxWarps elements of shared memory and may be used again
// after the next barrier. blockDim.x is a multiple of the warp.
template <class T>
__device__ inline T block_sum(T x, T* scratch) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? scratch[lane] : T(0));
}

}  // namespace sluice::core::cuda
