// SPDX-License-Identifier: Apache-2.0
// How kernels write matrices in 8 bits, by row and turned (ops/cast.h). Blocks take tiles; a thread has eight
// columns of four rows at a time, so that what it writes of a column is a word.
//
// The values are bf16, in pairs as memory holds them. Magnitudes of bf16 are ordered as the numbers of their
// bits are, so that two share a register while the largest is looked for.
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/float8.h"

namespace sluice::core::cuda {

constexpr int kTileThreads = 256;
constexpr int kTile = 128;                              // rows of a tile, and columns
constexpr int kTileLanes = kTile / kVec;                // threads of a row
constexpr int kRowsOfThread = 4;                        // at a time
constexpr int kTileGroups = kTileThreads / kTileLanes;  // of as many rows, at a time
constexpr int kRowsAtOnce = kTileGroups * kRowsOfThread;
constexpr int kTurns = kTile / kRowsAtOnce;  // until a tile is done
constexpr int kPairs = kVec / 2;

// Eight columns of a row.
struct Eight {
  uint32_t pairs[kPairs];

  static __device__ Eight load(const bf16* p) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    return {{raw.x, raw.y, raw.z, raw.w}};
  }
  __device__ void unpack(float (&x)[kVec]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x[2 * i] = low_half(pairs[i]);
      x[2 * i + 1] = high_half(pairs[i]);
    }
  }
  // Rounded, as store8() does.
  static __device__ Eight of(const float (&x)[kVec]) {
    Eight out;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) out.pairs[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
    return out;
  }
};

// The part of a tile that a thread has, in the first of its turns.
struct TilePlace {
  int lane, group;
  int64_t row, col;

  __device__ TilePlace(int64_t tile_row, int64_t tile_col)
      : lane(int(threadIdx.x) % kTileLanes),
        group(int(threadIdx.x) / kTileLanes),
        row(tile_row * kTile + group * kRowsOfThread),
        col(tile_col * kTile + lane * kVec) {}
};

constexpr uint32_t kMagnitudes = 0x7fff7fffu;

__device__ inline void most_of(Eight& most, const Eight& x) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) most.pairs[i] = __vmaxu2(most.pairs[i], x.pairs[i] & kMagnitudes);
}
// The largest magnitude of a row's eight, in both halves.
__device__ inline uint32_t most_of(const Eight& x) {
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) most = __vmaxu2(most, x.pairs[i] & kMagnitudes);
  return __vmaxu2(most, most >> 16 | most << 16);
}
// A magnitude of bf16 as the bits of the float.
__device__ inline uint32_t low_magnitude(uint32_t pair) {
  return pair << 16;
}
__device__ inline uint32_t high_magnitude(uint32_t pair) {
  return pair & 0xffff0000u;
}

// Adds the magnitudes of four rows of a thread to those of all: `of_rows` are the four's.
__device__ inline void add_row_maxima(const uint32_t (&most)[kRowsOfThread], int lane, int64_t row,
                                      int64_t rows, uint32_t* of_rows) {
  // Two rows share a register.
  uint32_t two[kRowsOfThread / 2];
#pragma unroll
  for (int i = 0; i < kRowsOfThread / 2; ++i) {
    two[i] = __byte_perm(most[2 * i], most[2 * i + 1], 0x5410);
#pragma unroll
    for (int offset = kTileLanes / 2; offset > 0; offset /= 2)
      two[i] = __vmaxu2(two[i], __shfl_xor_sync(kFullWarp, two[i], offset));
  }
  if (lane >= kRowsOfThread || row + lane >= rows) return;
  const uint32_t pair = lane < 2 ? two[0] : two[1];
  atomicMax(of_rows + row + lane, lane % 2 == 0 ? low_magnitude(pair) : high_magnitude(pair));
}

// And those of a thread's eight columns: all threads of the block take part. `scratch` has a word for each
// pair of columns of a tile and each warp, and may not be in use.
using ColumnScratch = uint32_t[kTileThreads / kWarp][kTile / 2];
__device__ inline void add_column_maxima(const Eight& most, int lane, int64_t tile_col, int64_t cols,
                                         ColumnScratch& scratch, uint32_t* of_cols) {
  const int warp = int(threadIdx.x) / kWarp;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    uint32_t pair = most.pairs[i];
#pragma unroll
    for (int offset = kWarp / 2; offset >= kTileLanes; offset /= 2)
      pair = __vmaxu2(pair, __shfl_xor_sync(kFullWarp, pair, offset));
    if (threadIdx.x % kWarp < kTileLanes) scratch[warp][lane * kPairs + i] = pair;
  }
  __syncthreads();
  const int64_t col = tile_col * kTile + threadIdx.x;
  if (threadIdx.x >= kTile || col >= cols) return;
  uint32_t all = 0;
