// SPDX-License-Identifier: Apache-2.0
// The sums of products over the rows of each expert, as a group of four warps stores them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/hopper/hopper.cuh"
#include "backend/cuda/kernels/expert_rows.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

enum class Form { Forward, Dgrad, Wgrad };

template <class C>
struct HopperArgs {
  RowSource rows;        // Wgrad: rows of A^T
  const bf16* bias;      // Forward: [experts, n], or null
  const int32_t* begin;  // of the group's experts
  C* c;                  // Wgrad: of each expert [m, n], or [n, m] if turned
  int64_t m, n, k;       // m: of Wgrad; k: not of Wgrad
  int experts;
  bool boxes;               // the rows come in boxes, too
  bool turned, accumulate;  // of Wgrad
};

// Four lanes have four pairs of elements each, of four blocks of eight: afterwards a lane has the four pairs
// of one block.
__device__ inline void exchange_blocks(uint32_t (&v)[4]) {
  const bool odd = threadIdx.x % 2 == 1, upper = threadIdx.x % 4 >= 2;
  const auto exchange = [](uint32_t& low, uint32_t& high, bool second, int distance) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, second ? low : high, distance);
    (second ? low : high) = other;
  };
  exchange(v[0], v[1], odd, 1);
  exchange(v[2], v[3], odd, 1);
  exchange(v[0], v[2], upper, 2);
  exchange(v[1], v[3], upper, 2);
}

// Stores the sums of a group of warps. Columns are of the tile.
template <Form kForm, class C, int kColumns>
class Sums {
 public:
  __device__ Sums(const HopperArgs<C>& args, int expert, int64_t first_row, int rows_left, int column)
      : args_(args), expert_(expert), first_row_(first_row), rows_left_(rows_left), column_(column) {}

  __device__ void store(float (&sums)[kColumns / 2]) const {
    if (kForm == Form::Wgrad && args_.turned) {
      store_as<true>(sums);
    } else {
      store_as<false>(sums);
    }
  }

 private:
  static constexpr int kBatch = std::is_same_v<C, bf16> ? 4 : 8;  // blocks of eight columns

  template <bool kTurned>
  __device__ void store_as(float (&sums)[kColumns / 2]) const {
    if constexpr (std::is_same_v<C, bf16>) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; j += kBatch) {
        uint32_t before[2][kBatch];
        if (kForm == Form::Wgrad && args_.accumulate) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4 old =
                here<kTurned>(j, half) ? *reinterpret_cast<const uint4*>(place<kTurned>(j, half)) : uint4{};
            before[half][0] = old.x, before[half][1] = old.y, before[half][2] = old.z,
            before[half][3] = old.w;
            exchange_blocks(before[half]);
            if (kTurned) turn(before[half]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t pairs[kBatch];
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            float x = sums[4 * (j + i) + 2 * half], y = sums[4 * (j + i) + 2 * half + 1];
            if (kForm == Form::Forward) add_bias(j + i, x, y);
            if (kForm == Form::Wgrad && args_.accumulate)
              x += low_half(before[half][i]), y += high_half(before[half][i]);
            pairs[i] = pack_bf16(x, y);
          }
          if (kTurned) turn(pairs);
          exchange_blocks(pairs);
          if (here<kTurned>(j, half))
            store_vector(place<kTurned>(j, half), make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
        }
      }
    } else {
      // All that is read of a batch is under way before the first is written.
#pragma unroll
      for (int j = 0; j < kColumns / 8; j += kBatch) {
        float before[4 * kBatch] = {};
        if (args_.accumulate) {
#pragma unroll
          for (int i = 0; i < 4 * kBatch; i += 2)
            load_pair<kTurned>(j + i / 4, i % 4 / 2, before[i], before[i + 1]);
        }
#pragma unroll
        for (int i = 0; i < 4 * kBatch; i += 2)
          store_pair<kTurned>(j + i / 4, i % 4 / 2, plus(sums[4 * j + i], before[i]),
                              plus(sums[4 * j + i + 1], before[i + 1]));
      }
    }
  }

  // A zero keeps its sign where nothing is added.
  __device__ float plus(float sum, float before) const {
    return args_.accumulate ? sum + before : sum;
  }
  static __device__ int lane() {
    return threadIdx.x % kWarp;
  }
  static __device__ int warp_row() {
    return threadIdx.x / kWarp * 16;
  }  // groups that multiply come first
  static __device__ void turn(uint32_t (&pairs)[kBatch]) {
#pragma unroll
    for (uint32_t& pair : pairs) pair = turned(pair);
  }
  __device__ void add_bias(int j, float& x, float& y) const {
    const int at = column_ + 8 * j + lane() % 4 * 2;
    if (args_.bias == nullptr || at >= args_.n) return;
    const bf16* const of = args_.bias + int64_t{expert_} * args_.n + at;
    x += to_float(of[0]), y += to_float(of[1]);
  }

  // Eight elements that a lane has after exchange_blocks: along a row of a block of columns, or turned along
  // a column.
  template <bool kTurned>
  __device__ bool here(int j, int half) const {
    const int block = column_ + 8 * (j + lane() % 4), row = warp_row() + 8 * half;
    return kTurned ? row < rows_left_ && block + lane() / 4 < args_.n
                   : row + lane() / 4 < rows_left_ && block < args_.n;
  }
  template <bool kTurned>
  __device__ C* place(int j, int half) const {
    const int block = column_ + 8 * (j + lane() % 4), row = warp_row() + 8 * half;
    return kTurned ? args_.c + (int64_t{expert_} * args_.n + block + lane() / 4) * args_.m + first_row_ + row
                   : args_.c + (first_row_ + row + lane() / 4) * args_.n + block;
  }
  // A pair of a row of sums.
  template <bool kTurned>
  __device__ bool pair_place(int j, int half, C*& at, int64_t& step) const {
    const int row = warp_row() + 8 * half + lane() / 4, column = column_ + 8 * j + lane() % 4 * 2;
    step = kTurned ? args_.m : 1;
    at = kTurned ? args_.c + (int64_t{expert_} * args_.n + column) * args_.m + first_row_ + row
                 : args_.c + (first_row_ + row) * args_.n + column;
    return row < rows_left_ && column < args_.n;
  }
  template <bool kTurned>
  __device__ void load_pair(int j, int half, float& x, float& y) const {
    C* at;
    int64_t step;
    if (!pair_place<kTurned>(j, half, at, step)) return;
    if constexpr (kTurned) {
      x = at[0], y = at[step];
    } else {
      const float2 both = *reinterpret_cast<const float2*>(at);
      x = both.x, y = both.y;
    }
  }
  template <bool kTurned>
  __device__ void store_pair(int j, int half, float x, float y) const {
    C* at;
    int64_t step;
    if (!pair_place<kTurned>(j, half, at, step)) return;
    if constexpr (kTurned) {
      at[0] = x, at[step] = y;
    } else {
      *reinterpret_cast<float2*>(at) = make_float2(x, y);
    }
  }

  const HopperArgs<C>& args_;
  int expert_;
  int64_t first_row_;  // Wgrad, turned: of the expert; else of C
  int rows_left_, column_;
};

}  // namespace sluice::core::cuda
