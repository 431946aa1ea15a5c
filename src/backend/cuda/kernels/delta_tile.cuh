// SPDX-License-Identifier: Apache-2.0
// What the kernels of gated delta rules share. They are products of tiles in shared memory, of bf16 on tensor
// cores and of f32 on plain units with the same places of results, and copies of rows to tiles.
#pragma once

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

constexpr int kDeltaRows = 64;  // tokens of a block

// Rows are padded by 16 bytes, so that the eight rows of a matrix lie in different banks.
template <class T>
__host__ __device__ constexpr int delta_stride(int columns) {
  return columns + 16 / int(sizeof(T));
}

// How an operand lies: rows of the product's rows (or, of B, of its columns), or rows along the sum.
enum class Lies { Across, Along };

// c (16 x N) += a (16 x k) b (k x N), k from `begin` to `end`, multiples of 16. `a` begins at the warp's
// first row, `b` at its first column. With `other` another product of the same b.
template <int N, Lies A, Lies B, bool kTwo = false>
__device__ inline void multiply_tiles(float (&c)[N / 8][4], const bf16* a, int a_stride, const bf16* b,
                                      int b_stride, int begin, int end, float (*other)[4] = nullptr,
                                      const bf16* other_a = nullptr) {
  const int lane = threadIdx.x % kWarp, low = lane & 7, middle = (lane >> 3) & 1, high = lane >> 4;
  const int in_a =
      A == Lies::Across ? (low + middle * 8) * a_stride + high * 8 : (low + high * 8) * a_stride + middle * 8;
  const bf16* b_row = B == Lies::Across ? b + (low + high * 8) * b_stride + middle * 8
                                        : b + (low + middle * 8) * b_stride + high * 8;
  const auto load_a = [&](uint32_t(&of_a)[4], const bf16* from, int k) {
    if constexpr (A == Lies::Across) {
      load_matrices(of_a, from + in_a + k);
    } else {
      load_matrices_transposed(of_a, from + in_a + k * a_stride);
    }
  };
#pragma unroll
  for (int k = begin; k < end; k += 16) {
    uint32_t of_a[4], of_other[4];
    load_a(of_a, a, k);
    if constexpr (kTwo) load_a(of_other, other_a, k);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t of_b[4];
      if constexpr (B == Lies::Across) {
        load_matrices(of_b, b_row + n * b_stride + k);
      } else {
        load_matrices_transposed(of_b, b_row + k * b_stride + n);
      }
      multiply_add(c[n / 8], of_a, of_b[0], of_b[1]);
      multiply_add(c[n / 8 + 1], of_a, of_b[2], of_b[3]);
      if constexpr (kTwo) {
        multiply_add(other[n / 8], of_other, of_b[0], of_b[1]);
        multiply_add(other[n / 8 + 1], of_other, of_b[2], of_b[3]);
      }
    }
  }
}
template <int N, Lies A, Lies B, bool kTwo = false>
__device__ inline void multiply_tiles(float (&c)[N / 8][4], const float* a, int a_stride, const float* b,
                                      int b_stride, int begin, int end, float (*other)[4] = nullptr,
                                      const float* other_a = nullptr) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, column = lane % 4 * 2;
#pragma unroll 2
  for (int k = begin; k < end; ++k) {
    const auto add = [&](float(*to)[4], const float* from) {
      const float low = A == Lies::Across ? from[g * a_stride + k] : from[k * a_stride + g];
      const float high = A == Lies::Across ? from[(g + 8) * a_stride + k] : from[k * a_stride + g + 8];
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        const int at = n * 8 + column;
        const float left = B == Lies::Across ? b[at * b_stride + k] : b[k * b_stride + at];
        const float right = B == Lies::Across ? b[(at + 1) * b_stride + k] : b[k * b_stride + at + 1];
        to[n][0] = fmaf(low, left, to[n][0]), to[n][1] = fmaf(low, right, to[n][1]);
        to[n][2] = fmaf(high, left, to[n][2]), to[n][3] = fmaf(high, right, to[n][3]);
      }
    };
    add(c, a);
    if constexpr (kTwo) add(other, other_a);
  }
}

template <int N>
__device__ inline void clear(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

// Calls f(which of its two rows, row, column, first of two values beside one another) for what a lane holds
// of a warp's tile, whose first row and column are given.
template <int N, class F>
__device__ inline void for_each_pair(float (&c)[N][4], int row, int column, F f) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) f(r, row + lane / 4 + 8 * r, column + n * 8 + lane % 4 * 2, &c[n][2 * r]);
  }
}

__device__ inline void store_pair(bf16* p, float a, float b) {
  *reinterpret_cast<uint32_t*>(p) = pack_bf16(a, b);
}
__device__ inline void store_pair(float* p, float a, float b) {
  *reinterpret_cast<float2*>(p) = make_float2(a, b);
}
__device__ inline float2 load_pair(const bf16* p) {
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(p);
  return make_float2(low_half(pair), high_half(pair));
}
__device__ inline float2 load_pair(const float* p) {
  return *reinterpret_cast<const float2*>(p);
}

