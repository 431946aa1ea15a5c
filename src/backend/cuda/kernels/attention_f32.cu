// SPDX-License-Identifier: Apache-2.0
// Attention over one block in f32, forward and backward. Formulas and order of sums are those of attention.cu
// and attention_bwd.cu. Products run on the multiprocessors' plain f32 units, as tensor cores would round f32
// to TF32. For measurements (cuda_backend.h), so that it is simple first.
//
// A block's threads are 8 rows of 16. In a product of tiles a thread computes each eighth row and each
// sixteenth column. So the 16 addresses of a load lie in different banks, and both halves of a warp share
// theirs.
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kRowThreads = 8, kColumnThreads = 16;
static_assert(kRowThreads * kColumnThreads == kAttentionThreads && kColumnThreads == kWarp / 2);

template <int D>
constexpr int kStride = kTileStride<D, float>;
// Rows of a forward pass's tile.
template <int D>
constexpr int kQueryRows = D <= 128   ? 64
                           : D <= 256 ? 32
                                      : 16;
// Rows of the tiles that stay in a backward pass and of those that stream past in both. All together take
// less than 99 KiB, which every GPU has, and two blocks fit a multiprocessor of an H100.
template <int D>
constexpr int kOwn = D <= 96    ? 64
                     : D <= 128 ? 32
                     : D <= 256 ? 16
                                : 8;
template <int D>
constexpr int kStep = D <= 64    ? 64
                      : D <= 128 ? 32
                                 : 16;
constexpr int kBlocks = 2;

__device__ int row_thread() {
  return int(threadIdx.x) / kColumnThreads;
}
__device__ int column_thread() {
  return int(threadIdx.x) % kColumnThreads;
}
// The r-th row and the n-th column of this thread in a tile.
__device__ int own_row(int r) {
  return row_thread() + kRowThreads * r;
}
__device__ int own_column(int n) {
  return column_thread() + kColumnThreads * n;
}

// Weights of keys for queries on their way from one product to the next. The rows that a thread reads were
// written by its half of a warp. N columns, padded so that the two halves write to different banks.
template <int N>
struct Weights {
  static constexpr int kRow = N + kColumnThreads;
  float* base;

  static constexpr size_t bytes(int rows) { return size_t(rows) * kRow * sizeof(float); }

  template <int R>
  __device__ void put(const float (&p)[R][N / kColumnThreads]) const {
    __syncwarp();  // all have read what was there
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int n = 0; n < N / kColumnThreads; ++n) base[own_row(r) * kRow + own_column(n)] = p[r][n];
    }
    __syncwarp();
  }
};

__device__ float dot(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// c += a b^T, of two tiles in shared memory.
template <int D, int R, int C>
__device__ void multiply_rows(float (&c)[R][C], const float* a, const float* b) {
#pragma unroll 2
  for (int k = 0; k < D; k += 4) {
    float4 of_a[R];
#pragma unroll
    for (int r = 0; r < R; ++r) of_a[r] = *reinterpret_cast<const float4*>(a + own_row(r) * kStride<D> + k);
#pragma unroll
    for (int n = 0; n < C; ++n) {
      const float4 of_b = *reinterpret_cast<const float4*>(b + own_column(n) * kStride<D> + k);
#pragma unroll
      for (int r = 0; r < R; ++r) c[r][n] = dot(of_a[r], of_b, c[r][n]);
    }
  }
}

// A thread's share of rows of D columns: pairs of columns.
template <int D>
constexpr int kPairs = D / (2 * kColumnThreads);
template <int R, int D>
using Rows = float2[R][kPairs<D>];
__device__ int pair_column(int n) {
  return 2 * own_column(n);
}

// c += p b, of weights and a tile of N rows.
template <int D, int R, int N>
__device__ void multiply_columns(Rows<R, D>& c, const Weights<N>& p, const float* b) {
#pragma unroll 2
  for (int k = 0; k < N; k += 4) {
    float4 weight[R];
#pragma unroll
    for (int r = 0; r < R; ++r)
      weight[r] = *reinterpret_cast<const float4*>(p.base + own_row(r) * Weights<N>::kRow + k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int n = 0; n < kPairs<D>; ++n) {
        const float2 v = *reinterpret_cast<const float2*>(b + (k + i) * kStride<D> + pair_column(n));
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const float w = i == 0 ? weight[r].x : i == 1 ? weight[r].y : i == 2 ? weight[r].z : weight[r].w;
          c[r][n].x = fmaf(w, v.x, c[r][n].x);
          c[r][n].y = fmaf(w, v.y, c[r][n].y);
        }
      }
    }
  }
}

