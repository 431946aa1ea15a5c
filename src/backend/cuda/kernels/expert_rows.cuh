// SPDX-License-Identifier: Apache-2.0
// Rows of experts' products (ops/experts.h): in place, or those of the tokens of choices.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

// Rows of a matrix of `columns`, which are in place or those of the tokens of choices.
struct RowSource {
  const bf16* data;
  const int32_t* choice;  // null: they are in place
  int64_t columns;
  uint32_t reciprocal;  // 2^32 / top_k, rounded up; 0: top_k is 1

  __device__ int32_t token_of(int32_t of_choice) const {
    return reciprocal == 0 ? of_choice : int32_t(__umulhi(uint32_t(of_choice), reciprocal));
  }
  __device__ const bf16* row(int64_t i) const {
    return data + (choice == nullptr ? i : int64_t{token_of(choice[i])}) * columns;
  }
};

constexpr uint32_t reciprocal_of(int64_t top_k) {
  return top_k == 1 ? 0 : uint32_t(((int64_t{1} << 32) + top_k - 1) / top_k);
}

}  // namespace sluice::core::cuda