#pragma unroll
  for (int w = 0; w < kTileThreads / kWarp; ++w) all = __vmaxu2(all, scratch[w][threadIdx.x / 2]);
  atomicMax(of_cols + col, threadIdx.x % 2 == 0 ? low_magnitude(all) : high_magnitude(all));
}

// 1 / scale, of a power of two.
__device__ inline float inverse_of(float scale) {
  return float_of_bits((254u << 23) - bits_of_float(scale));
}

// Four floats as F8::code() makes them, where `signs` has their signs in the top bits of its bytes: the
// instruction drops that of what is no number.
template <class F8>
__device__ inline uint32_t rounded(float a, float b, float c, float d, uint32_t signs) {
#if __CUDA_ARCH__ >= 890
  // No document says which of several codes of f8e5m2 the instruction makes of what is no number.
  constexpr bool kIsE4m3 = std::is_same_v<F8, E4m3>;
  if (kIsE4m3 || !isnan(a + b + c + d)) {
    constexpr auto kKind = kIsE4m3 ? __NV_E4M3 : __NV_E5M2;
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kKind);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kKind);
    return low | high << 16 | (signs & 0x80808080u);
  }
#endif
  return uint32_t{F8::code(a)} | uint32_t{F8::code(b)} << 8 | uint32_t{F8::code(c)} << 16 |
         uint32_t{F8::code(d)} << 24;
}

// Eight columns of a row, by the row's scale.
template <class F8 = E4m3>
__device__ inline uint2 rounded_row(const Eight& x, float inverse) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t p = x.pairs[2 * i], q = x.pairs[2 * i + 1];
    words[i] = rounded<F8>(low_half(p) * inverse, high_half(p) * inverse, low_half(q) * inverse,
                           high_half(q) * inverse, __byte_perm(p, q, 0x7531));
  }
  return {words[0], words[1]};
}

// A tile in shared memory whose columns lie one behind the other. Words of a column are swapped so that
// threads beside each other, who write eight columns apart, reach different banks.
struct TurnedTile {
  uint32_t words[kTile][kTile / kRowsOfThread];

  // Four rows of a thread's columns in turn `turn`, by the columns' scales.
  template <class F8 = E4m3>
  __device__ void put(const Eight (&x)[kRowsOfThread], const float (&inverse)[kVec], int lane, int group,
                      int turn) {
    const int word = (turn * kTileGroups + group) ^ (2 * lane);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t a = x[0].pairs[i], b = x[1].pairs[i], c = x[2].pairs[i], d = x[3].pairs[i];
      const float low = inverse[2 * i], high = inverse[2 * i + 1];
      // The signs of the lower halves are in their second bytes, those of the upper ones in their fourth.
      const uint32_t low_signs = __byte_perm(__byte_perm(a, b, 0x0051), __byte_perm(c, d, 0x0051), 0x5410);
      const uint32_t high_signs = __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
      words[lane * kVec + 2 * i][word] =
          rounded<F8>(low_half(a) * low, low_half(b) * low, low_half(c) * low, low_half(d) * low, low_signs);
      words[lane * kVec + 2 * i + 1][word] = rounded<F8>(
          high_half(a) * high, high_half(b) * high, high_half(c) * high, high_half(d) * high, high_signs);
    }
  }

  // Behind a barrier: writes the tile at that place of `turned`, [cols, rows]. Rows are a multiple of 8.
  __device__ void write(uint8_t* turned, int64_t tile_row, int64_t tile_col, int64_t rows,
                        int64_t cols) const {
    constexpr int kBytes = 8, kOfColumn = kTile / kBytes;
    for (int i = int(threadIdx.x); i < kTile * kOfColumn; i += kTileThreads) {
      const int in_tile = i / kOfColumn, part = i % kOfColumn;
      const int64_t col = tile_col * kTile + in_tile, row = tile_row * kTile + part * kBytes;
      if (col >= cols || row >= rows) continue;
      *reinterpret_cast<uint2*>(turned + col * rows + row) =
          *reinterpret_cast<const uint2*>(&words[in_tile][(2 * part) ^ (2 * (in_tile / kVec))]);
    }
  }
};

// The scales of a thread's columns, inverted; the blocks of the first rows write them to `scales`.
template <class F8>
__device__ inline void column_scales(const uint32_t* of_cols, int64_t col, int64_t cols, bool writes,
                                     float* scales, float (&inverse)[kVec]) {
  if (col >= cols) return;
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
    const float scale = F8::scale(float_of_bits(of_cols[col + j]));
    inverse[j] = inverse_of(scale);
    if (writes) scales[col + j] = scale;
  }
}

// Scales follow the elements of a matrix.
inline float* scales_of(uint8_t* elements, int64_t count) {
  return elements == nullptr ? nullptr : reinterpret_cast<float*>(elements + count);
}

