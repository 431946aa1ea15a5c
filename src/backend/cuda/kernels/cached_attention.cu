// SPDX-License-Identifier: Apache-2.0
// Attention of new tokens over a cache (ops/generation.h). The query heads that share a key head are rows of
// one tile beside the tokens. Where few tokens come, the keys are split, so that the whole GPU reads the
// cache; partial results are merged in the order of the splits.
//
// A new token's key and value are read from where they come, and written to the cache by the block of its
// tile. What a launch reads of the cache, none of its blocks writes.
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

// Keys per tile: heads of 512 fill 99 KiB, which every GPU has.
template <int D>
constexpr int kKeys = D <= 256 ? 64 : 32;
static_assert(kCacheSplit % kKeys<256> == 0);
constexpr int kMergeThreads = 128, kMergeWarps = kMergeThreads / kWarp;

struct Span {
  int64_t held, count;
};
__device__ Span span_of(const CachedBlock& b, int64_t row) {
  const int64_t count = b.spans[2 * row + 1];
  return {b.spans[2 * row], count < 0 ? 0 : count > b.q_len ? b.q_len : count};
}

// Where things lie for the block's row and key head.
struct Places {
  const CachedBlock& b;
  int64_t row, slot, kv_head;
  int64_t group;
  Span span;

  __device__ int64_t token(int64_t i) const { return row * b.q_len + i; }
  // The first key that token i sees.
  __device__ int64_t oldest(int64_t i) const {
    const int64_t first = span.held + i + 1 - b.window;
    return b.window > 0 && first > 0 ? first : 0;
  }
  // Place in q and o.
  __device__ int64_t query(int64_t i, int64_t g) const {
    return (token(i) * b.q_heads + kv_head * group + g) * b.head_dim;
  }
  // Place in kv of the new key (0) or value (1) of token i.
  __device__ int64_t fresh(int64_t i, int which) const {
    return ((token(i) * 2 + which) * b.kv_heads + kv_head) * b.head_dim;
  }
  // Place in the cache of key or value j.
  __device__ int64_t cached(int64_t j, int which) const {
    return (((slot * 2 + which) * b.kv_heads + kv_head) * b.capacity + j) * b.head_dim;
  }
  __device__ const bf16* key(int64_t j, int which) const {
    return j < span.held ? b.cache + cached(j, which) : b.kv + fresh(j - span.held, which);
  }
};

// Starts copying `count` rows to a tile; those that do not exist become zero. address(row) of one that does.
template <int D, int ROWS, class Address>
__device__ void copy_rows(bf16* tile, int64_t count, int head_dim, const bf16* valid, Address address) {
  constexpr int kChunks = D / kVec;
#pragma unroll
  for (int item = threadIdx.x; item < ROWS * kChunks; item += kAttentionThreads) {
    const int row = item / kChunks, column = item % kChunks * kVec;
    const bool is = row < count && column < head_dim;
    copy_async(tile + row * kTileStride<D> + column, is ? address(row) + column : valid, is);
  }
}

// Starts copying the keys from `begin` on, and their values, to tiles: new ones, or those of the cache with
// zeros for what does not exist.
template <int D>
__device__ void copy_first_keys(const Places& at, bf16* k_tile, bf16* v_tile, int64_t begin, int64_t end,
                                bool fresh) {
  constexpr int kChunks = D / kVec;
#pragma unroll
  for (int item = threadIdx.x; item < kKeys<D> * kChunks; item += kAttentionThreads) {
    const int row = item / kChunks, column = item % kChunks * kVec, to = row * kTileStride<D> + column;
    const int64_t j = begin + row;
    const bool is = j < end && column < at.b.head_dim;
    if ((is && j >= at.span.held) != fresh) continue;
    copy_async(k_tile + to, is ? at.key(j, 0) + column : at.b.q, is);
    copy_async(v_tile + to, is ? at.key(j, 1) + column : at.b.q, is);
  }
}

