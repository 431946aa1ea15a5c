// SPDX-License-Identifier: Apache-2.0
// Attention forward: see attention_tiles.cuh.
#include "backend/cuda/hopper/attention_tiles.cuh"

namespace sluice::core::cuda {
namespace {

// Queries, keys and values, weights of keys, and what the groups tell each other of every query.
template <int D>
struct ForwardTiles {
  unsigned char* base;

  __device__ unsigned char* q() const { return base; }
  __device__ unsigned char* k() const { return base + kTileBytes<D, kQueries>; }
  __device__ unsigned char* v() const { return k() + kTileBytes<D, kKeys>; }
  __device__ unsigned char* weights() const { return v() + kTileBytes<D, kKeys>; }
  __device__ float& of_query(int group, int query) const {
    return reinterpret_cast<float*>(weights() + kPanelBytes<kQueries>)[group * kQueries + query];
  }
  __device__ unsigned char* barriers() const {
    return weights() + kPanelBytes<kQueries> + kGroups * kQueries * sizeof(float);
  }
  static constexpr size_t bytes() {
    return 1024 + kTileBytes<D, kQueries> + 2 * kTileBytes<D, kKeys> + kPanelBytes<kQueries> +
           kGroups * kQueries * sizeof(float) + Stages<D>::kBytes;
  }
};
static_assert(ForwardTiles<512>::bytes() <= 227 * 1024);

// Clusters of two blocks per (pair of tiles of queries, key head, row).
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_fwd_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap kv_heads,
                                bf16* o, float* lse) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const ForwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), group = own_group();
  const QueryTile own(block);
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  int key = own.first_key<kKeys>();
  if (group == kGroups) {
    give_up_registers<kCopyRegisters>();
    for (; threadIdx.x == kMultipliers && key < own.both.end; key += kKeys, stages.advance()) {
      stages.template copy<kKeys>(0, tiles.k(), &kv_heads, int(own.kv_head), key, own.row);
      stages.template copy<kKeys>(1, tiles.v(), &kv_heads, int(block.kv_heads + own.kv_head), key, own.row);
    }
  } else {
    take_registers<kProductRegisters>();
    const KeyRange seen[2] = {visible_keys(block, own.row, own.first + own_query()),
                              visible_keys(block, own.row, own.first + own_query() + 8)};
    const float scale = block.scale * kLog2E;
    float sums[kHalf<D> / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};  // sums over the group's keys
    copy_half<D, kQueries>(tiles.q(), query_rows(block, block.q, own.row, own.head), own.first, head_dim);
    await_halves();
    for (; key < own.both.end; key += kKeys, stages.advance()) {
      if (!own.range.touches(key, kKeys)) {
        stages.pass();
        continue;
      }
      float s[kKeys / 4];
      multiply_heads<D, kQueries, kKeys, kKeys / 2>(s, along(tiles.q()),
                                                    along(tiles.k(), group * (kKeys / 2)), stages, 0);
      const bool masked = !own.range.covers(key, kKeys);
      float top[2] = {row_max[0], row_max[1]};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int r = i / 2 % 2;
        if (block.softcap > 0) s[i] = capped(s[i], block.scale, block.softcap);
        if (masked && !seen[r].has(key + group * (kKeys / 2) + i / 4 * 8 + own_pair() + i % 2))
          s[i] = -INFINITY;
        top[r] = fmaxf(top[r], s[i]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(top[r], __shfl_xor_sync(kFullWarp, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(kFullWarp, top[r], 2));
        tiles.of_query(group, own_query() + 8 * r) = top[r];
      }
      // Both groups' largest scores are here, and they are done with K and the last weights.
      await_multipliers();
      stages.release_half(0);
      float rescale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(top[r], tiles.of_query(1 - group, own_query() + 8 * r));
        const float base = top[r] == -INFINITY ? 0.0f : top[r] * scale;
        rescale[r] = exp2f(row_max[r] * scale - base);
        row_max[r] = top[r];
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float low = exp2f(s[4 * n + 2 * r] * scale - base);
          const float high = exp2f(s[4 * n + 2 * r + 1] * scale - base);
          sum += low + high;
          const int column = group * (kKeys / 2) + n * 8 + own_pair();
          *reinterpret_cast<uint32_t*>(tiles.weights() + in_panel(own_query() + 8 * r, column)) =
              pack_bf16(low, high);
        }
        row_sum[r] = row_sum[r] * rescale[r] + sum;
      }
      if (__any_sync(kFullWarp, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < kHalf<D> / 2; ++i) sums[i] *= rescale[i / 2 % 2];
      }
      see_copies();
      await_multipliers();  // all weights are here
      stages.await_half(1);
      add_columns<D, kKeys>(sums, tiles.weights(), tiles.v());
      stages.release_half(1);
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_sum[r] += __shfl_xor_sync(kFullWarp, row_sum[r], 1);
      row_sum[r] += __shfl_xor_sync(kFullWarp, row_sum[r], 2);
    }
    await_multipliers();  // nobody reads largest scores any more
#pragma unroll
    for (int r = 0; r < 2; ++r) tiles.of_query(group, own_query() + 8 * r) = row_sum[r];
    await_multipliers();
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = own_query() + 8 * r;
      const float sum = tiles.of_query(0, query) + tiles.of_query(1, query);
      inverse[r] = sum > 0 ? 1.0f / sum : 0.0f;
      if (group == 0 && threadIdx.x % 4 == 0 && own.first + query < block.q_len) {
        lse[(own.row * block.q_heads + own.head) * block.q_len + own.first + query] =
            sum > 0 ? row_max[r] * block.scale + logf(sum) : -INFINITY;
      }
    }
    store_queries<D>(sums, query_rows<bf16>(block, o, own.row, own.head), own.first, head_dim, inverse);
  }
  end_cluster();
#endif
}

template <int D>
cudaError_t run_forward(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream) {
  CUtensorMap kv_heads;
  const auto status = describe_heads(block.kv, block, 2 * block.kv_heads, block.kv_len, kKeys, kv_heads);
  if (status != cudaSuccess) return status;
  return start(attention_hopper_fwd_kernel<D>, block, query_tiles(block), ForwardTiles<D>::bytes(), stream,
               block, kv_heads, o, lse);
}

}  // namespace

bool hopper_attention(int64_t head_dim) {
  return head_dim > 128 && head_dim <= 512 && is_hopper();
}

cudaError_t hopper_attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse,
                                 cudaStream_t stream) {
  return block.head_dim > 256 ? run_forward<512>(block, o, lse, stream)
                              : run_forward<256>(block, o, lse, stream);
}

}  // namespace sluice::core::cuda