// Writes rows of c, times their factor, to a head from row `first` on.
template <int D, int R>
__device__ void store_rows(const Rows<R, D>& c, const HeadRows<float>& head, int64_t first, int head_dim,
                           const float (&factor)[R]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t row = first + own_row(r);
    if (row >= head.count) continue;
#pragma unroll
    for (int n = 0; n < kPairs<D>; ++n) {
      if (pair_column(n) >= head_dim) continue;
      auto* to = const_cast<float*>(head.base) + row * head.stride + pair_column(n);
      *reinterpret_cast<float2*>(to) = make_float2(c[r][n].x * factor[r], c[r][n].y * factor[r]);
    }
  }
}

// Over the threads that share a row.
__device__ float row_max(float x) {
#pragma unroll
  for (int offset = kColumnThreads / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}
__device__ float row_sum(float x) {
#pragma unroll
  for (int offset = kColumnThreads / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

template <int D>
struct ForwardTiles {
  float *q, *k, *v, *p;

  __device__ explicit ForwardTiles(unsigned char* shared)
      : q(reinterpret_cast<float*>(shared)),
        k(q + kQueryRows<D> * kStride<D>),
        v(k + kStep<D> * kStride<D>),
        p(v + kStep<D> * kStride<D>) {}
  static constexpr size_t bytes() {
    return tile_bytes<D, float>(kQueryRows<D> + 2 * kStep<D>) + Weights<kStep<D>>::bytes(kQueryRows<D>);
  }
};

// One block per (tile of queries, query head, row).
template <int D>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    attention_f32_fwd_kernel(AttentionBlock<float> block, float* o, float* lse) {
  constexpr int R = kQueryRows<D> / kRowThreads, C = kStep<D> / kColumnThreads;
  const ForwardTiles<D> tiles(dynamic_shared());
  const Weights<kStep<D>> weights{tiles.p};
  const int head_dim = int(block.head_dim);
  // The last queries see most keys: start them first.
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kQueryRows<D>;
  const int64_t head = blockIdx.y, row = blockIdx.z, kv_head = head / (block.q_heads / block.kv_heads);
  const auto k_rows = key_rows(block, row, kv_head), v_rows = value_rows(block, row, kv_head);
  const TileRange range = tile_range<kQueryRows<D>>(block, row, first);
  const float scale = block.scale * kLog2E;

  Rows<R, D> acc = {};
  float top[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) top[r] = -INFINITY;
  int key = range.begin < range.end ? range.begin / kStep<D> * kStep<D> : 0;
  copy_tile<D, kQueryRows<D>>(tiles.q, query_rows(block, block.q, row, head), first, head_dim);
  copy_tile<D, kStep<D>>(tiles.k, k_rows, key, head_dim);
  close_copies();
  for (; key < range.end; key += kStep<D>) {
    await_copies<0>();
    __syncthreads();  // K is here, and every warp is done with the last V
    copy_tile<D, kStep<D>>(tiles.v, v_rows, key, head_dim);
    close_copies();

    float s[R][C] = {};
    multiply_rows<D>(s, tiles.q, tiles.k);
    if (!range.covers(key, kStep<D>)) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const KeyRange seen = visible_keys(block, row, first + own_row(r));
#pragma unroll
        for (int n = 0; n < C; ++n) {
          if (!seen.has(key + own_column(n))) s[r][n] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float most = top[r];
#pragma unroll
      for (int n = 0; n < C; ++n) most = fmaxf(most, s[r][n]);
      most = row_max(most);
      const float base = most == -INFINITY ? 0.0f : most * scale;
      const float rescale = exp2f(top[r] * scale - base);
      top[r] = most;
      sum[r] *= rescale;
#pragma unroll
      for (int n = 0; n < C; ++n) {
        s[r][n] = exp2f(s[r][n] * scale - base);
        sum[r] += s[r][n];
      }
#pragma unroll
      for (int n = 0; n < kPairs<D>; ++n) acc[r][n].x *= rescale, acc[r][n].y *= rescale;
    }
    weights.put(s);
    await_copies<0>();
    __syncthreads();  // V is here, and every warp is done with this K
    if (key + kStep<D> < range.end) copy_tile<D, kStep<D>>(tiles.k, k_rows, key + kStep<D>, head_dim);
    close_copies();
    multiply_columns<D, R>(acc, weights, tiles.v);
  }
  await_copies<0>();

  float inverse[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float all = row_sum(sum[r]);
    inverse[r] = all > 0 ? 1.0f / all : 0.0f;
    const int64_t i = first + own_row(r);
    if (column_thread() == 0 && i < block.q_len) {
      lse[(row * block.q_heads + head) * block.q_len + i] =
          all > 0 ? top[r] * block.scale + logf(all) : -INFINITY;
    }
  }
  store_rows<D, R>(acc, query_rows<float>(block, o, row, head), first, head_dim, inverse);
}

// Two tiles that stay, two that stream past, and weights.
template <int D>
struct BackwardTiles {
  float* base;

  __device__ explicit BackwardTiles(unsigned char* shared) : base(reinterpret_cast<float*>(shared)) {}
  __device__ float* own(int i) const { return base + i * kOwn<D> * kStride<D>; }
  __device__ float* past(int i) const { return own(2) + i * kStep<D> * kStride<D>; }
  __device__ Weights<kStep<D>> weights() const { return {past(2)}; }
  static constexpr size_t bytes() {
    return tile_bytes<D, float>(2 * (kOwn<D> + kStep<D>)) + Weights<kStep<D>>::bytes(kOwn<D>);
  }
};
static_assert(ForwardTiles<512>::bytes() <= 99 * 1024 && BackwardTiles<512>::bytes() <= 99 * 1024 &&
              ForwardTiles<128>::bytes() <= 99 * 1024 && BackwardTiles<64>::bytes() <= 99 * 1024 &&
              BackwardTiles<96>::bytes() <= 99 * 1024 && BackwardTiles<128>::bytes() <= 99 * 1024);

// One block per (tile of queries, query head, row): dq.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    attention_f32_dq_kernel(AttentionBlock<float> block, const float* d_o, const float* lse,
                            const float* delta, float* dq) {
  constexpr int R = kOwn<D> / kRowThreads, C = kStep<D> / kColumnThreads;
  const BackwardTiles<D> tiles(dynamic_shared());
  const int head_dim = int(block.head_dim);
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kOwn<D>;
  const int64_t head = blockIdx.y, row = blockIdx.z, kv_head = head / (block.q_heads / block.kv_heads);
  const auto k_rows = key_rows(block, row, kv_head), v_rows = value_rows(block, row, kv_head);
  const TileRange range = tile_range<kOwn<D>>(block, row, first);

  KeyRange seen[R];
  float row_lse[R] = {}, row_delta[R] = {}, scale[R];  // lse in powers of two
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t i = first + own_row(r);
    seen[r] = visible_keys(block, row, i);
    scale[r] = block.scale;
    if (i >= block.q_len) continue;
    const int64_t at = (row * block.q_heads + head) * block.q_len + i;
    row_lse[r] = lse[at] * kLog2E;
    row_delta[r] = delta[at];
  }
  copy_tile<D, kOwn<D>>(tiles.own(0), query_rows(block, block.q, row, head), first, head_dim);
  copy_tile<D, kOwn<D>>(tiles.own(1), query_rows(block, d_o, row, head), first, head_dim);

  Rows<R, D> acc = {};
  for (int key = range.begin < range.end ? range.begin / kStep<D> * kStep<D> : 0; key < range.end;
       key += kStep<D>) {
    copy_tile<D, kStep<D>>(tiles.past(0), k_rows, key, head_dim);
    copy_tile<D, kStep<D>>(tiles.past(1), v_rows, key, head_dim);
    close_copies();
    await_copies<0>();
    __syncthreads();
    float s[R][C] = {}, dp[R][C] = {};
    multiply_rows<D>(s, tiles.own(0), tiles.past(0));
    multiply_rows<D>(dp, tiles.own(1), tiles.past(1));
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int n = 0; n < C; ++n) {
        const bool visible = seen[r].has(key + own_column(n));
        const float p = visible ? exp2f(s[r][n] * (block.scale * kLog2E) - row_lse[r]) : 0.0f;
        s[r][n] = p * (dp[r][n] - row_delta[r]);
      }
    }
    tiles.weights().put(s);
    multiply_columns<D, R>(acc, tiles.weights(), tiles.past(0));
    __syncthreads();  // before the next step's copies overwrite these
  }
  await_copies<0>();
  store_rows<D, R>(acc, query_rows<float>(block, dq, row, head), first, head_dim, scale);
}