// Writes the keys and values of the tile's tokens [first, end) that lie in the block's keys to the cache.
template <int D>
__device__ void append(const Places& at, int64_t first, int64_t end, int64_t begin_key, int64_t end_key) {
  const int chunks = int(at.b.head_dim) / kVec;
  const int64_t items = (end - first) * 2 * chunks;
  for (int64_t item = threadIdx.x; item < items; item += kAttentionThreads) {
    const int64_t i = first + item / (2 * chunks), j = at.span.held + i;
    const int which = int(item / chunks % 2), column = int(item % chunks) * kVec;
    if (j < begin_key || j >= end_key) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(at.b.kv + at.fresh(i, which) + column);
    *reinterpret_cast<uint4*>(at.b.cache + at.cached(j, which) + column) = x;
  }
}

template <int D>
constexpr size_t shared_bytes() {
  return tile_bytes<D>(kOwnRows<D>) + 2 * tile_bytes<D>(kKeys<D>);
}

static_assert(shared_bytes<512>() <= 99 * 1024);

// A partial result: a sum of values relative to the largest score, that score in base 2, and the sum of
// probabilities.
__device__ float* partial_of(const CachedBlock& b, int64_t token, int64_t head, int64_t split) {
  return b.partial + ((token * b.q_heads + head) * b.splits + split) * (b.head_dim + 2);
}

