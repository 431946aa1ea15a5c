// SPDX-License-Identifier: Apache-2.0
// The gradients of attention: see attention_tiles.cuh.
#include "backend/cuda/hopper/attention_tiles.cuh"

namespace sluice::core::cuda {
namespace {

// A tile of queries with the gradients of their outputs and one of keys with their values; of both, weights
// and their gradients; what the groups exchange.
template <int D>
struct BackwardTiles {
  static constexpr int kGiven = kKeysBack<D> / 16;  // vectors of what a thread gives

  unsigned char* base;

  __device__ unsigned char* q() const { return base; }
  __device__ unsigned char* d_o() const { return q() + kTileBytes<D, kQueries>; }
  __device__ unsigned char* k() const { return d_o() + kTileBytes<D, kQueries>; }
  __device__ unsigned char* v() const { return k() + kTileBytes<D, kKeysBack<D>>; }
  __device__ unsigned char* p() const { return v() + kTileBytes<D, kKeysBack<D>>; }
  __device__ unsigned char* ds() const { return p() + kPanelBytes<kQueries>; }
  __device__ float4& given(int group, int i) const {
    auto* const all = reinterpret_cast<float4*>(ds() + kPanelBytes<kQueries>);
    return all[(group * kGiven + i) * kGroupThreads + int(threadIdx.x) % kGroupThreads];
  }
  __device__ unsigned char* barriers() const {
    return ds() + kPanelBytes<kQueries> + kGiven * kMultipliers * sizeof(float4);
  }
  static constexpr size_t bytes() {
    constexpr int kTiles = kTileBytes<D, kQueries> + kTileBytes<D, kKeysBack<D>> + kPanelBytes<kQueries>;
    return 1024 + 2 * kTiles + kGiven * kMultipliers * sizeof(float4) + Stages<D>::kBytes;
  }
};
static_assert(BackwardTiles<512>::bytes() <= 227 * 1024 && BackwardTiles<256>::bytes() <= 227 * 1024);

// A query's values for the keys of a tile; lse in powers of two.
struct TileQuery {
  KeyRange seen;
  float lse, delta;

