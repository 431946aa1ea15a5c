// SPDX-License-Identifier: Apache-2.0
// What the own attention kernels share: tiles in shared memory, products of tiles, and which keys a query
// sees.
//
// Blocks have four warps; a warp owns 16 rows of its block's tile. Heads are padded with zeros to D columns.
// Sums of 16 rows of 512 columns do not fit the registers of a warp. There two warps share 16 rows: either
// works out all scores and sums half of the columns.
#pragma once

#include <climits>
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kWarpRows = 16;
constexpr float kLog2E = 1.4426950408889634f;

// Calls f with the columns that tiles of such a head have, as a type's constant.
template <class F>
cudaError_t with_head_columns(int64_t head_dim, F f) {
  if (head_dim <= 64) return f(std::integral_constant<int, 64>{});
  if (head_dim <= 128) return f(std::integral_constant<int, 128>{});
  if (head_dim <= 256) return f(std::integral_constant<int, 256>{});
  return f(std::integral_constant<int, 512>{});
}

// Warps that share rows, the rows of the tile that the block's warps share out, and where a warp's lie.
template <int D>
constexpr int kSharing = D <= 256 ? 1 : 2;
template <int D>
constexpr int kOwnRows = kAttentionThreads / kWarp* kWarpRows / kSharing<D>;
template <int D>
__device__ inline int warp_row() {
  return int(threadIdx.x) / kWarp * kWarpRows % kOwnRows<D>;
}
// The first column, of C that the warps that share rows share out.
template <int D, int C = D>
__device__ inline int warp_column() {
  return kSharing<D> == 1 ? 0 : int(threadIdx.x) / kWarp * kWarpRows / kOwnRows<D> * (C / kSharing<D>);
}

// Rows are padded by 16 bytes, so that the eight rows of a matrix lie in different banks.
template <int D, class T = bf16>
constexpr int kTileStride = D + 16 / int(sizeof(T));

template <int D, class T = bf16>
constexpr size_t tile_bytes(int rows) {
  return size_t(rows) * kTileStride<D, T> * sizeof(T);
}

// The memory of one head: row i starts at base + i * stride, `count` rows exist.
template <class T>
struct HeadRows {
  const T* base;
  int64_t stride;
  int64_t count;
};

// Starts copying rows [first, first + ROWS) of a head; rows and columns that do not exist become zero.
template <int D, int ROWS, class T>
__device__ inline void copy_tile(T* tile, const HeadRows<T>& head, int64_t first, int head_dim) {
  constexpr int kChunk = 16 / int(sizeof(T)), kChunks = D / kChunk;
#pragma unroll
  for (int item = threadIdx.x; item < ROWS * kChunks; item += kAttentionThreads) {
    const int row = item / kChunks, column = item % kChunks * kChunk;
    const bool valid = first + row < head.count && column < head_dim;
    const T* from = valid ? head.base + (first + row) * head.stride + column : head.base;
    copy_async(tile + row * kTileStride<D, T> + column, from, valid);
  }
}

// c (16 x N) += a (16 x D) b^T, with b (N x D); both tiles in shared memory, row-major.
template <int D, int N>
__device__ inline void multiply_rows(float (&c)[N / 8][4], const bf16* a, const bf16* b) {
  const int lane = threadIdx.x % kWarp;
  const bf16* a_row = a + (lane & 15) * kTileStride<D> + (lane >> 4) * 8;
  const bf16* b_row = b + ((lane & 7) + (lane >> 4) * 8) * kTileStride<D> + ((lane >> 3) & 1) * 8;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t fragment[4];
    load_matrices(fragment, a_row + k);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t columns[4];
      load_matrices(columns, b_row + n * kTileStride<D> + k);
      multiply_add(c[n / 8], fragment, columns[0], columns[1]);
      multiply_add(c[n / 8 + 1], fragment, columns[2], columns[3]);
    }
  }
}

// c (16 x C) += p (16 x N) b, with p in the registers of an accumulator and b (N rows of a tile of D columns,
// C of them from b on) in shared memory.
template <int D, int N, int C = D>
__device__ inline void multiply_columns(float (&c)[C / 8][4], const float (&p)[N / 8][4], const bf16* b) {
  const int lane = threadIdx.x % kWarp;
  const bf16* b_row = b + (lane & 15) * kTileStride<D> + (lane >> 4) * 8;
#pragma unroll
  for (int k = 0; k < N; k += 16) {
    const float(&low)[4] = p[k / 8];
    const float(&high)[4] = p[k / 8 + 1];
    const uint32_t fragment[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]),
                                  pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < C; n += 16) {
      uint32_t columns[4];
      load_matrices_transposed(columns, b_row + k * kTileStride<D> + n);
      multiply_add(c[n / 8], fragment, columns[0], columns[1]);
      multiply_add(c[n / 8 + 1], fragment, columns[2], columns[3]);
    }
  }
}

