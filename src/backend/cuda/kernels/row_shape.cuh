// SPDX-License-Identifier: Apache-2.0
// How rows of norms are divided among the threads of a block, which hold them in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

constexpr int kMaxRowThreads = 512;

// Calls f with the number of vectors per thread as a constant, and the threads of a block.
template <class F>
cudaError_t with_row_shape(int64_t dim, F f) {
  const int64_t vectors = dim / kVec;
  if (vectors <= 256) return f(std::integral_constant<int, 1>{}, threads_for(vectors, 256));
  if (vectors <= 512) return f(std::integral_constant<int, 2>{}, threads_for((vectors + 1) / 2, 256));
  return f(std::integral_constant<int, 4>{}, threads_for((vectors + 3) / 4, kMaxRowThreads));
}

}  // namespace sluice::core::cuda
