// SPDX-License-Identifier: Apache-2.0
// Attention forward over one block of keys (online softmax, Milakov and Gimelshein 2018; tiled as in
// FlashAttention-2, Dao 2023). Serves packed documents and every shape that cuDNN does not take. Heads above
// 128 have kernels of their own on compute capability 9.0 (hopper/attention_tiles.cuh).
#include <type_traits>

#include "backend/cuda/kernels/attention_hopper.h"
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

// Keys per tile: heads of 512 fill 99 KiB, which every GPU has.
template <int D>
constexpr int kKeys = D <= 256 ? 64 : 32;

template <int D>
struct ForwardTiles {
  bf16 *q, *k, *v;

  __device__ explicit ForwardTiles(unsigned char* shared)
      : q(reinterpret_cast<bf16*>(shared)),
        k(q + kOwnRows<D> * kTileStride<D>),
        v(k + kKeys<D> * kTileStride<D>) {}
  static constexpr size_t bytes() { return tile_bytes<D>(kOwnRows<D>) + 2 * tile_bytes<D>(kKeys<D>); }
};

static_assert(ForwardTiles<512>::bytes() <= 99 * 1024);

// The end of a lane's two rows, queries i0 + lane / 4 and eight behind it: what their sums of exponentials
// are divided by, and, if `writes`, their lse.
__device__ inline void end_rows(const AttentionBlock<bf16>& block, int64_t row, int64_t head, int64_t i0,
                                bool writes, const float (&row_max)[2], const float (&row_sum)[2],
                                float (&inverse)[2], float* lse) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = row_sum[r];
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    sum += __shfl_xor_sync(kFullWarp, sum, 2);
    inverse[r] = sum > 0 ? 1.0f / sum : 0.0f;
    const int64_t i = i0 + lane / 4 + 8 * r;
    if (writes && lane % 4 == 0 && i < block.q_len) {
      lse[(row * block.q_heads + head) * block.q_len + i] =
          sum > 0 ? row_max[r] * block.scale + logf(sum) : -INFINITY;
    }
  }
}

// The tiles of keys that a tile of queries sees, and which of them a lane's two rows see.
template <int D>
class WholeRow {
 public:
  __device__ WholeRow(const AttentionBlock<bf16>& block, int64_t row, int64_t first, const int (&own)[2])
      : range_(tile_range<kOwnRows<D>>(block, row, first)),
        seen_{visible_keys(block, row, first + own[0]), visible_keys(block, row, first + own[1])},
        key_(range_.begin < range_.end ? range_.begin / kKeys<D> * kKeys<D> : 0) {}
  __device__ int key() const { return key_; }
  __device__ bool done() const { return key_ >= range_.end; }
  __device__ void advance() { key_ += kKeys<D>; }
  __device__ bool masked() const { return !range_.covers(key_, kKeys<D>); }
  __device__ bool sees(int r, int key) const { return seen_[r].has(key); }

 private:
  const TileRange range_;
  const KeyRange seen_[2];
  int key_;
};

// The same by documents: exact_attention_fwd(). By whole blocks.
template <int D>
class ByDocuments {
 public:
  __device__ ByDocuments(const AttentionBlock<bf16>& block, int64_t row, int64_t first, const int (&own)[2])
      : origins_(origins_of(block, row, first)),
        origin_{origins_[own[0]], origins_[own[1]]},
        seen_{visible_keys(block, row, first + own[0]), visible_keys(block, row, first + own[1])},
        step_(block, origins_, first) {}
  __device__ int key() const { return step_.key; }
  __device__ bool done() const { return step_.done(); }
  __device__ void advance() { step_.advance(); }
  __device__ bool masked() const { return true; }
  __device__ bool sees(int r, int key) const { return origin_[r] == step_.origin && seen_[r].has(key); }

 private:
  static __device__ const int* origins_of(const AttentionBlock<bf16>& block, int64_t row, int64_t first) {
    __shared__ int origins[kOwnRows<D>];
    for (int i = threadIdx.x; i < kOwnRows<D>; i += kAttentionThreads) {
      const int64_t query = first + i;
      origins[i] = query >= block.q_len ? INT_MAX
                   : block.packed       ? int(query - block.pos[row * block.q_len + query])
                                        : 0;
    }
    __syncthreads();
    return origins;
  }

