// SPDX-License-Identifier: Apache-2.0
// The second half of a sum over rows: that of the partial sums which a fixed number of blocks made.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kSumColumns = 32, kSumRows = 8;  // threads of a block

template <class G>
__global__ void sum_partials_kernel(const float* partials, G* out, int64_t blocks, int64_t columns,
                                    bool accumulate) {
  __shared__ float partial[kSumRows][kSumColumns];
  const int x = threadIdx.x % kSumColumns, y = threadIdx.x / kSumColumns;
  const int64_t column = int64_t{blockIdx.x} * kSumColumns + x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t block = y; block < blocks; block += kSumRows) sum += partials[block * columns + column];
  }
  partial[y][x] = sum;
  __syncthreads();
  if (y > 0 || column >= columns) return;
  float total = accumulate ? to_float(out[column]) : 0.0f;
  for (int i = 0; i < kSumRows; ++i) total += partial[i][x];
  store_float(out + column, total);
}

// out[c] (+)= the sum of column c of partials[blocks, columns], in an order that the sizes give.
template <class G>
cudaError_t sum_partials(const float* partials, G* out, int64_t blocks, int64_t columns, bool accumulate,
                         cudaStream_t stream) {
  return launch(sum_partials_kernel<G>, dim3(blocks_for(columns, kSumColumns)), kSumColumns * kSumRows, 0,
                stream, partials, out, blocks, columns, accumulate);
}

}  // namespace
}  // namespace sluice::core::cuda