// One block per (tile of keys, key head, row): dk and dv.
template <int D>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    attention_f32_dkv_kernel(AttentionBlock<float> block, const float* d_o, const float* lse,
                             const float* delta, float* dkv) {
  constexpr int R = kOwn<D> / kRowThreads, C = kStep<D> / kColumnThreads;
  const BackwardTiles<D> tiles(dynamic_shared());
  const int head_dim = int(block.head_dim), first = int(blockIdx.x) * kOwn<D>;
  const int64_t kv_head = blockIdx.y, row = blockIdx.z, group = block.q_heads / block.kv_heads;
  copy_tile<D, kOwn<D>>(tiles.own(0), key_rows(block, row, kv_head), first, head_dim);
  copy_tile<D, kOwn<D>>(tiles.own(1), value_rows(block, row, kv_head), first, head_dim);

  Rows<R, D> dk = {}, dv = {};
  for (QuerySteps<kOwn<D>, kStep<D>> step(block, row, first); !step.done(); step.advance()) {
    const int64_t head = kv_head * group + step.head;
    copy_tile<D, kStep<D>>(tiles.past(0), query_rows(block, block.q, row, head), step.query, head_dim);
    copy_tile<D, kStep<D>>(tiles.past(1), query_rows(block, d_o, row, head), step.query, head_dim);
    close_copies();
    await_copies<0>();
    __syncthreads();
    // Transposed: rows are keys, columns queries.
    float p[R][C] = {}, ds[R][C] = {};
    multiply_rows<D>(p, tiles.own(0), tiles.past(0));
    multiply_rows<D>(ds, tiles.own(1), tiles.past(1));
#pragma unroll
    for (int n = 0; n < C; ++n) {
      const int64_t i = step.query + own_column(n), at = (row * block.q_heads + head) * block.q_len + i;
      const KeyRange seen = visible_keys(block, row, i);
      const float query_lse = i < block.q_len ? lse[at] * kLog2E : 0.0f;
      const float query_delta = i < block.q_len ? delta[at] : 0.0f;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const bool visible = seen.has(first + own_row(r));
        p[r][n] = visible ? exp2f(p[r][n] * (block.scale * kLog2E) - query_lse) : 0.0f;
        ds[r][n] = p[r][n] * (ds[r][n] - query_delta);
      }
    }
    tiles.weights().put(p);
    multiply_columns<D, R>(dv, tiles.weights(), tiles.past(1));
    tiles.weights().put(ds);
    multiply_columns<D, R>(dk, tiles.weights(), tiles.past(0));
    __syncthreads();  // before the next step's copies overwrite these
  }
  await_copies<0>();
  float scale[R], one[R];
