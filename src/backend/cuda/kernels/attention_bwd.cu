// SPDX-License-Identifier: Apache-2.0
// Attention backward over one block of keys, given the output's row sums and the global log-sum-exp:
//   p = exp(scale q k^T - lse), dp = do v^T, ds = p (dp - delta)
//   dv = p^T do, dk = scale ds^T q, dq = scale ds k
//
// Two kernels, one owning keys and one owning queries: each sums in its own registers, in a fixed order,
// without atomics, at the price of computing p and dp twice.
#include "backend/cuda/kernels/attention_hopper.h"
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

// Rows of a tile that streams past, and its stages: with those that stay, heads of 256 and of 512 fill 99
// KiB, which every GPU has.
template <int D>
constexpr int kStep = D <= 128 ? 32 : 16;
template <int D>
constexpr int kStages = D <= 256 ? 2 : 1;
// Parts of the columns of dk and dv that blocks of their own sum.
template <int D>
constexpr int kColumnParts = D <= 128 ? 1 : 2;

// Two tiles that stay and stages of two tiles that stream past.
template <int D>
struct BackwardTiles {
  static constexpr int kOwn = kOwnRows<D> * kTileStride<D>, kPast = kStep<D> * kTileStride<D>;
  bf16* base;

  __device__ explicit BackwardTiles(unsigned char* shared) : base(reinterpret_cast<bf16*>(shared)) {}
  __device__ bf16* own(int i) const { return base + i * kOwn; }
  __device__ bf16* past(int stage, int i) const { return base + 2 * kOwn + (stage * 2 + i) * kPast; }
  static constexpr size_t bytes() {
    return 2 * tile_bytes<D>(kOwnRows<D>) + 2 * kStages<D> * tile_bytes<D>(kStep<D>);
  }
};

static_assert(BackwardTiles<256>::bytes() <= 99 * 1024 && BackwardTiles<512>::bytes() <= 99 * 1024);

// One block per (tile of queries, query head, row): dq.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dq_kernel(AttentionBlock<bf16> block, const bf16* d_o, const float* lse, const float* delta,
                        bf16* dq) {
  constexpr int kKeys = kStep<D>, C = D / kSharing<D>;
  const BackwardTiles<D> tiles(dynamic_shared());
  const int lane = threadIdx.x % kWarp, head_dim = int(block.head_dim);
  const int row_in_tile = warp_row<D>(), column = warp_column<D>();
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kOwnRows<D>;
  const int64_t head = blockIdx.y, row = blockIdx.z, kv_head = head / (block.q_heads / block.kv_heads);
  const HeadRows<bf16> k_rows = key_rows(block, row, kv_head), v_rows = value_rows(block, row, kv_head);
  const TileRange range = tile_range<kOwnRows<D>>(block, row, first);
  const float scale = block.scale;

  KeyRange seen[2];
  float row_lse[2] = {}, row_delta[2] = {};  // lse in powers of two
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t i = first + row_in_tile + lane / 4 + 8 * r;
    seen[r] = visible_keys(block, row, i);
    if (i >= block.q_len) continue;
    const int64_t at = (row * block.q_heads + head) * block.q_len + i;
    row_lse[r] = lse[at] * kLog2E;
    row_delta[r] = delta[at];
  }

  const auto copy_step = [&](int key, int stage) {
    copy_tile<D, kKeys>(tiles.past(stage, 0), k_rows, key, head_dim);
    copy_tile<D, kKeys>(tiles.past(stage, 1), v_rows, key, head_dim);
  };
  copy_tile<D, kOwnRows<D>>(tiles.own(0), query_rows(block, block.q, row, head), first, head_dim);
  copy_tile<D, kOwnRows<D>>(tiles.own(1), query_rows(block, d_o, row, head), first, head_dim);
  int key = range.begin < range.end ? range.begin / kKeys * kKeys : 0;
  copy_step(key, 0);
  close_copies();

  float acc[C / 8][4] = {};
  const bf16* q_tile = tiles.own(0) + row_in_tile * kTileStride<D>;
  const bf16* d_o_tile = tiles.own(1) + row_in_tile * kTileStride<D>;
  for (int stage = 0; key < range.end; key += kKeys, stage ^= kStages<D> - 1) {
    if (kStages<D> == 2 && key + kKeys < range.end) copy_step(key + kKeys, stage ^ 1);
    close_copies();
    await_copies<kStages<D> - 1>();
    __syncthreads();
    float s[kKeys / 8][4] = {}, dp[kKeys / 8][4] = {};
    multiply_rows<D, kKeys>(s, q_tile, tiles.past(stage, 0));
    if (block.softcap > 0) cap_scores<kKeys>(s, scale, block.softcap);
    multiply_rows<D, kKeys>(dp, d_o_tile, tiles.past(stage, 1));
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        const bool visible = seen[r].has(key + n * 8 + lane % 4 * 2 + i % 2);
        const float p = visible ? exp2f(s[n][i] * (scale * kLog2E) - row_lse[r]) : 0.0f;
        const float slope = block.softcap > 0 ? cap_slope(s[n][i], scale, block.softcap) : 1.0f;
        s[n][i] = p * (dp[n][i] - row_delta[r]) * slope;
      }
    }
    multiply_columns<D, kKeys, C>(acc, s, tiles.past(stage, 0) + column);
    __syncthreads();  // before the next step's copies overwrite this stage
    if (kStages<D> == 1 && key + kKeys < range.end) copy_step(key + kKeys, 0);
  }
  await_copies<0>();
  const HeadRows<bf16> out = query_rows(block, dq, row, head);
  store_rows<C>(acc, const_cast<bf16*>(out.base) + column, out.stride, first + row_in_tile, out.count,
                head_dim - column, scale, scale);
}

