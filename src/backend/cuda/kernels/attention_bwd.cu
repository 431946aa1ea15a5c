// SPDX-License-Identifier: Apache-2.0
// Attention backward over one block of keys, given the output's row sums and the global log-sum-exp:
//   p = exp(scale q k^T - lse), dp = do v^T, ds = p (dp - delta)
//   dv = p^T do, dk = scale ds^T q, dq = scale ds k
//
// Two kernels, one owning keys and one owning queries: each sums in its own registers, in a fixed order,
// without atomics, at the price of computing p and dp twice.
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kStep = 32;  // rows of a tile that streams past

// Two tiles that stay (64 rows) and two stages of two tiles that stream past (32 rows).
template <int D>
struct BackwardTiles {
  static constexpr int kOwn = kOwnRows * kTileStride<D>, kPast = kStep * kTileStride<D>;
  bf16* base;

  __device__ explicit BackwardTiles(unsigned char* shared) : base(reinterpret_cast<bf16*>(shared)) {}
  __device__ bf16* own(int i) const { return base + i * kOwn; }
  __device__ bf16* past(int stage, int i) const { return base + 2 * kOwn + (stage * 2 + i) * kPast; }
  static constexpr size_t bytes() { return 2 * tile_bytes<D>(kOwnRows) + 4 * tile_bytes<D>(kStep); }
};

// One block per (tile of 64 queries, query head, row): dq.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dq_kernel(AttentionBlock block, const bf16* d_o, const float* lse, const float* delta,
                        bf16* dq) {
  const BackwardTiles<D> tiles(dynamic_shared());
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, head_dim = int(block.head_dim);
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kOwnRows;
  const int64_t head = blockIdx.y, row = blockIdx.z, kv_head = head / (block.q_heads / block.kv_heads);
  const HeadRows k_rows = key_rows(block, row, kv_head), v_rows = value_rows(block, row, kv_head);
  const TileRange range = tile_range<kOwnRows>(block, row, first);
  const float scale = block.scale;

  KeyRange seen[2];
  float row_lse[2] = {}, row_delta[2] = {};  // lse in powers of two
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t i = first + warp * kWarpRows + lane / 4 + 8 * r;
    seen[r] = visible_keys(block, row, i);
    if (i >= block.q_len) continue;
    const int64_t at = (row * block.q_heads + head) * block.q_len + i;
    row_lse[r] = lse[at] * kLog2E;
    row_delta[r] = delta[at];
  }

  const auto copy_step = [&](int key, int stage) {
    copy_tile<D, kStep>(tiles.past(stage, 0), k_rows, key, head_dim);
    copy_tile<D, kStep>(tiles.past(stage, 1), v_rows, key, head_dim);
  };
  copy_tile<D, kOwnRows>(tiles.own(0), query_rows(block, block.q, row, head), first, head_dim);
  copy_tile<D, kOwnRows>(tiles.own(1), query_rows(block, d_o, row, head), first, head_dim);
  int key = range.begin < range.end ? range.begin / kStep * kStep : 0;
  copy_step(key, 0);
  close_copies();

  float acc[D / 8][4] = {};
  const bf16* q_tile = tiles.own(0) + warp * kWarpRows * kTileStride<D>;
  const bf16* d_o_tile = tiles.own(1) + warp * kWarpRows * kTileStride<D>;
  for (int stage = 0; key < range.end; key += kStep, stage ^= 1) {
    if (key + kStep < range.end) copy_step(key + kStep, stage ^ 1);
    close_copies();
    await_copies<1>();
    __syncthreads();
    float s[kStep / 8][4] = {}, dp[kStep / 8][4] = {};
    multiply_rows<D, kStep>(s, q_tile, tiles.past(stage, 0));
    multiply_rows<D, kStep>(dp, d_o_tile, tiles.past(stage, 1));
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        const bool visible = seen[r].has(key + n * 8 + lane % 4 * 2 + i % 2);
        const float p = visible ? exp2f(s[n][i] * (scale * kLog2E) - row_lse[r]) : 0.0f;
        s[n][i] = p * (dp[n][i] - row_delta[r]);
      }
    }
    multiply_columns<D, kStep>(acc, s, tiles.past(stage, 0));
    __syncthreads();  // before the next step's copies overwrite this stage
  }
  await_copies<0>();
  const HeadRows out = query_rows(block, dq, row, head);
  store_rows<D>(acc, const_cast<bf16*>(out.base), out.stride, first + warp * kWarpRows, out.count, head_dim,
                scale, scale);
}

// The steps of the kernel below: the query tiles of every query head that shares the key head.
class QuerySteps {
 public:
  // Queries before the first key of the tile see none of it, nor do those a window or more behind the last.
  __device__ QuerySteps(const AttentionBlock& block, int64_t row, int first_key)
      : block_(block), row_(row), first_key_(first_key), end_(int(block.q_len)) {
    const int64_t first_query = max(first_key - block.distance, int64_t{0});
    begin_ = int(first_query / kStep * kStep);
    if (block.window > 0) {
      const int64_t unseen = first_key + kOwnRows - 1 - block.distance + block.window;
      end_ = int(min(max(unseen, int64_t{0}), block.q_len));
    }
    query = begin_ - kStep;
    advance();
  }

  __device__ bool done() const { return head >= int(block_.q_heads / block_.kv_heads); }

