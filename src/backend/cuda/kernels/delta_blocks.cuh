// SPDX-License-Identifier: Apache-2.0
// What the kernels of gated delta rules read a chunk by: its blocks and documents, and the gates of a block.
// A block of threads has some columns of a head's values.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/delta_tile.cuh"

namespace sluice::core::cuda {

// A block of threads that carries states: two warps for each 16 rows of a block of tokens.
constexpr int kDeltaThreads = 256;

// Calls f with the columns that tiles of keys and states have, as a type's constant.
template <class T, class F>
cudaError_t with_delta_columns(const DeltaBlocks<T>& b, F f) {
  if (delta_columns(b.key_dim, b.value_dim) <= 64) return f(std::integral_constant<int, 64>{});
  return f(std::integral_constant<int, 128>{});
}

struct DeltaPlace {
  int64_t first;
  int rows;
};

struct DeltaTable {
  int32_t *counts, *firsts, *documents;  // counts of both; where each begins, and the end

  __device__ DeltaTable(int32_t* table, int64_t tokens)
      : counts(table), firsts(table + 2), documents(table + 3 + tokens) {}
  __device__ DeltaPlace place(int block) const { return {firsts[block], firsts[block + 1] - firsts[block]}; }
};

// A lane's gates, read from shared memory: those of the two rows of a warp's tile that it holds.
struct DeltaGatePair {
  float beta[2], kept[2], left[2];  // kept: exp(G), left: exp(G[63] - G)

  __device__ DeltaGatePair(const float* rows, int row) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + int(threadIdx.x) % kWarp / 4 + 8 * r;
      beta[r] = rows[at], kept[r] = rows[kDeltaRows + at], left[r] = rows[2 * kDeltaRows + at];
    }
  }
};
// The share of a state that stays behind a block.
__device__ inline float kept_of_state(const float* rows) {
  return rows[2 * kDeltaRows - 1];
}
// Those of a thread's token, on their way there.
class DeltaGateRows {
 public:
  static constexpr int kFloats = 3 * kDeltaRows;

  template <class T>
  __device__ DeltaGateRows(const DeltaBlocks<T>& b, const DeltaPlace& at, int head) {
    if (threadIdx.x >= kDeltaRows) return;
    const int i = min(int(threadIdx.x), at.rows - 1);
    const float* const sums = b.sums + at.first * b.value_heads + head;
    sum_ = sums[i * b.value_heads], last_ = sums[(at.rows - 1) * b.value_heads];
    beta_ = int(threadIdx.x) < at.rows ? b.gates[(at.first + i) * 2 * b.value_heads + head] : 0.0f;
  }
  __device__ void store(float* rows) const {
    if (threadIdx.x >= kDeltaRows) return;
    rows[threadIdx.x] = beta_;
    rows[kDeltaRows + threadIdx.x] = __expf(sum_);
    rows[2 * kDeltaRows + threadIdx.x] = __expf(last_ - sum_);
  }
  __device__ float sum() const { return sum_; }

 private:
  float sum_ = 0, last_ = 0, beta_ = 0;
};

// Whether the state before a block is not 0, and, behind it, whether its gradient is not.
template <class T>
__device__ bool has_state_before(const DeltaBlocks<T>& b, int block, const DeltaPlace& at) {
  return block == 0 ? b.goes_on() : b.pos[at.first] != 0;
}
template <class T>
__device__ bool has_state_behind(const DeltaBlocks<T>& b, const DeltaTable& table, int block,
                                 const DeltaPlace& at) {
  return block + 1 == table.counts[0] ? b.d_after != nullptr : b.pos[at.first + at.rows] != 0;
}
// Where states are kept, D rows of a slice behind one another: that at a block's first token. 64 tokens or
// more lie between the first tokens of blocks that are not their document's first. The chunk's own border has
// a place for itself.
template <class T>
__device__ T* kept_state(const DeltaBlocks<T>& b, T* states, bool border, int64_t token, int head, int slice,
                         int rows) {
  const int64_t slot = border ? 0 : token / kDeltaRows + 1;
  return states + ((slot * b.value_heads + head) * b.slices + slice) * rows * kDeltaSlice;
}

// The part of all heads and documents that a block of threads has.
struct DeltaShare {
  int slice, head, lane, lanes;
  int columns;  // that exist
  int64_t key_dim, value_dim;

  template <class T>
  __device__ explicit DeltaShare(const DeltaBlocks<T>& b)
      : slice(int(blockIdx.x) % b.slices),
        head(int(blockIdx.x) / b.slices % b.value_heads),
        lane(int(blockIdx.x) / (b.slices * b.value_heads)),
        lanes(int(gridDim.x) / (b.slices * b.value_heads)),
        columns(min(kDeltaSlice, b.value_dim - slice * kDeltaSlice)),
        key_dim(b.key_dim),
        value_dim(b.value_dim) {}

  template <class T>
  __device__ int64_t value_column(const DeltaBlocks<T>& b) const {
    return int64_t{head} * b.value_dim + slice * kDeltaSlice;
  }
  // q (0) or k (1) of the head.
  template <int D, class T>
  __device__ void load_keys(const DeltaBlocks<T>& b, const DeltaPlace& at, int which, T* tile) const {
    const int key_head = head / b.shared();
    copy_rows<D, kDeltaRows, kDeltaThreads>(tile, (const T*)b.key_rows(at.first, which, key_head, D),
                                            int64_t{2} * b.key_heads * D, at.rows);
  }
  template <class T>
  __device__ void load_square(const DeltaBlocks<T>& b, const DeltaPlace& at, const T* rows, T* tile) const {
    copy_rows<64, kDeltaRows, kDeltaThreads>(tile, rows + (at.first * b.value_heads + head) * kDeltaRows,
                                             int64_t{b.value_heads} * kDeltaRows, at.rows);
  }
  // Columns of the slice, of rows that begin with the head's.
  template <class T>
  __device__ void load_values(const DeltaBlocks<T>&, const DeltaPlace& at, const T* of_head, int64_t stride,
                              T* tile) const {
    copy_rows<kDeltaSlice, kDeltaRows, kDeltaThreads>(tile, of_head + at.first * stride + slice * kDeltaSlice,
                                                      stride, at.rows, columns);
  }

  // A pair of the head's state in f32, from an operand or 0, and back.
  __device__ int64_t state_at(int row, int column) const {
    return (head * key_dim + row) * value_dim + slice * kDeltaSlice + column;
  }
  __device__ bool has(int row, int column) const { return row < key_dim && column < columns; }
  __device__ void load_state(const float* from, int row, int column, float* x) const {
    const bool exists = from != nullptr && has(row, column);
    x[0] = exists ? from[state_at(row, column)] : 0.0f;
    x[1] = exists ? from[state_at(row, column) + 1] : 0.0f;
  }
  __device__ void store_state(float* to, int row, int column, const float* x) const {
    if (has(row, column)) store_pair(to + state_at(row, column), x[0], x[1]);
  }
};

}  // namespace sluice::core::cuda