// A query's values for the keys of a step.
struct alignas(16) StepQuery {
  KeyRange seen;
  float lse, delta;  // lse in powers of two
};

// One block per (tile of keys, part of the columns, key head, row): dk and dv. Both sums of a head of 256 or
// more do not fit the registers of a block. Then it has half of their columns, and p and ds are computed for
// each half.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dkv_kernel(AttentionBlock<bf16> block, const bf16* d_o, const float* lse, const float* delta,
                         bf16* dkv) {
  constexpr int kQueries = kStep<D>, kColumns = D / kColumnParts<D>;
  const BackwardTiles<D> tiles(dynamic_shared());
  // Queries of both stages, in the padding behind the rows of the keys.
  static_assert(kStages<D> * kQueries <= kOwnRows<D> &&
                sizeof(StepQuery) == (kTileStride<D> - D) * sizeof(bf16));
  const auto step_query = [&](int stage, int i) -> StepQuery& {
    return *reinterpret_cast<StepQuery*>(tiles.own(0) + (stage * kQueries + i) * kTileStride<D> + D);
  };
  constexpr int C = kColumns / kSharing<D>;
  const int lane = threadIdx.x % kWarp, head_dim = int(block.head_dim), row_in_tile = warp_row<D>();
  const int first = int(blockIdx.x) / kColumnParts<D> * kOwnRows<D>;
  const int column = int(blockIdx.x) % kColumnParts<D> * kColumns + warp_column<D, kColumns>();
  const int64_t kv_head = blockIdx.y, row = blockIdx.z, group = block.q_heads / block.kv_heads;
  const float scale = block.scale;

  const auto copy_step = [&](const QuerySteps<kOwnRows<D>, kQueries>& step, int stage) {
    const int64_t head = kv_head * group + step.head;
    copy_tile<D, kQueries>(tiles.past(stage, 0), query_rows(block, block.q, row, head), step.query, head_dim);
    copy_tile<D, kQueries>(tiles.past(stage, 1), query_rows(block, d_o, row, head), step.query, head_dim);
    if (threadIdx.x < kQueries) {
      const int64_t i = step.query + threadIdx.x, at = (row * block.q_heads + head) * block.q_len + i;
      step_query(stage, int(threadIdx.x)) = {visible_keys(block, row, i),
                                             i < block.q_len ? lse[at] * kLog2E : 0.0f,
                                             i < block.q_len ? delta[at] : 0.0f};
    }
  };
  copy_tile<D, kOwnRows<D>>(tiles.own(0), key_rows(block, row, kv_head), first, head_dim);
  copy_tile<D, kOwnRows<D>>(tiles.own(1), value_rows(block, row, kv_head), first, head_dim);
  QuerySteps<kOwnRows<D>, kQueries> step(block, row, first);
  if (!step.done()) copy_step(step, 0);
  close_copies();

  float dk[C / 8][4] = {}, dv[C / 8][4] = {};
  const bf16* k_tile = tiles.own(0) + row_in_tile * kTileStride<D>;
  const bf16* v_tile = tiles.own(1) + row_in_tile * kTileStride<D>;
  const int keys[2] = {first + row_in_tile + lane / 4, first + row_in_tile + lane / 4 + 8};
  for (int stage = 0; !step.done(); stage ^= kStages<D> - 1) {
    step.advance();
    if (kStages<D> == 2 && !step.done()) copy_step(step, stage ^ 1);
    close_copies();
    await_copies<kStages<D> - 1>();
    __syncthreads();
    // Transposed: rows are keys, columns queries.
    float p[kQueries / 8][4] = {}, ds[kQueries / 8][4] = {};
    multiply_rows<D, kQueries>(p, k_tile, tiles.past(stage, 0));
    if (block.softcap > 0) cap_scores<kQueries>(p, scale, block.softcap);
    multiply_rows<D, kQueries>(ds, v_tile, tiles.past(stage, 1));
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const StepQuery query = step_query(stage, n * 8 + lane % 4 * 2 + i % 2);
        const bool visible = query.seen.has(keys[i / 2]);
        const float slope = block.softcap > 0 ? cap_slope(p[n][i], scale, block.softcap) : 1.0f;
        p[n][i] = visible ? exp2f(p[n][i] * (scale * kLog2E) - query.lse) : 0.0f;
        ds[n][i] = p[n][i] * (ds[n][i] - query.delta) * slope;
      }
    }
    multiply_columns<D, kQueries, C>(dv, p, tiles.past(stage, 1) + column);
    multiply_columns<D, kQueries, C>(dk, ds, tiles.past(stage, 0) + column);
    __syncthreads();  // before the next step's copies overwrite this stage
    if (kStages<D> == 1 && !step.done()) copy_step(step, 0);
  }
  await_copies<0>();
  bf16* out = dkv + key_offset(block, row, kv_head) + column;
  const int64_t stride = 2 * block.kv_heads * block.head_dim;
  const int64_t begin = first + row_in_tile;
  store_rows<C>(dk, out, stride, begin, block.kv_len, head_dim - column, scale, scale);
  store_rows<C>(dv, out + value_offset(block), stride, begin, block.kv_len, head_dim - column, 1.0f, 1.0f);
}

template <int D>
cudaError_t run(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse, const float* delta,
                bf16* dq, bf16* dkv, cudaStream_t stream) {
  const dim3 keys(blocks_for(block.kv_len, kOwnRows<D>) * kColumnParts<D>, unsigned(block.kv_heads),
                  unsigned(block.rows));
  const auto status = launch(attention_dkv_kernel<D>, keys, kAttentionThreads, BackwardTiles<D>::bytes(),
                             stream, block, d_o, lse, delta, dkv);
  if (status != cudaSuccess) return status;
  const dim3 queries(blocks_for(block.q_len, kOwnRows<D>), unsigned(block.q_heads), unsigned(block.rows));
  return launch(attention_dq_kernel<D>, queries, kAttentionThreads, BackwardTiles<D>::bytes(), stream, block,
                d_o, lse, delta, dq);
}

}  // namespace

cudaError_t attention_bwd(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                          const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream) {
  if (hopper_attention(block.head_dim)) return hopper_attention_bwd(block, d_o, lse, delta, dq, dkv, stream);
  return with_head_columns(
      block.head_dim, [&](auto columns) { return run<columns>(block, d_o, lse, delta, dq, dkv, stream); });
}

}  // namespace sluice::core::cuda