#pragma unroll
  for (int r = 0; r < R; ++r) scale[r] = block.scale, one[r] = 1.0f;
  HeadRows<float> out = key_rows(block, row, kv_head);
  out.base = dkv + key_offset(block, row, kv_head);
  store_rows<D, R>(dk, out, first, head_dim, scale);
  out.base += value_offset(block);
  store_rows<D, R>(dv, out, first, head_dim, one);
}

// Calls f with the columns that tiles of such a head have, as a type's constant.
template <class F>
cudaError_t with_columns(int64_t head_dim, F f) {
  if (head_dim <= 32) return f(std::integral_constant<int, 32>{});
  if (head_dim <= 64) return f(std::integral_constant<int, 64>{});
  if (head_dim <= 96) return f(std::integral_constant<int, 96>{});
  if (head_dim <= 128) return f(std::integral_constant<int, 128>{});
  if (head_dim <= 256) return f(std::integral_constant<int, 256>{});
  return f(std::integral_constant<int, 512>{});
}

template <int D>
cudaError_t run_backward(const AttentionBlock<float>& block, const float* d_o, const float* lse,
                         const float* delta, float* dq, float* dkv, cudaStream_t stream) {
  const dim3 keys(blocks_for(block.kv_len, kOwn<D>), unsigned(block.kv_heads), unsigned(block.rows));
  const auto status = launch(attention_f32_dkv_kernel<D>, keys, kAttentionThreads, BackwardTiles<D>::bytes(),
                             stream, block, d_o, lse, delta, dkv);
  if (status != cudaSuccess) return status;
  const dim3 queries(blocks_for(block.q_len, kOwn<D>), unsigned(block.q_heads), unsigned(block.rows));
  return launch(attention_f32_dq_kernel<D>, queries, kAttentionThreads, BackwardTiles<D>::bytes(), stream,
                block, d_o, lse, delta, dq);
}

}  // namespace

cudaError_t attention_fwd(const AttentionBlock<float>& block, float* o, float* lse, cudaStream_t stream) {
  return with_columns(block.head_dim, [&](auto columns) {
    const dim3 grid(blocks_for(block.q_len, kQueryRows<columns>), unsigned(block.q_heads),
                    unsigned(block.rows));
    return launch(attention_f32_fwd_kernel<columns>, grid, kAttentionThreads, ForwardTiles<columns>::bytes(),
                  stream, block, o, lse);
  });
}

cudaError_t attention_bwd(const AttentionBlock<float>& block, const float* d_o, const float* lse,
                          const float* delta, float* dq, float* dkv, cudaStream_t stream) {
  return with_columns(block.head_dim, [&](auto columns) {
    return run_backward<columns>(block, d_o, lse, delta, dq, dkv, stream);
  });
}

}  // namespace sluice::core::cuda