  // To the next tile with a query that sees a key of the tile.
  __device__ void advance() {
    do {
      query += kStep;
      if (query >= end_) {
        query = begin_;
        ++head;
        if (begin_ >= end_) head = INT_MAX;
      }
    } while (!done() && !tile_range<kStep>(block_, row_, query).touches(first_key_, kOwnRows));
  }

  int head = 0;       // within the group
  int64_t query = 0;  // first query of the tile

 private:
  const AttentionBlock& block_;
  int64_t row_;
  int first_key_, begin_, end_;
};

// One block per (tile of 64 keys, key head, row): dk and dv.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dkv_kernel(AttentionBlock block, const bf16* d_o, const float* lse, const float* delta,
                         bf16* dkv) {
  __shared__ float step_lse[2][kStep], step_delta[2][kStep];
  __shared__ KeyRange step_seen[2][kStep];
  const BackwardTiles<D> tiles(dynamic_shared());
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, head_dim = int(block.head_dim);
  const int first = int(blockIdx.x) * kOwnRows;
  const int64_t kv_head = blockIdx.y, row = blockIdx.z, group = block.q_heads / block.kv_heads;
  const float scale = block.scale;

  const auto copy_step = [&](const QuerySteps& step, int stage) {
    const int64_t head = kv_head * group + step.head;
    copy_tile<D, kStep>(tiles.past(stage, 0), query_rows(block, block.q, row, head), step.query, head_dim);
    copy_tile<D, kStep>(tiles.past(stage, 1), query_rows(block, d_o, row, head), step.query, head_dim);
    if (threadIdx.x < kStep) {
      const int64_t i = step.query + threadIdx.x, at = (row * block.q_heads + head) * block.q_len + i;
      step_seen[stage][threadIdx.x] = visible_keys(block, row, i);
      step_lse[stage][threadIdx.x] = i < block.q_len ? lse[at] * kLog2E : 0.0f;
      step_delta[stage][threadIdx.x] = i < block.q_len ? delta[at] : 0.0f;
    }
  };
  copy_tile<D, kOwnRows>(tiles.own(0), key_rows(block, row, kv_head), first, head_dim);
  copy_tile<D, kOwnRows>(tiles.own(1), value_rows(block, row, kv_head), first, head_dim);
  QuerySteps step(block, row, first);
  if (!step.done()) copy_step(step, 0);
  close_copies();

  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const bf16* k_tile = tiles.own(0) + warp * kWarpRows * kTileStride<D>;
  const bf16* v_tile = tiles.own(1) + warp * kWarpRows * kTileStride<D>;
  const int keys[2] = {first + warp * kWarpRows + lane / 4, first + warp * kWarpRows + lane / 4 + 8};
  for (int stage = 0; !step.done(); stage ^= 1) {
    step.advance();
    if (!step.done()) copy_step(step, stage ^ 1);
    close_copies();
    await_copies<1>();
    __syncthreads();
    // Transposed: rows are keys, columns queries.
    float p[kStep / 8][4] = {}, ds[kStep / 8][4] = {};
    multiply_rows<D, kStep>(p, k_tile, tiles.past(stage, 0));
    multiply_rows<D, kStep>(ds, v_tile, tiles.past(stage, 1));
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = n * 8 + lane % 4 * 2 + i % 2;
        const bool visible = step_seen[stage][query].has(keys[i / 2]);
        p[n][i] = visible ? exp2f(p[n][i] * (scale * kLog2E) - step_lse[stage][query]) : 0.0f;
        ds[n][i] = p[n][i] * (ds[n][i] - step_delta[stage][query]);
      }
    }
    multiply_columns<D, kStep>(dv, p, tiles.past(stage, 1));
    multiply_columns<D, kStep>(dk, ds, tiles.past(stage, 0));
    __syncthreads();  // before the next step's copies overwrite this stage
  }
  await_copies<0>();
  bf16* out = dkv + key_offset(block, row, kv_head);
  const int64_t stride = 2 * block.kv_heads * block.head_dim;
  store_rows<D>(dk, out, stride, first + warp * kWarpRows, block.kv_len, head_dim, scale, scale);
  store_rows<D>(dv, out + value_offset(block), stride, first + warp * kWarpRows, block.kv_len, head_dim, 1.0f,
                1.0f);
}

template <int D>
cudaError_t run(const AttentionBlock& block, const bf16* d_o, const float* lse, const float* delta, bf16* dq,
                bf16* dkv, cudaStream_t stream) {
  const dim3 keys(blocks_for(block.kv_len, kOwnRows), unsigned(block.kv_heads), unsigned(block.rows));
  const auto status = launch(attention_dkv_kernel<D>, keys, kAttentionThreads, BackwardTiles<D>::bytes(),
                             stream, block, d_o, lse, delta, dkv);
  if (status != cudaSuccess) return status;
  const dim3 queries(blocks_for(block.q_len, kOwnRows), unsigned(block.q_heads), unsigned(block.rows));
  return launch(attention_dq_kernel<D>, queries, kAttentionThreads, BackwardTiles<D>::bytes(), stream, block,
                d_o, lse, delta, dq);
}

}  // namespace

cudaError_t attention_bwd(const AttentionBlock& block, const bf16* d_o, const float* lse, const float* delta,
                          bf16* dq, bf16* dkv, cudaStream_t stream) {
  return block.head_dim <= 64 ? run<64>(block, d_o, lse, delta, dq, dkv, stream)
                              : run<128>(block, d_o, lse, delta, dq, dkv, stream);
}

}  // namespace sluice::core::cuda