// x (16 x 16) = rows of (1 + A)^-1 v, or of its transpose, from the warp's first row and column on. Of bf16
// `solved` is the inverse. Of f32 it is that in blocks of 16 on the diagonal and A below them: a product with
// the whole inverse is less exact than what is solved. A warp solves eight columns, in place.
template <bool kTransposed>
__device__ inline void solve_tile(float (&x)[2][4], const bf16* solved, bf16* v, int row, int column) {
  constexpr int kSquare = delta_stride<bf16>(kDeltaRows), kSlice = delta_stride<bf16>(kDeltaSlice);
  clear(x);
  multiply_tiles<16, kTransposed ? Lies::Along : Lies::Across, Lies::Along>(
      x, solved + row * (kTransposed ? 1 : kSquare), kSquare, v + column, kSlice, 0, kDeltaRows);
}
template <bool kTransposed>
__device__ inline void solve_tile(float (&x)[2][4], const float* solved, float* v, int row, int column) {
  constexpr int kSquare = delta_stride<float>(kDeltaRows), kSlice = delta_stride<float>(kDeltaSlice);
  constexpr Lies kLies = kTransposed ? Lies::Along : Lies::Across;
  const int own = 8 * int(threadIdx.x / kWarp);
  for (int i = 0; i < kDeltaRows && own < kDeltaSlice; i += 16) {
    const int first = kTransposed ? kDeltaRows - 16 - i : i;
    const float* const rows = solved + first * (kTransposed ? 1 : kSquare);
    float c[1][4];
    clear(c);
    multiply_tiles<8, kLies, Lies::Along>(c, rows, kSquare, v + own, kSlice, kTransposed ? first + 16 : 0,
                                          kTransposed ? kDeltaRows : first);
    for_each_pair(c, first, own, [&](int, int r, int at, float* known) {
      const float2 given = load_pair(v + r * kSlice + at);
      store_pair(v + r * kSlice + at, given.x - known[0], given.y - known[1]);
    });
    __syncwarp();
    clear(c);
    multiply_tiles<8, kLies, Lies::Along>(c, rows, kSquare, v + own, kSlice, first, first + 16);
    __syncwarp();
    for_each_pair(c, first, own, [&](int, int r, int at, float* found) {
      store_pair(v + r * kSlice + at, found[0], found[1]);
    });
    __syncwarp();
  }
  __syncthreads();
  for_each_pair(x, row, column, [&](int, int r, int at, float* found) {
    const float2 pair = load_pair(v + r * kSlice + at);
    found[0] = pair.x, found[1] = pair.y;
  });
}

// Calls f(item) for items as they fall to a thread.
template <int kItems, int kThreads, class F>
__device__ inline void for_each_item(F f) {
#pragma unroll
  for (int i = 0; i < (kItems + kThreads - 1) / kThreads; ++i) {
    const int item = i * kThreads + int(threadIdx.x);
    if (kItems % kThreads == 0 || item < kItems) f(item);
  }
}

// Starts copying rows of kColumns to a tile; rows from `rows` on and columns from `columns` on become zero.
template <int kColumns, int kRows, int kThreads, class T>
__device__ inline void copy_rows(T* tile, const T* from, int64_t stride, int rows, int columns = kColumns) {
  constexpr int kChunk = 16 / int(sizeof(T)), kChunks = kColumns / kChunk;
  for_each_item<kRows * kChunks, kThreads>([&](int item) {
    const int row = item / kChunks, column = item % kChunks * kChunk;
    const bool valid = row < rows && column < columns;
    copy_async(tile + row * delta_stride<T>(kColumns) + column, valid ? from + row * stride + column : from,
               valid);
  });
}
// Writes a tile's rows back.
template <int kColumns, int kRows, int kThreads, class T>
__device__ inline void write_rows(const T* tile, T* to, int64_t stride, int rows, int columns = kColumns) {
  constexpr int kChunk = 16 / int(sizeof(T)), kChunks = kColumns / kChunk;
  for_each_item<kRows * kChunks, kThreads>([&](int item) {
    const int row = item / kChunks, column = item % kChunks * kChunk;
    if (row < rows && column < columns)
      store_vector(to + row * stride + column,
                   *reinterpret_cast<const uint4*>(tile + row * delta_stride<T>(kColumns) + column));
  });
}

// Takes pieces of a block's shared memory, of 16 bytes or a multiple.
class SharedPieces {
 public:
  template <class T>
  __device__ T* take(int count) {
    auto* const piece = reinterpret_cast<T*>(next_);
    next_ += size_t(count) * sizeof(T);
    return piece;
  }

 private:
  unsigned char* next_ = dynamic_shared();
};

__device__ inline void wait_for_copies() {
  close_copies();
  await_copies<0>();
  __syncthreads();
}

}  // namespace sluice::core::cuda