// A score, stored over `scale`, under its cap (AttnShape::softcap).
__device__ inline float capped(float score, float scale, float softcap) {
  return softcap / scale * tanh_of(score * (scale / softcap));
}
template <int N>
__device__ inline void cap_scores(float (&s)[N / 8][4], float scale, float softcap) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = capped(s[n][i], scale, softcap);
  }
}

// The slope of that where it gave `capped`.
__device__ inline float cap_slope(float capped, float scale, float softcap) {
  const float t = capped * (scale / softcap);
  return 1.0f - t * t;
}

// Turns a warp's scores of N keys into weights 2^(scale (score - max)) and folds them into the running row
// maxima and sums; `o` is rescaled to the new maxima. Index r is the row: g or g + 8. If kExact, keys that a
// row does not see change no bit of what it has: its sums are rescaled only where its maximum changes.
template <int D, int N, bool kExact = false>
__device__ inline void fold_scores(float (&s)[N / 8][4], float (&o)[D / 8][4], float (&row_max)[2],
                                   float (&row_sum)[2], float scale) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = row_max[r];
#pragma unroll
    for (int n = 0; n < N / 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 2));
    const float base = top == -INFINITY ? 0.0f : top * scale;
    const float rescale = kExact && row_max[r] == top ? 1.0f : exp2f(row_max[r] * scale - base);
    row_max[r] = top;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      s[n][2 * r] = exp2f(s[n][2 * r] * scale - base);
      s[n][2 * r + 1] = exp2f(s[n][2 * r + 1] * scale - base);
      sum += s[n][2 * r] + s[n][2 * r + 1];
    }
    row_sum[r] = row_sum[r] * rescale + sum;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o[n][2 * r] *= rescale;
      o[n][2 * r + 1] *= rescale;
    }
  }
}

// Writes a warp's 16 x D accumulator, times `factor`, to rows [first, first + 16) of a head.
template <int D>
__device__ inline void store_rows(const float (&c)[D / 8][4], bf16* base, int64_t stride, int64_t first,
                                  int64_t count, int head_dim, float factor_low, float factor_high) {
  const int lane = threadIdx.x % kWarp, column = lane % 4 * 2;
  const int64_t low = first + lane / 4, high = low + 8;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    if (n * 8 >= head_dim) continue;
    if (low < count) {
      *reinterpret_cast<uint32_t*>(base + low * stride + n * 8 + column) =
          pack_bf16(c[n][0] * factor_low, c[n][1] * factor_low);
    }
    if (high < count) {
      *reinterpret_cast<uint32_t*>(base + high * stride + n * 8 + column) =
          pack_bf16(c[n][2] * factor_high, c[n][3] * factor_high);
    }
  }
}

// Keys of the block that query i of a row sees: [begin, end), empty for queries that do not exist.
struct KeyRange {
  int begin, end;

  __device__ bool has(int key) const { return begin <= key && key < end; }
};

__device__ inline KeyRange visible_keys(const AttentionSizes& block, int64_t row, int64_t i) {
  if (i >= block.q_len) return {0, 0};
  const int64_t last = block.distance + i;
  int64_t begin = block.packed ? last - block.pos[row * block.q_len + i] : 0;
  if (block.window > 0) begin = max(begin, last - block.window + 1);
  const int64_t end = min(last + 1, block.kv_len);
  return {int(min(max(begin, int64_t{0}), end)), int(end)};
}

// The tiles of keys of the documents that a tile of queries has queries of, counted from each document's
// first key. `origins` are those of the queries, INT_MAX behind the last one. By whole warps.
template <int ROWS, int KEYS>
class DocumentTiles {
 public:
  __device__ DocumentTiles(const AttentionSizes& block, const int* origins, int64_t first)
      : origins_(origins), first_(int(first)), window_(int(block.window)) {
    begin(0);
  }
  __device__ bool done() const { return query_ >= ROWS; }
  __device__ void advance() {
    key += KEYS;
    if (key >= end_) begin(last_);
  }

  int key = 0, origin = 0;

 private:
  __device__ void begin(int query) {
    query_ = query < ROWS && origins_[query] != INT_MAX ? query : ROWS;
    if (done()) return;
    origin = origins_[query];
    last_ = ROWS;
    for (int base = query / kWarp * kWarp; base < ROWS && last_ == ROWS; base += kWarp) {
      const int other = base + int(threadIdx.x) % kWarp;
      const unsigned found = __ballot_sync(kFullWarp, other > query && origins_[other] != origin);
      if (found != 0) last_ = base + __ffs(int(found)) - 1;
    }
    const int seen = window_ > 0 ? max(origin, first_ + query - window_ + 1) : origin;
    key = origin + (seen - origin) / KEYS * KEYS;
    end_ = first_ + last_;
  }

