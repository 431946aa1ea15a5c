// SPDX-License-Identifier: Apache-2.0
// Matrices in 8 bits, by row and by column (ops/cast.h). By row alone, one pass holds a row in shared memory.
// By column, one pass finds the largest magnitudes, which no order changes, and one rounds. Sums of products
// of such matrices, which libraries for some GPUs do not scale.
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

constexpr int kSumsThreads = 128;
constexpr int64_t kSumsRows = 8;  // of a block, one after the other

template <class D>
__global__ void __launch_bounds__(kSumsThreads) scale_sums_kernel(ScaledSums<D> s) {
  const int64_t column = (int64_t{blockIdx.x} * kSumsThreads + threadIdx.x) * kVec;
  if (column >= s.columns) return;
  float of_columns[kVec], bias[kVec] = {};
#pragma unroll
  for (int j = 0; j < kVec; ++j) of_columns[j] = s.of_columns[column + j];
  if (s.bias != nullptr) load8(s.bias + column, bias);
  const int64_t first = blockIdx.y * kSumsRows, end = min(first + kSumsRows, s.rows);
#pragma unroll 4
  for (int64_t row = first; row < end; ++row) {
    float x[kVec], c[kVec] = {};
    load8(s.sums + row * s.sums_stride + column, x);
    if (s.c != nullptr) load8(s.c + row * s.stride + column, c);
    const float of_row = s.of_rows[row];
#pragma unroll
    for (int j = 0; j < kVec; ++j) x[j] = x[j] * of_row * of_columns[j] + c[j] + bias[j];
    store8(s.d + row * s.stride + column, x);
  }
}

}  // namespace

template <class D>
cudaError_t scale_sums(const ScaledSums<D>& s, cudaStream_t stream) {
  const dim3 grid(blocks_for(s.columns, kSumsThreads * kVec), blocks_for(s.rows, kSumsRows));
  return launch(scale_sums_kernel<D>, grid, kSumsThreads, 0, stream, s);
}
template cudaError_t scale_sums(const ScaledSums<float>&, cudaStream_t);
template cudaError_t scale_sums(const ScaledSums<bf16>&, cudaStream_t);

cudaError_t quantize(bool e5m2, const bf16* x, int64_t stride, uint8_t* y, uint8_t* turned, void* workspace,
                     int64_t rows, int64_t cols, cudaStream_t stream) {
  return e5m2 ? quantize_as<E5m2>(x, stride, y, turned, workspace, rows, cols, stream)
              : quantize_as<E4m3>(x, stride, y, turned, workspace, rows, cols, stream);
}

}  // namespace sluice::core::cuda