  __device__ TileQuery(const AttentionSizes& block, const float* all_lse, const float* all_delta, int64_t row,
                       int64_t head, int64_t i)
      : seen(visible_keys(block, row, i)), lse(0), delta(0) {
    if (i >= block.q_len) return;
    const int64_t at = (row * block.q_heads + head) * block.q_len + i;
    lse = all_lse[at] * kLog2E;
    delta = all_delta[at];
  }
};

// Weights p and their gradients ds of a tile, which go to shared memory. A group multiplies one of the two
// pairs of tiles and gives half of what comes of it to the other group. Then it has half of the keys of
// both. Calls `between` when both groups have multiplied. All are there when it returns.
template <int D, class Between>
__device__ void weigh(const BackwardTiles<D>& tiles, const AttentionSizes& block,
                      const TileQuery (&queries)[2], int first_key, const Stages<D>& stages,
                      Between between) {
  constexpr int kOwn = kKeysBack<D> / 2;  // keys of a group
  const int group = own_group();
  float product[kOwn];
  multiply_heads<D, kQueries, kKeysBack<D>, kKeysBack<D>>(
      product, along(group == 0 ? tiles.q() : tiles.d_o()), along(group == 0 ? tiles.k() : tiles.v()), stages,
      group);
#pragma unroll
  for (int n = 0; n < kOwn / 8; ++n) {
    const float *low = product + 4 * n, *high = low + kOwn / 2;
    tiles.given(group, n) = group == 0 ? make_float4(high[0], high[1], high[2], high[3])
                                       : make_float4(low[0], low[1], low[2], low[3]);
  }
  await_multipliers();
  between();
#pragma unroll
  for (int n = 0; n < kOwn / 8; ++n) {
    const float4 got = tiles.given(1 - group, n);
    const float others[4] = {got.x, got.y, got.z, got.w};
    float p[4], ds[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const TileQuery& query = queries[i / 2];
      const float own = group == 0 ? product[4 * n + i] : product[kOwn / 2 + 4 * n + i];
      const float dp = group == 0 ? others[i] : own;
      float s = group == 0 ? own : others[i], slope = 1;
      if (block.softcap > 0) {
        s = capped(s, block.scale, block.softcap);
        slope = cap_slope(s, block.scale, block.softcap);
      }
      const bool visible = query.seen.has(first_key + group * kOwn + n * 8 + own_pair() + i % 2);
      p[i] = visible ? exp2f(s * (block.scale * kLog2E) - query.lse) : 0.0f;
      ds[i] = p[i] * (dp - query.delta) * slope;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = in_panel(own_query() + 8 * r, group * kOwn + n * 8 + own_pair());
      *reinterpret_cast<uint32_t*>(tiles.p() + at) = pack_bf16(p[2 * r], p[2 * r + 1]);
      *reinterpret_cast<uint32_t*>(tiles.ds() + at) = pack_bf16(ds[2 * r], ds[2 * r + 1]);
    }
  }
  see_copies();
  await_multipliers();
}

// Clusters of two blocks per (pair of tiles of queries, key head, row): dq.
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_dq_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap kv_heads,
                               const bf16* d_o, const float* lse, const float* delta, bf16* dq) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const BackwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), group = own_group();
  const QueryTile own(block);
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  int key = own.first_key<kKeysBack<D>>();
  if (group == kGroups) {
    give_up_registers<kCopyRegisters>();
    for (; threadIdx.x == kMultipliers && key < own.both.end; key += kKeysBack<D>, stages.advance()) {
      stages.template copy<kKeysBack<D>>(0, tiles.k(), &kv_heads, int(own.kv_head), key, own.row);
      stages.template copy<kKeysBack<D>>(1, tiles.v(), &kv_heads, int(block.kv_heads + own.kv_head), key,
                                         own.row);
    }
  } else {
    take_registers<kProductRegisters>();
    const TileQuery queries[2] = {{block, lse, delta, own.row, own.head, own.first + own_query()},
                                  {block, lse, delta, own.row, own.head, own.first + own_query() + 8}};
    float sums[kHalf<D> / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    copy_half<D, kQueries>(tiles.q(), query_rows(block, block.q, own.row, own.head), own.first, head_dim);
    copy_half<D, kQueries>(tiles.d_o(), query_rows(block, d_o, own.row, own.head), own.first, head_dim);
    await_halves();
    for (; key < own.both.end; key += kKeysBack<D>, stages.advance()) {
      if (!own.range.touches(key, kKeysBack<D>)) {
        stages.pass();
        continue;
      }
      // Both groups have multiplied: nobody reads values any more.
      weigh(tiles, block, queries, key, stages, [&] {
        stages.await_half(1);
        stages.release_half(1);
      });
      stages.await_half(0);
      add_columns<D, kKeysBack<D>>(sums, tiles.ds(), tiles.k());
      stages.release_half(0);
    }
    const float factor[2] = {block.scale, block.scale};
    store_queries<D>(sums, query_rows<bf16>(block, dq, own.row, own.head), own.first, head_dim, factor);
  }
  end_cluster();
#endif
}

// Sums of keys lie turned: a panel of columns by keys.
template <int D>
using KeySums = float[kHalf<D> / kPanel][kKeysBack<D> / 2];

// sums += the group's half of a's columns, turned, times weights, a part after the other: products that are
// on their way.
template <int D>
__device__ void add_turned(KeySums<D>& sums, const unsigned char* a, const unsigned char* weights) {
  const uint64_t columns = across<kQueries>(a + own_group() * (kTileBytes<D, kQueries> / 2));
  const uint64_t w = across<kQueries>(weights);
#pragma unroll
  for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
    for (int k = 0; k < kQueries / 16; ++k)
      GroupProduct<kKeysBack<D>, 1, 1>::add(
          sums[panel], columns + panel * (kPanelBytes<kQueries> / 16) + k * kAcross, w + k * kAcross, 1);
    if (panel % kCluster == kCluster - 1) close_products();
  }
}
// Waits for these products of both sums, and releases parts as they end.
template <int D, int kDone = 0>
__device__ void release_in_turn(const Stages<D>& stages) {
  constexpr int kOfStage = Stages<D>::kPartsOfGroup;
  if constexpr (kDone < 2 * kOfStage) {
    await_products<2 * kOfStage - 1 - kDone>();
    stages.release(kDone / kOfStage, kDone % kOfStage);
    release_in_turn<D, kDone + 1>(stages);
  }
}
template <int D>
__device__ void store_keys(const KeySums<D>& sums, bf16* base, const HeadRows<bf16>& rows, int first,
                           int head_dim, float factor) {
  const int lane = int(threadIdx.x) % kWarp, begin = own_group() * kHalf<D> + own_query() - lane / 4;
#pragma unroll
  for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
    for (int i = 0; i < kKeysBack<D> / 2; i += 2) {
      const uint32_t pair = turned(pack_bf16(sums[panel][i] * factor, sums[panel][i + 1] * factor));
      const int key = first + i / 4 * 8 + lane / 4;
      const int column = begin + panel * kPanel + i / 2 % 2 * 8;
      if (key < rows.count && column < head_dim)
        *reinterpret_cast<uint32_t*>(base + key * rows.stride + column + own_pair()) = pair;
    }
  }
}