// One block per (tile of tokens and split, key head, row).
template <int D, bool kExact>
__global__ void __launch_bounds__(kAttentionThreads) cached_attention_kernel(CachedBlock b) {
  bf16* q_tile = reinterpret_cast<bf16*>(dynamic_shared());
  bf16 *k_tile = q_tile + kOwnRows<D> * kTileStride<D>, *v_tile = k_tile + kKeys<D> * kTileStride<D>;
  const int64_t row = blockIdx.z;
  let_next_begin();
  const Places at{
      b, row, b.slots != nullptr ? b.slots[row] : row, blockIdx.y, b.q_heads / b.kv_heads, span_of(b, row)};
  constexpr int C = D / kSharing<D>;
  const int lane = threadIdx.x % kWarp, head_dim = int(b.head_dim);
  const int row_in_tile = warp_row<D>(), column = warp_column<D>();
  const int group = int(at.group), tokens = kOwnRows<D> / group;  // of a tile
  const int64_t splits = max(b.splits, int64_t{1});
  const int64_t tile = blockIdx.x / splits, split = blockIdx.x % splits, first = tile * tokens;
  const int64_t there = min(int64_t{tokens}, b.q_len - first);
  const int64_t count = max(min(at.span.count - first, int64_t{tokens}), int64_t{0});
  const int64_t lowest = b.partial != nullptr ? split * kCacheSplit : 0;
  const int64_t most = b.partial != nullptr ? lowest + kCacheSplit : b.capacity;
  const int64_t begin = max(lowest, at.oldest(first) / kKeys<D> * kKeys<D>);
  const int64_t end = count > 0 ? min(most, at.span.held + first + count) : begin;
  if (b.partial != nullptr && begin >= end) {  // the merge knows which splits there are
    await_previous();
    return;
  }
  // The first keys and values. Those of the cache were written by passes before this one, and spans before it
  // began; the kernels before this one make new ones, and q.
  copy_first_keys<D>(at, k_tile, v_tile, begin, end, /*fresh=*/false);
  await_previous();
  copy_first_keys<D>(at, k_tile, v_tile, begin, end, /*fresh=*/true);
  copy_rows<D, kOwnRows<D>>(q_tile, count * group, head_dim, b.q,
                            [&](int r) { return b.q + at.query(first + r / group, r % group); });
  const auto copy_keys = [&](bf16* to, int64_t key, int which) {
    copy_rows<D, kKeys<D>>(to, end - key, head_dim, b.q, [&](int r) { return at.key(key + r, which); });
  };
  // The keys that each of the thread's two rows sees.
  int64_t oldest[2], last[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = row_in_tile + lane / 4 + 8 * r;
    oldest[r] = at.oldest(first + own / group);
    last[r] = own < count * group ? at.span.held + first + own / group : -1;
  }
  // A token's heads are the rows of one warp, or fewer: the others of the block copy alone.
  const bool has_rows = row_in_tile < count * group;
  const float scale = b.scale * kLog2E;
  float acc[C / 8][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};
  close_copies();
  append<D>(at, first, first + count, lowest, most);
  for (int64_t key = begin; key < end; key += kKeys<D>) {
    await_copies<0>();
    __syncthreads();  // K is here, and every warp is done with the last V
    if (key > begin) copy_keys(v_tile, key, 1);
    close_copies();
    float s[kKeys<D> / 8][4] = {};
    if (has_rows) {
      multiply_rows<D, kKeys<D>>(s, q_tile + row_in_tile * kTileStride<D>, k_tile);
      if (b.softcap > 0) cap_scores<kKeys<D>>(s, b.scale, b.softcap);
#pragma unroll
      for (int n = 0; n < kKeys<D> / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t j = key + n * 8 + lane % 4 * 2 + i % 2;
          if (j > last[i / 2] || j < oldest[i / 2]) s[n][i] = -INFINITY;
        }
      }
    }
    await_copies<0>();
    __syncthreads();  // V is here, and every warp is done with this K
    if (key + kKeys<D> < end) copy_keys(k_tile, key + kKeys<D>, 0);
    close_copies();
    if (!has_rows) continue;
    fold_scores<C, kKeys<D>, kExact>(s, acc, row_max, row_sum, scale);
    multiply_columns<D, kKeys<D>, C>(acc, s, v_tile + column);
  }
  await_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = row_sum[r];
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    sum += __shfl_xor_sync(kFullWarp, sum, 2);
    const int own = row_in_tile + lane / 4 + 8 * r;
    const int64_t i = first + own / group;
    if (b.partial == nullptr) {
      if (own >= there * group) continue;
      float inverse = sum > 0 ? 1.0f / sum : 0.0f;
      if (b.sinks != nullptr && sum > 0) {
        const float sink = to_float(b.sinks[at.kv_head * group + own % group]) * kLog2E;
        const float top = fmaxf(row_max[r] * scale, sink), share = exp2f(row_max[r] * scale - top);
        inverse = share / (sum * share + exp2f(sink - top));
      }
      bf16* to = b.o + at.query(i, own % group) + column + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < C / 8; ++n) {
        if (column + n * 8 >= head_dim) continue;
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            pack_bf16(acc[n][2 * r] * inverse, acc[n][2 * r + 1] * inverse);
      }
    } else if (own < count * group) {
      float* to = partial_of(b, at.token(i), at.kv_head * group + own % group, split);
#pragma unroll
      for (int n = 0; n < C / 8; ++n) {
        if (column + n * 8 >= head_dim) continue;
        *reinterpret_cast<float2*>(to + column + n * 8 + lane % 4 * 2) =
            make_float2(acc[n][2 * r], acc[n][2 * r + 1]);
      }
      if (column == 0 && lane % 4 == 0) {
        to[head_dim] = row_max[r] * scale;
        to[head_dim + 1] = sum;
      }
    }
  }
}

