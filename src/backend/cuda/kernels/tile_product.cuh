// SPDX-License-Identifier: Apache-2.0
// Products of tiles on tensor cores. A block has four warps, each of a corner of its tile; k comes in pieces,
// of which some are on their way. An element is summed up in the order of k, whatever the tile.
#pragma once

#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"

namespace sluice::core::cuda {

template <int ROWS, int COLUMNS, int DEPTH, int STAGES>
struct Tiling {
  static constexpr int kRows = ROWS, kColumns = COLUMNS, kDepth = DEPTH, kStages = STAGES;
  static constexpr int kCornerRows = ROWS / 2, kCornerColumns = COLUMNS / 2;
  static constexpr int kRowBytes = DEPTH * 2;
  static constexpr int kStageBytes = (ROWS + COLUMNS) * kRowBytes;
  static constexpr size_t kSharedBytes = size_t{STAGES} * kStageBytes;
  static_assert(kCornerRows % 16 == 0 && kCornerColumns % 16 == 0 && (DEPTH == 32 || DEPTH == 64));
};
constexpr int kThreads = 128;
constexpr int kChunk = 8;  // elements of 16 bytes

// Where a chunk of a tile whose rows lie along k lies in shared memory. Chunks are exchanged so that eight
// rows of a column of chunks share no bank.
template <int DEPTH>
__device__ inline int along_k(int row, int chunk) {
  if constexpr (DEPTH == 32) return row * 64 + ((chunk ^ ((row >> 1) & 3)) * 16);
  return row * 128 + ((chunk ^ (row & 7)) * 16);
}

// Adds the products of all pieces to `sums`, this thread's of the corner at (m0, n0). load(piece, stage)
// begins to copy a piece of both matrices to shared memory; load_a(fragment, a, m, k) and load_b take one
// from there.
template <class T, class Load, class LoadA, class LoadB>
__device__ inline void multiply_pieces(float (&sums)[T::kCornerRows / 16][T::kCornerColumns / 8][4],
                                       int64_t pieces, const unsigned char* shared, int m0, int n0,
                                       const Load& load, const LoadA& load_a, const LoadB& load_b) {
  constexpr int kRowTiles = T::kCornerRows / 16, kColumnTiles = T::kCornerColumns / 8;
  for (int stage = 0; stage < T::kStages - 1; ++stage) {
    if (stage < pieces) load(stage, stage);
    close_copies();
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    await_copies<T::kStages - 2>();
    __syncthreads();
    const int64_t next = piece + T::kStages - 1;
    if (next < pieces) load(next, int(next % T::kStages));
    close_copies();
    const unsigned char* const as = shared + piece % T::kStages * T::kStageBytes;
    const unsigned char* const bs = as + T::kRows * T::kRowBytes;
#pragma unroll
    for (int k = 0; k < T::kDepth; k += 16) {
      uint32_t a[kRowTiles][4], b[kColumnTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_a(a[i], as, m0 + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j) load_b(b[j], bs, n0 + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j)
          multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

}  // namespace sluice::core::cuda
