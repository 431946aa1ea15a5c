// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias: each of a fixed number of blocks sums its rows, then the blocks are added in order.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// Threads of a block: kVec columns each, and rows side by side.
constexpr int kColumns = 32, kRows = 8;

__global__ void __launch_bounds__(kColumns* kRows)
    bias_grad_kernel(const bf16* dy, float* partials, int64_t tokens, int64_t out, int64_t rows) {
  __shared__ float scratch[kRows][kColumns][kVec + 1];
  const int x = threadIdx.x % kColumns, y = threadIdx.x / kColumns;
  const int64_t column = (int64_t{blockIdx.x} * kColumns + x) * kVec;
  const int64_t first = blockIdx.y * rows, end = min(first + rows, tokens);
  float sums[kVec] = {};
  if (column < out) {
#pragma unroll 4
    for (int64_t t = first + y; t < end; t += kRows) {
      float v[kVec];
      load8(dy + t * out + column, v);
      for (int j = 0; j < kVec; ++j) sums[j] += v[j];
    }
  }
  for (int j = 0; j < kVec; ++j) scratch[y][x][j] = sums[j];
  __syncthreads();
  if (y > 0 || column >= out) return;
  for (int i = 1; i < kRows; ++i) {
    for (int j = 0; j < kVec; ++j) sums[j] += scratch[i][x][j];
  }
  store8(partials + blockIdx.y * out + column, sums);
}

}  // namespace

template <class G>
cudaError_t bias_grad(const bf16* dy, G* dbias, void* workspace, int64_t tokens, int64_t out, bool accumulate,
                      cudaStream_t stream) {
  auto* partials = static_cast<float*>(workspace);
  const int64_t blocks = bias_partials(tokens), rows = blocks > 0 ? (tokens + blocks - 1) / blocks : 0;
  const auto status = launch(bias_grad_kernel, dim3(blocks_for(out, kColumns * kVec), unsigned(blocks)),
                             kColumns * kRows, 0, stream, dy, partials, tokens, out, rows);
  if (status != cudaSuccess) return status;
  return sum_partials(partials, dbias, blocks, out, accumulate, stream);
}
template cudaError_t bias_grad(const bf16*, float*, void*, int64_t, int64_t, bool, cudaStream_t);
template cudaError_t bias_grad(const bf16*, bf16*, void*, int64_t, int64_t, bool, cudaStream_t);

}  // namespace sluice::core::cuda