// One block per (token, head); its warps take turns with the splits.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(CachedBlock b) {
  __shared__ float tops[kMergeWarps], sums[kMergeWarps], values[kMergeWarps][kMaxHeadDim];
  let_next_begin();
  const int64_t token = blockIdx.x, head = blockIdx.y, i = token % b.q_len;
  const Span span = span_of(b, token / b.q_len);
  const int64_t oldest = b.window > 0 ? max(span.held + i + 1 - b.window, int64_t{0}) : 0;
  const int64_t begin = oldest / kCacheSplit, splits = i < span.count ? (span.held + i) / kCacheSplit + 1 : 0;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, head_dim = int(b.head_dim);
  await_previous();
  float top = -INFINITY;
  for (int64_t s = begin + threadIdx.x; s < splits; s += kMergeThreads)
    top = fmaxf(top, partial_of(b, token, head, s)[head_dim]);
  top = warp_max(top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  for (const float other : tops) top = fmaxf(top, other);
  const float sink = b.sinks != nullptr ? to_float(b.sinks[head]) * kLog2E : -INFINITY;
  top = fmaxf(top, sink);

  constexpr int kPairs = int(kMaxHeadDim) / (2 * kWarp);
  float2 value[kPairs] = {};
  float sum = 0;
#pragma unroll 4
  for (int64_t s = begin + warp; s < splits; s += kMergeWarps) {
    const float* part = partial_of(b, token, head, s);
    const float share = exp2f(part[head_dim] - top);
    sum += share * part[head_dim + 1];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int d = (n * kWarp + lane) * 2;
      if (d >= head_dim) continue;
      const float2 x = *reinterpret_cast<const float2*>(part + d);
      value[n].x += share * x.x;
      value[n].y += share * x.y;
    }
  }
#pragma unroll
  for (int n = 0; n < kPairs; ++n)
    *reinterpret_cast<float2*>(&values[warp][(n * kWarp + lane) * 2]) = value[n];
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  for (int d = threadIdx.x; d < head_dim; d += kMergeThreads) {
    float all = 0, whole = b.sinks != nullptr ? exp2f(sink - top) : 0.0f;
    for (int w = 0; w < kMergeWarps; ++w) {
      all += values[w][d];
      whole += sums[w];
    }
    store_float(b.o + (token * b.q_heads + head) * head_dim + d, splits > 0 ? all / whole : 0.0f);
  }
}

constexpr int kCopyThreads = 256;
constexpr int64_t kCopied = 8;  // vectors of each thread

__global__ void __launch_bounds__(kCopyThreads)
    copy_rows_kernel(const int32_t* which, uint4* x, int64_t row_vectors) {
  const int64_t row = blockIdx.y, from = which[row];
  if (from == row) return;
  const int64_t begin = int64_t{blockIdx.x} * kCopyThreads * kCopied + threadIdx.x;
#pragma unroll
  for (int64_t i = begin; i < begin + kCopyThreads * kCopied; i += kCopyThreads) {
    if (i < row_vectors) x[row * row_vectors + i] = x[from * row_vectors + i];
  }
}

template <int D>
cudaError_t run(const CachedBlock& b, Queue queue) {
  const int64_t tokens = kOwnRows<D> / (b.q_heads / b.kv_heads);
  const int64_t splits = b.splits > 0 ? b.splits : 1;
  const dim3 grid(blocks_for(b.q_len, tokens) * unsigned(splits), unsigned(b.kv_heads), unsigned(b.rows));
  const auto kernel = b.exact ? cached_attention_kernel<D, true> : cached_attention_kernel<D, false>;
  const cudaError_t status = launch(kernel, grid, kAttentionThreads, shared_bytes<D>(), queue, b);
  if (status != cudaSuccess || b.partial == nullptr) return status;
  const dim3 merges(unsigned(b.rows * b.q_len), unsigned(b.q_heads));
  return launch(merge_kernel, merges, kMergeThreads, 0, queue, b);
}

}  // namespace

cudaError_t cached_attention(const CachedBlock& block, Queue queue) {
  return with_head_columns(block.head_dim, [&](auto columns) { return run<columns>(block, queue); });
}

cudaError_t copy_rows(const int32_t* which, void* x, int64_t rows, int64_t row_bytes, cudaStream_t stream) {
  const int64_t vectors = row_bytes / int64_t{sizeof(uint4)};
  const dim3 grid(blocks_for(vectors, kCopyThreads * kCopied), unsigned(rows));
  return launch(copy_rows_kernel, grid, kCopyThreads, 0, stream, which, static_cast<uint4*>(x), vectors);
}

}  // namespace sluice::core::cuda