  const int* origins_;
  int first_, window_;
  int query_ = 0, last_ = 0, end_ = 0;  // of the tile: the document's first query, and behind its last; keys
};

// The keys that some query of a tile sees, [begin, end), and those that every one sees, [all_begin, all_end).
struct TileRange {
  int begin, end, all_begin, all_end;

  __device__ bool touches(int first, int count) const { return first < end && first + count > begin; }
  __device__ bool covers(int first, int count) const {
    return first >= all_begin && first + count <= all_end;
  }
};

// Every warp works it out for itself, so that all of a block agree without a barrier.
template <int ROWS>
__device__ inline TileRange tile_range(const AttentionSizes& block, int64_t row, int64_t first) {
  TileRange range{INT_MAX, 0, 0, INT_MAX};
  for (int i = threadIdx.x % kWarp; i < ROWS; i += kWarp) {
    const KeyRange keys = visible_keys(block, row, first + i);
    if (keys.begin < keys.end) {
      range.begin = min(range.begin, keys.begin);
      range.end = max(range.end, keys.end);
    }
    range.all_begin = max(range.all_begin, keys.begin);
    range.all_end = min(range.all_end, keys.end);
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    range.begin = min(range.begin, __shfl_xor_sync(kFullWarp, range.begin, offset));
    range.end = max(range.end, __shfl_xor_sync(kFullWarp, range.end, offset));
    range.all_begin = max(range.all_begin, __shfl_xor_sync(kFullWarp, range.all_begin, offset));
    range.all_end = min(range.all_end, __shfl_xor_sync(kFullWarp, range.all_end, offset));
  }
  return range;
}

// The steps of a backward pass over a tile of kKeys keys: the tiles of kQueries queries of every query head
// that shares the key head.
template <int kKeys, int kQueries>
class QuerySteps {
 public:
  // Queries before the first key of the tile see none of it, nor do those a window or more behind the last.
  __device__ QuerySteps(const AttentionSizes& block, int64_t row, int first_key)
      : block_(block), row_(row), first_key_(first_key), end_(int(block.q_len)) {
    const int64_t first_query = max(first_key - block.distance, int64_t{0});
    begin_ = int(first_query / kQueries * kQueries);
    if (block.window > 0) {
      const int64_t unseen = first_key + kKeys - 1 - block.distance + block.window;
      end_ = int(min(max(unseen, int64_t{0}), block.q_len));
    }
    query = begin_ - kQueries;
    advance();
  }

  __device__ bool done() const { return head >= int(block_.q_heads / block_.kv_heads); }

  // To the next tile with a query that sees a key of the tile.
  __device__ void advance() {
    do {
      query += kQueries;
      if (query >= end_) {
        query = begin_;
        ++head;
        if (begin_ >= end_) head = INT_MAX;
      }
    } while (!done() && !tile_range<kQueries>(block_, row_, query).touches(first_key_, kKeys));
  }

  int head = 0;       // within the group
  int64_t query = 0;  // first query of the tile

 private:
  const AttentionSizes& block_;
  int64_t row_;
  int first_key_, begin_, end_;
};

// q, o, dq and do share one layout, k and v another.
template <class T>
__device__ inline HeadRows<T> query_rows(const AttentionSizes& block, const T* base, int64_t row,
                                         int64_t head) {
  const int64_t stride = block.q_heads * block.head_dim;
  return {base + row * block.q_len * stride + head * block.head_dim, stride, block.q_len};
}
__device__ inline int64_t key_offset(const AttentionSizes& block, int64_t row, int64_t kv_head) {
  return row * block.kv_len * 2 * block.kv_heads * block.head_dim + kv_head * block.head_dim;
}
__device__ inline int64_t value_offset(const AttentionSizes& block) {
  return block.kv_heads * block.head_dim;
}
template <class T>
__device__ inline HeadRows<T> key_rows(const AttentionBlock<T>& block, int64_t row, int64_t kv_head) {
  return {block.kv + key_offset(block, row, kv_head), 2 * block.kv_heads * block.head_dim, block.kv_len};
}
template <class T>
__device__ inline HeadRows<T> value_rows(const AttentionBlock<T>& block, int64_t row, int64_t kv_head) {
  HeadRows<T> rows = key_rows(block, row, kv_head);
  rows.base += value_offset(block);
  return rows;
}

}  // namespace sluice::core::cuda