  const int* const origins_;
  const int origin_[2];
  const KeyRange seen_[2];
  DocumentTiles<kOwnRows<D>, kKeys<D>> step_;
};

// One block per (tile of queries, query head, row).
template <int D, bool kExact>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_fwd_kernel(AttentionBlock<bf16> block, bf16* o, float* lse) {
  const ForwardTiles<D> tiles(dynamic_shared());
  constexpr int C = D / kSharing<D>;
  const int lane = threadIdx.x % kWarp, head_dim = int(block.head_dim);
  const int row_in_tile = warp_row<D>(), column = warp_column<D>();
  // The last queries see most keys: start them first.
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kOwnRows<D>;
  const int64_t head = blockIdx.y, row = blockIdx.z, kv_head = head / (block.q_heads / block.kv_heads);
  const HeadRows<bf16> k_rows = key_rows(block, row, kv_head), v_rows = value_rows(block, row, kv_head);
  const int own[2] = {row_in_tile + lane / 4, row_in_tile + lane / 4 + 8};
  std::conditional_t<kExact, ByDocuments<D>, WholeRow<D>> step(block, row, first, own);
  const float scale = block.scale * kLog2E;

  float acc[C / 8][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};
  copy_tile<D, kOwnRows<D>>(tiles.q, query_rows(block, block.q, row, head), first, head_dim);
  copy_tile<D, kKeys<D>>(tiles.k, k_rows, step.key(), head_dim);
  close_copies();
  while (!step.done()) {
    await_copies<0>();
    __syncthreads();  // K is here, and every warp is done with the last V
    copy_tile<D, kKeys<D>>(tiles.v, v_rows, step.key(), head_dim);
    close_copies();

    float s[kKeys<D> / 8][4] = {};
    multiply_rows<D, kKeys<D>>(s, tiles.q + row_in_tile * kTileStride<D>, tiles.k);
    if (block.softcap > 0) cap_scores<kKeys<D>>(s, block.scale, block.softcap);
    const bool masked = step.masked();
#pragma unroll
    for (int n = 0; n < kKeys<D> / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (masked && !step.sees(i / 2, step.key() + n * 8 + lane % 4 * 2 + i % 2)) s[n][i] = -INFINITY;
      }
    }
    step.advance();
    await_copies<0>();
    __syncthreads();  // V is here, and every warp is done with this K
    if (!step.done()) copy_tile<D, kKeys<D>>(tiles.k, k_rows, step.key(), head_dim);
    close_copies();
    fold_scores<C, kKeys<D>, kExact>(s, acc, row_max, row_sum, scale);
    multiply_columns<D, kKeys<D>, C>(acc, s, tiles.v + column);
  }
  await_copies<0>();

  float inverse[2];
  end_rows(block, row, head, first + row_in_tile, column == 0, row_max, row_sum, inverse, lse);
  const HeadRows<bf16> out = query_rows(block, o, row, head);
  store_rows<C>(acc, const_cast<bf16*>(out.base) + column, out.stride, first + row_in_tile, out.count,
                head_dim - column, inverse[0], inverse[1]);
}

template <bool kExact>
cudaError_t run(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream) {
  return with_head_columns(block.head_dim, [&](auto columns) {
    constexpr int D = columns;
    const dim3 grid(blocks_for(block.q_len, kOwnRows<D>), unsigned(block.q_heads), unsigned(block.rows));
    return launch(attention_fwd_kernel<D, kExact>, grid, kAttentionThreads, ForwardTiles<D>::bytes(), stream,
                  block, o, lse);
  });
}

}  // namespace

cudaError_t attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream) {
  if (hopper_attention(block.head_dim)) return hopper_attention_fwd(block, o, lse, stream);
  return run<false>(block, o, lse, stream);
}

cudaError_t exact_attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream) {
  return run<true>(block, o, lse, stream);
}

}  // namespace sluice::core::cuda
