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

// Where a group of warps turns 32 columns of its 64 rows. Of what a warp writes no two lie in one bank.
constexpr int kTurnedPitch = 68, kTurnedBytes = 32 * kTurnedPitch * 4;

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

// Stores the sums of a group of warps, which is the first or the second of those that multiply. Columns are
// of the tile.
template <Form kForm, class C, int kColumns>
class Sums {
 public:
  __device__ Sums(const HopperArgs<C>& args, int expert, int64_t first_row, int rows_left, int column)
      : args_(args), expert_(expert), first_row_(first_row), rows_left_(rows_left), column_(column) {}

  // `turning`: kTurnedBytes of the group, in shared memory.
  __device__ void store(float (&sums)[kColumns / 2], float* turning) const {
    if (kForm == Form::Wgrad && args_.turned) {
      store_turned(sums, turning);
    } else if constexpr (std::is_same_v<C, bf16>) {
      store_blocks(sums);
    } else {
      store_pairs(sums);
    }
  }

 private:
  static constexpr int kBatch = std::is_same_v<C, bf16> ? 4 : 8;  // blocks of eight columns

  // 32 columns at a time go through shared memory, so that neighbours write what lies side by side.
  __device__ void store_turned(float (&sums)[kColumns / 2], float* turning) const {
    const int thread = threadIdx.x % kGroupThreads, group = threadIdx.x / kGroupThreads;
    const int row = group * 64 + thread % 8 * kVec;
    float* const to = turning + lane() % 4 * 2 * kTurnedPitch + thread / kWarp * 16 + lane() / 4;
    const float* const from = turning + thread / 8 * kTurnedPitch + thread % 8 * kVec;
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 4) {
      C* at[2];
      bool here[2];
      Vec8<C> before[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = column_ + 8 * j + 16 * half + thread / 8;
        here[half] = row < rows_left_ && column < args_.n;
        at[half] = args_.c + (int64_t{expert_} * args_.n + column) * args_.m + first_row_ + row;
        if (args_.accumulate && here[half]) before[half] = Vec8<C>::load(at[half]);
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) to[(i / 4 * 8 + i % 2) * kTurnedPitch + i % 4 / 2 * 8] = sums[4 * j + i];
      await_threads(1 + group, kGroupThreads);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!here[half]) continue;
        float v[kVec];
        load8(from + 16 * half * kTurnedPitch, v);
        if (args_.accumulate) {
          float old[kVec];
          before[half].unpack(old);
#pragma unroll
          for (int i = 0; i < kVec; ++i) v[i] += old[i];
        }
        store8(at[half], v);
      }
      await_threads(1 + group, kGroupThreads);
    }
  }

  __device__ void store_blocks(float (&sums)[kColumns / 2]) const {
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += kBatch) {
      uint32_t before[2][kBatch];
      if (kForm == Form::Wgrad && args_.accumulate) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 old = here(j, half) ? *reinterpret_cast<const uint4*>(place(j, half)) : uint4{};
          before[half][0] = old.x, before[half][1] = old.y, before[half][2] = old.z, before[half][3] = old.w;
          exchange_blocks(before[half]);
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
        exchange_blocks(pairs);
        if (here(j, half)) store_vector(place(j, half), make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
      }
    }
  }

  // All that is read of a batch is under way before the first is written.
  __device__ void store_pairs(float (&sums)[kColumns / 2]) const {
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += kBatch) {
      float before[4 * kBatch] = {};
      if (args_.accumulate) {
#pragma unroll
        for (int i = 0; i < 4 * kBatch; i += 2) load_pair(j + i / 4, i % 4 / 2, before[i], before[i + 1]);
      }
#pragma unroll
      for (int i = 0; i < 4 * kBatch; i += 2)
        store_pair(j + i / 4, i % 4 / 2, plus(sums[4 * j + i], before[i]),
                   plus(sums[4 * j + i + 1], before[i + 1]));
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
  __device__ void add_bias(int j, float& x, float& y) const {
    const int at = column_ + 8 * j + lane() % 4 * 2;
    if (args_.bias == nullptr || at >= args_.n) return;
    const bf16* const of = args_.bias + int64_t{expert_} * args_.n + at;
    x += to_float(of[0]), y += to_float(of[1]);
  }

  // Eight elements that a lane has after exchange_blocks, along a row of a block of columns.
  __device__ bool here(int j, int half) const {
    return warp_row() + 8 * half + lane() / 4 < rows_left_ && column_ + 8 * (j + lane() % 4) < args_.n;
  }
  __device__ C* place(int j, int half) const {
    return args_.c + (first_row_ + warp_row() + 8 * half + lane() / 4) * args_.n + column_ +
           8 * (j + lane() % 4);
  }
  // A pair of a row of sums.
  __device__ bool pair_place(int j, int half, C*& at) const {
    const int row = warp_row() + 8 * half + lane() / 4, column = column_ + 8 * j + lane() % 4 * 2;
    at = args_.c + (first_row_ + row) * args_.n + column;
    return row < rows_left_ && column < args_.n;
  }
  __device__ void load_pair(int j, int half, float& x, float& y) const {
    C* at;
    if (!pair_place(j, half, at)) return;
    const float2 both = *reinterpret_cast<const float2*>(at);
    x = both.x, y = both.y;
  }
  __device__ void store_pair(int j, int half, float x, float y) const {
    C* at;
    if (pair_place(j, half, at)) *reinterpret_cast<float2*>(at) = make_float2(x, y);
  }

  const HopperArgs<C>& args_;
  int expert_;
  int64_t first_row_;  // Wgrad, turned: of the expert; else of C
  int rows_left_, column_;
};

}  // namespace sluice::core::cuda