// A thread's part of a tile of x, whose rows are `stride` apart; what lies outside of it is 0.
__device__ inline void load_rows(const bf16* x, int64_t row, int64_t col, int64_t rows, int64_t cols,
                                 int64_t stride, Eight (&to)[kRowsOfThread]) {
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k) {
    to[k] = {};
    if (row + k < rows && col < cols) to[k] = Eight::load(x + (row + k) * stride + col);
  }
}

// By row and turned, given the maxima; a null y is left out. `source` makes the values of what x holds:
// begin() says which columns a thread has. Blocks go backwards: where maxima were looked for last may still
// be cached.
template <class F8, class Source>
__global__ void __launch_bounds__(kTileThreads)
    quantize_tiles_kernel(Source source, const bf16* x, int64_t stride, const uint32_t* of_rows,
                          const uint32_t* of_cols, uint8_t* y, float* y_scales, uint8_t* turned,
                          float* turned_scales, int64_t rows, int64_t cols) {
  __shared__ __align__(8) TurnedTile tile;
  const int64_t tile_row = gridDim.y - 1 - blockIdx.y, tile_col = gridDim.x - 1 - blockIdx.x;
  const TilePlace at(tile_row, tile_col);
  Eight values[kTurns][kRowsOfThread];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn)
    load_rows(x, at.row + turn * kRowsAtOnce, at.col, rows, cols, stride, values[turn]);
  if (at.col < cols) source.begin(at.col);
  float inverse[kVec] = {};
  column_scales<F8>(of_cols, at.col, cols, tile_row == 0 && at.group == 0, turned_scales, inverse);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t row = at.row + turn * kRowsAtOnce;
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      if (row + k < rows && at.col < cols) values[turn][k] = source(values[turn][k], row + k);
    }
    if (y != nullptr && at.col < cols) {
#pragma unroll
      for (int k = 0; k < kRowsOfThread; ++k) {
        if (row + k >= rows) continue;
        const float scale = F8::scale(float_of_bits(of_rows[row + k]));
        *reinterpret_cast<uint2*>(y + (row + k) * cols + at.col) =
            rounded_row<F8>(values[turn][k], inverse_of(scale));
        if (at.col == 0) y_scales[row + k] = scale;
      }
    }
    tile.template put<F8>(values[turn], inverse, at.lane, at.group, turn);
  }
  __syncthreads();
  tile.write(turned, tile_row, tile_col, rows, cols);
}

template <class F8 = E4m3, class Source>
cudaError_t quantize_tiles(const Source& source, const bf16* x, int64_t stride, const uint32_t* of_rows,
                           const uint32_t* of_cols, uint8_t* y, uint8_t* turned, int64_t rows, int64_t cols,
                           cudaStream_t stream) {
  const dim3 grid(blocks_for(cols, kTile), blocks_for(rows, kTile));
  return launch(quantize_tiles_kernel<F8, Source>, grid, kTileThreads, 0, stream, source, x, stride, of_rows,
                of_cols, y, scales_of(y, rows * cols), turned, scales_of(turned, rows * cols), rows, cols);
}

constexpr int kRowThreads = 256;

// By row alone: a block has a row, which it asks `source` for once, eight columns at a time.
template <class F8, class Source>
__global__ void __launch_bounds__(kRowThreads)
    quantize_rows_kernel(Source source, uint8_t* y, float* scales, int64_t cols) {
  extern __shared__ uint4 row[];
  __shared__ uint32_t of_warps[kRowThreads / kWarp];
  const int64_t vectors = cols / kVec;
  Eight most = {};
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += kRowThreads) {
    const Eight x = source(blockIdx.x, i * kVec);
    most_of(most, x);
    row[i] = make_uint4(x.pairs[0], x.pairs[1], x.pairs[2], x.pairs[3]);
  }
  uint32_t all = most_of(most);
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    all = __vmaxu2(all, __shfl_xor_sync(kFullWarp, all, offset));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = all;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kRowThreads / kWarp; ++w) all = __vmaxu2(all, of_warps[w]);
  const float scale = F8::scale(float_of_bits(low_magnitude(all))), inverse = inverse_of(scale);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  auto* const to = reinterpret_cast<uint2*>(y + blockIdx.x * cols);
  // A thread reads what it wrote.
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += kRowThreads)
    to[i] = rounded_row<F8>({{row[i].x, row[i].y, row[i].z, row[i].w}}, inverse);
}

template <class F8 = E4m3, class Source>
cudaError_t quantize_rows(const Source& source, uint8_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
  return launch(quantize_rows_kernel<F8, Source>, dim3(unsigned(rows)), kRowThreads,
                size_t(cols) * sizeof(bf16), stream, source, y, scales_of(y, rows * cols), cols);
}

}  // namespace sluice::core::cuda
