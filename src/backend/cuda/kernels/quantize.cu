// SPDX-License-Identifier: Apache-2.0
// Matrices in 8 bits, by row and by column (ops/cast.h). By row alone, one pass holds a row in shared memory.
// By column, one pass finds the largest magnitudes, which no order changes, and one rounds.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/quantize.cuh"

namespace sluice::core::cuda {
namespace {

// Rows only where `of_rows` is there.
__global__ void __launch_bounds__(kTileThreads)
    maxima_kernel(const bf16* x, int64_t stride, uint32_t* of_rows, uint32_t* of_cols, int64_t rows,
                  int64_t cols) {
  __shared__ ColumnScratch scratch;
  const TilePlace at(blockIdx.y, blockIdx.x);
  Eight values[kTurns][kRowsOfThread], of_col = {};
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
    load_rows(x, at.row + turn * kRowsAtOnce, at.col, rows, cols, stride, values[turn]);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    uint32_t most[kRowsOfThread];
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      most_of(of_col, values[turn][k]);
      most[k] = most_of(values[turn][k]);
    }
    if (of_rows != nullptr) add_row_maxima(most, at.lane, at.row + turn * kRowsAtOnce, rows, of_rows);
  }
  add_column_maxima(of_col, at.lane, blockIdx.x, cols, scratch, of_cols);
}

// Rows of x as they are.
struct Rows {
  const bf16* x;
  int64_t stride;

  __device__ Eight operator()(int64_t row, int64_t col) const { return Eight::load(x + row * stride + col); }
};
struct Same {
  __device__ void begin(int64_t) {}
  __device__ Eight operator()(const Eight& x, int64_t) const { return x; }
};

template <class F8>
cudaError_t quantize_as(const bf16* x, int64_t stride, uint8_t* y, uint8_t* turned, void* workspace,
                        int64_t rows, int64_t cols, cudaStream_t stream) {
  if (turned == nullptr) return quantize_rows<F8>(Rows{x, stride}, y, rows, cols, stream);
  auto* of_rows = static_cast<uint32_t*>(workspace);
  uint32_t* const of_cols = of_rows + rows;
  const dim3 grid(blocks_for(cols, kTile), blocks_for(rows, kTile));
  if (const auto status = cudaMemsetAsync(of_rows, 0, size_t(rows + cols) * sizeof(uint32_t), stream);
      status != cudaSuccess)
    return status;
  if (const auto status = launch(maxima_kernel, grid, kTileThreads, 0, stream, x, stride,
                                 y == nullptr ? nullptr : of_rows, of_cols, rows, cols);
      status != cudaSuccess)
    return status;
  return quantize_tiles<F8>(Same{}, x, stride, of_rows, of_cols, y, turned, rows, cols, stream);
}

}  // namespace

cudaError_t quantize(bool e5m2, const bf16* x, int64_t stride, uint8_t* y, uint8_t* turned, void* workspace,
                     int64_t rows, int64_t cols, cudaStream_t stream) {
  return e5m2 ? quantize_as<E5m2>(x, stride, y, turned, workspace, rows, cols, stream)
              : quantize_as<E4m3>(x, stride, y, turned, workspace, rows, cols, stream);
}

}  // namespace sluice::core::cuda
