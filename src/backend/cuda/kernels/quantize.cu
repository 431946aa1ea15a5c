// SPDX-License-Identifier: Apache-2.0
// Matrices in 8 bits, by row and by column (ops/cast.h). By row alone, one pass holds a row in shared memory.
// By column, one pass finds the largest magnitudes, which no order changes, and one rounds.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/quantize.cuh"

namespace sluice::core::cuda {
namespace {

// A thread's part of a tile; what lies outside of x is 0.
__device__ inline void load_rows(const bf16* x, int64_t row, int64_t col, int64_t rows, int64_t cols,
                                 Eight (&to)[kRowsOfThread]) {
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k) {
    to[k] = {};
    if (row + k < rows && col < cols) to[k] = Eight::load(x + (row + k) * cols + col);
  }
}

// Rows only where `of_rows` is there.
__global__ void __launch_bounds__(kTileThreads)
    maxima_kernel(const bf16* x, uint32_t* of_rows, uint32_t* of_cols, int64_t rows, int64_t cols) {
  __shared__ ColumnScratch scratch;
  const TilePlace at(blockIdx.y, blockIdx.x);
  Eight values[kTurns][kRowsOfThread], of_col = {};
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
    load_rows(x, at.row + turn * kRowsAtOnce, at.col, rows, cols, values[turn]);
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

// A null y is left out. Blocks go backwards: what the maxima were looked for in last may still be cached.
__global__ void __launch_bounds__(kTileThreads)
    quantize_kernel(const bf16* x, const uint32_t* of_rows, const uint32_t* of_cols, uint8_t* y,
                    float* y_scales, uint8_t* turned, float* turned_scales, int64_t rows, int64_t cols) {
  __shared__ __align__(8) TurnedTile tile;
  const int64_t tile_row = gridDim.y - 1 - blockIdx.y, tile_col = gridDim.x - 1 - blockIdx.x;
  const TilePlace at(tile_row, tile_col);
  Eight values[kTurns][kRowsOfThread];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
    load_rows(x, at.row + turn * kRowsAtOnce, at.col, rows, cols, values[turn]);
  float inverse[kVec] = {};
  column_scales(of_cols, at.col, cols, tile_row == 0 && at.group == 0, turned_scales, inverse);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t row = at.row + turn * kRowsAtOnce;
    if (y != nullptr && at.col < cols) {
#pragma unroll
      for (int k = 0; k < kRowsOfThread; ++k) {
        if (row + k >= rows) continue;
        const float scale = scale_of_e4m3(float_of_bits(of_rows[row + k]));
        *reinterpret_cast<uint2*>(y + (row + k) * cols + at.col) =
            rounded_row(values[turn][k], inverse_of(scale));
        if (at.col == 0) y_scales[row + k] = scale;
      }
    }
    tile.put(values[turn], inverse, at.lane, at.group, turn);
  }
  __syncthreads();
  tile.write(turned, tile_row, tile_col, rows, cols);
}

struct Plain {
  const bf16* x;
  int64_t cols;

  __device__ Eight operator()(int64_t row, int64_t col) const { return Eight::load(x + row * cols + col); }
};

float* scales_of(uint8_t* elements, int64_t count) {
  return elements == nullptr ? nullptr : reinterpret_cast<float*>(elements + count);
}

}  // namespace

cudaError_t quantize(const bf16* x, uint8_t* y, uint8_t* turned, void* workspace, int64_t rows, int64_t cols,
                     cudaStream_t stream) {
  float* const y_scales = scales_of(y, rows * cols);
  if (turned == nullptr) return quantize_rows(Plain{x, cols}, y, y_scales, rows, cols, stream);
  auto* of_rows = static_cast<uint32_t*>(workspace);
  uint32_t* const of_cols = of_rows + rows;
  const dim3 grid(blocks_for(cols, kTile), blocks_for(rows, kTile));
  if (const auto status = cudaMemsetAsync(of_rows, 0, size_t(rows + cols) * sizeof(uint32_t), stream);
      status != cudaSuccess)
    return status;
  if (const auto status = launch(maxima_kernel, grid, kTileThreads, 0, stream, x,
                                 y == nullptr ? nullptr : of_rows, of_cols, rows, cols);
      status != cudaSuccess)
    return status;
  return launch(quantize_kernel, grid, kTileThreads, 0, stream, x, of_rows, of_cols, y, y_scales, turned,
                scales_of(turned, rows * cols), rows, cols);
}

}  // namespace sluice::core::cuda
