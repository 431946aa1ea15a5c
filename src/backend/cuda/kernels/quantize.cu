// SPDX-License-Identifier: Apache-2.0
// Matrices in 8 bits, by row and by column (ops/cast.h): one pass finds the largest magnitudes, which no
// order changes, and one rounds. Blocks take tiles, whose columns become rows in shared memory.
#include <cuda_fp8.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/float8.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kTileRows = 128, kTileCols = 64;
constexpr int kLanes = kTileCols / kVec;        // threads of a row
constexpr int kRowsAtOnce = kThreads / kLanes;  // of a tile
constexpr int kWord = 4;                        // bytes
// Bytes of a column in shared memory: columns that a warp writes at once begin in different banks.
constexpr int kColumnBytes = kTileRows + kWord;

// A byte as e4m3_of() makes it; the instruction alone drops the sign of what is no number.
__device__ inline uint8_t rounded(float x) {
#if __CUDA_ARCH__ >= 890
  const auto byte = static_cast<uint8_t>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
  return static_cast<uint8_t>(byte | (bits_of_float(x) >> 24 & 0x80u));
#else
  return e4m3_of(x);
#endif
}

// The part of a tile that a thread reads: eight columns of a row, and of others below it.
struct Place {
  int64_t row, col;
  int lane;

  __device__ Place()
      : row(int64_t{blockIdx.y} * kTileRows + threadIdx.x / kLanes),
        col(int64_t{blockIdx.x} * kTileCols + threadIdx.x % kLanes * kVec),
        lane(int(threadIdx.x) % kLanes) {}
};

template <class T>
__global__ void maxima_kernel(const T* x, uint32_t* of_rows, uint32_t* of_cols, int64_t rows, int64_t cols) {
  __shared__ uint32_t most[kWarps][kTileCols];
  const Place at;
  uint32_t of_col[kVec] = {};
  for (int i = 0; i < kTileRows; i += kRowsAtOnce) {
    uint32_t of_row = 0;
    if (at.row + i < rows && at.col < cols) {
      float v[kVec];
      load8(x + (at.row + i) * cols + at.col, v);
      for (int j = 0; j < kVec; ++j) {
        const uint32_t magnitude = bits_of_float(v[j]) & 0x7fffffffu;
        of_row = max(of_row, magnitude);
        of_col[j] = max(of_col[j], magnitude);
      }
    }
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
      of_row = max(of_row, __shfl_xor_sync(kFullWarp, of_row, offset));
    if (at.lane == 0 && at.row + i < rows) atomicMax(of_rows + at.row + i, of_row);
  }
  for (int j = 0; j < kVec; ++j) {
    for (int offset = kWarp / 2; offset >= kLanes; offset /= 2)
      of_col[j] = max(of_col[j], __shfl_xor_sync(kFullWarp, of_col[j], offset));
    if (threadIdx.x % kWarp < kLanes) most[threadIdx.x / kWarp][at.lane * kVec + j] = of_col[j];
  }
  __syncthreads();
  const int64_t col = int64_t{blockIdx.x} * kTileCols + threadIdx.x;
  if (threadIdx.x >= kTileCols || col >= cols) return;
  uint32_t of_all = 0;
  for (int warp = 0; warp < kWarps; ++warp) of_all = max(of_all, most[warp][threadIdx.x]);
  atomicMax(of_cols + col, of_all);
}

// A null y or `turned` is left out.
template <class T>
__global__ void quantize_kernel(const T* x, const uint32_t* of_rows, const uint32_t* of_cols, uint8_t* y,
                                float* y_scales, uint8_t* turned, float* turned_scales, int64_t rows,
                                int64_t cols) {
  __shared__ __align__(kWord) uint8_t tile[kTileCols][kColumnBytes];
  const Place at;
  float inverse[kVec] = {};
  if (turned != nullptr && at.col < cols) {
    for (int j = 0; j < kVec; ++j) {
      const float scale = scale_of_e4m3(float_of_bits(of_cols[at.col + j]));
      inverse[j] = 1 / scale;
      if (blockIdx.y == 0 && threadIdx.x < kLanes) turned_scales[at.col + j] = scale;
    }
  }
  for (int i = 0; i < kTileRows; i += kRowsAtOnce) {
    const int64_t row = at.row + i;
    if (row >= rows || at.col >= cols) continue;
    float v[kVec];
    load8(x + row * cols + at.col, v);
    if (y != nullptr) {
      const float scale = scale_of_e4m3(float_of_bits(of_rows[row])), by = 1 / scale;
      uint32_t words[kVec / kWord] = {};
      for (int j = 0; j < kVec; ++j) words[j / kWord] |= uint32_t{rounded(v[j] * by)} << (8 * (j % kWord));
      *reinterpret_cast<uint2*>(y + row * cols + at.col) = {words[0], words[1]};
      if (blockIdx.x == 0 && at.lane == 0) y_scales[row] = scale;
    }
    if (turned != nullptr) {
      for (int j = 0; j < kVec; ++j)
        tile[at.lane * kVec + j][threadIdx.x / kLanes + i] = rounded(v[j] * inverse[j]);
    }
  }
  if (turned == nullptr) return;
  __syncthreads();
  constexpr int kWords = kTileRows / kWord;
  for (int i = int(threadIdx.x); i < kTileCols * kWords; i += kThreads) {
    const int64_t col = int64_t{blockIdx.x} * kTileCols + i / kWords;
    const int64_t row = int64_t{blockIdx.y} * kTileRows + i % kWords * kWord;
    if (col >= cols || row >= rows) continue;
    *reinterpret_cast<uint32_t*>(turned + col * rows + row) =
        *reinterpret_cast<const uint32_t*>(&tile[i / kWords][i % kWords * kWord]);
  }
}

float* scales_of(uint8_t* elements, int64_t count) {
  return elements == nullptr ? nullptr : reinterpret_cast<float*>(elements + count);
}

}  // namespace

template <class T>
cudaError_t quantize(const T* x, uint8_t* y, uint8_t* turned, void* workspace, int64_t rows, int64_t cols,
                     cudaStream_t stream) {
  auto* of_rows = static_cast<uint32_t*>(workspace);
  uint32_t* of_cols = of_rows + rows;
  const dim3 grid(blocks_for(cols, kTileCols), blocks_for(rows, kTileRows));
  if (const auto status = cudaMemsetAsync(of_rows, 0, size_t(rows + cols) * sizeof(uint32_t), stream);
      status != cudaSuccess)
    return status;
  if (const auto status =
          launch(maxima_kernel<T>, grid, kThreads, 0, stream, x, of_rows, of_cols, rows, cols);
      status != cudaSuccess)
    return status;
  return launch(quantize_kernel<T>, grid, kThreads, 0, stream, x, of_rows, of_cols, y,
                scales_of(y, rows * cols), turned, scales_of(turned, rows * cols), rows, cols);
}
template cudaError_t quantize(const bf16*, uint8_t*, uint8_t*, void*, int64_t, int64_t, cudaStream_t);

}  // namespace sluice::core::cuda