// Clusters of two blocks per (pair of tiles of keys, key head, row): dk and dv.
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_dkv_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap q_heads,
                                const __grid_constant__ CUtensorMap d_o_heads, const float* lse,
                                const float* delta, bf16* dkv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const BackwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), first = int(blockIdx.x) * kKeysBack<D>;
  const int64_t kv_head = blockIdx.y, row = blockIdx.z, shared = block.q_heads / block.kv_heads;
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  constexpr int kBoth = kCluster * kKeysBack<D>;
  QuerySteps<kBoth, kQueries> step(block, row, first / kBoth * kBoth);
  if (own_group() == kGroups) {
    give_up_registers<kCopyRegisters>();
    // One warp looks for tiles, of which one thread copies.
    for (; threadIdx.x < kMultipliers + kWarp && !step.done(); step.advance(), stages.advance()) {
      const int head = int(kv_head * shared) + step.head;
      if (threadIdx.x == kMultipliers) {
        stages.template copy<kQueries>(0, tiles.q(), &q_heads, head, step.query, row);
        stages.template copy<kQueries>(1, tiles.d_o(), &d_o_heads, head, step.query, row);
      }
      __syncwarp();
    }
  } else {
    take_registers<kProductRegisters>();
    const HeadRows<bf16> k_rows = key_rows(block, row, kv_head);
    KeySums<D> dk, dv;
#pragma unroll
    for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
      for (int i = 0; i < kKeysBack<D> / 2; ++i) dk[panel][i] = dv[panel][i] = 0;
    }
    copy_half<D, kKeysBack<D>>(tiles.k(), k_rows, first, head_dim);
    copy_half<D, kKeysBack<D>>(tiles.v(), value_rows(block, row, kv_head), first, head_dim);
    await_halves();
    for (; !step.done(); stages.advance()) {
      const int64_t head = kv_head * shared + step.head, i = step.query + own_query();
      const TileQuery queries[2] = {{block, lse, delta, row, head, i}, {block, lse, delta, row, head, i + 8}};
      weigh(tiles, block, queries, first, stages, [] {});
      stages.await_half(0);
      stages.await_half(1);
      begin_products();
      add_turned<D>(dk, tiles.q(), tiles.ds());
      add_turned<D>(dv, tiles.d_o(), tiles.p());
      step.advance();  // while products run
      release_in_turn<D>(stages);
    }
#pragma unroll
    for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) pin(dk[panel]), pin(dv[panel]);
    bf16* const out = dkv + key_offset(block, row, kv_head);
    store_keys<D>(dk, out, k_rows, first, head_dim, block.scale);
    store_keys<D>(dv, out + value_offset(block), k_rows, first, head_dim, 1.0f);
  }
  end_cluster();
#endif
}

template <int D>
cudaError_t run_backward(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                         const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream) {
  CUtensorMap kv_heads, q_heads, d_o_heads;
  auto status = describe_heads(block.kv, block, 2 * block.kv_heads, block.kv_len, kKeysBack<D>, kv_heads);
  if (status == cudaSuccess)
    status = describe_heads(block.q, block, block.q_heads, block.q_len, kQueries, q_heads);
  if (status == cudaSuccess)
    status = describe_heads(d_o, block, block.q_heads, block.q_len, kQueries, d_o_heads);
  if (status == cudaSuccess)
    status = start(attention_hopper_dkv_kernel<D>, block, (block.kv_len + kKeysBack<D> - 1) / kKeysBack<D>,
                   BackwardTiles<D>::bytes(), stream, block, q_heads, d_o_heads, lse, delta, dkv);
  if (status != cudaSuccess) return status;
  return start(attention_hopper_dq_kernel<D>, block, query_tiles(block), BackwardTiles<D>::bytes(), stream,
               block, kv_heads, d_o, lse, delta, dq);
}

}  // namespace

cudaError_t hopper_attention_bwd(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                                 const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream) {
  return block.head_dim > 256 ? run_backward<512>(block, d_o, lse, delta, dq, dkv, stream)
                              : run_backward<256>(block, d_o, lse, delta, dq, dkv, stream);
}

}  // namespace sluice::core::cuda
