// SPDX-License-Identifier: Apache-2.0
// LayerNorm, forward and backward: one pass over memory each, rows held in registers.
//
// Backward, with s = 1/sqrt(var(x) + eps), xh = (x - mean(x)) s, g = dy * scale and v = w * g:
//   dx = s (v - mean(v) - xh mean(v xh)) (+ dres)
//   dw = sum over rows of g xh, dbias = sum over rows of g
// Each of a fixed number of blocks sums dw and dbias over its rows, a second kernel adds the blocks in order.
// The number is the same on every GPU so that the bits are too.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/row_shape.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// A row, as a block's threads hold it: V vectors of 8 each.
template <int V>
struct Row {
  float x[V][kVec];

  static __device__ int64_t column(int i) { return (threadIdx.x + int64_t{i} * blockDim.x) * kVec; }
  __device__ void load(const bf16* from, int64_t dim) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column(i) < dim) load8(from + column(i), x[i]);
    }
  }
  // Calls f(the i-th vector of this thread, its first column) for those inside the row.
  template <class F>
  static __device__ void for_each(int64_t dim, F f) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column(i) < dim) f(i, column(i));
    }
  }
};

// Makes a row its xh; returns s. `scratch`: two of block_sum()'s.
template <int V>
__device__ float normalise(Row<V>& row, int64_t dim, float inv_dim, float eps, float (*scratch)[kMaxWarps]) {
  float total = 0;
  Row<V>::for_each(dim, [&](int i, int64_t) {
    for (int j = 0; j < kVec; ++j) total += row.x[i][j];
  });
  const float mean = block_sum(total, scratch[0]) * inv_dim;
  float squares = 0;
  Row<V>::for_each(dim, [&](int i, int64_t) {
    for (int j = 0; j < kVec; ++j) {
      row.x[i][j] -= mean;
      squares += row.x[i][j] * row.x[i][j];
    }
  });
  const float s = rsqrtf(block_sum(squares, scratch[1]) * inv_dim + eps);
  Row<V>::for_each(dim, [&](int i, int64_t) {
    for (int j = 0; j < kVec; ++j) row.x[i][j] *= s;
  });
  return s;
}

template <int V>
__global__ void __launch_bounds__(kMaxRowThreads)
    layer_norm_kernel(const bf16* x, const bf16* w, const bf16* bias, bf16* y, int64_t dim, float inv_dim,
                      float eps, float scale) {
  __shared__ float scratch[2][kMaxWarps];
  const int64_t at = blockIdx.x * dim;
  let_next_begin();
  await_previous();
  Row<V> row;
  row.load(x + at, dim);
  normalise(row, dim, inv_dim, eps, scratch);
  Row<V>::for_each(dim, [&](int i, int64_t column) {
    float weight[kVec], shift[kVec];
    if (w != nullptr) load8(w + column, weight);
    if (bias != nullptr) load8(bias + column, shift);
    for (int j = 0; j < kVec; ++j) {
      if (w != nullptr) row.x[i][j] *= weight[j];
      if (bias != nullptr) row.x[i][j] += shift[j];
      row.x[i][j] *= scale;
    }
    store8(y + at + column, row.x[i]);
  });
}

// dw_blocks and dbias_blocks may be null.
template <int V>
__global__ void __launch_bounds__(kMaxRowThreads)
    layer_norm_bwd_kernel(const bf16* x, const bf16* w, const bf16* dy, const bf16* dres, bf16* dx,
                          float* dw_blocks, float* dbias_blocks, int64_t tokens, int64_t dim, float inv_dim,
                          float eps, float scale) {
  __shared__ float scratch[4][kMaxWarps];
  float dw[V][kVec] = {}, dbias[V][kVec] = {};
  for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    __syncthreads();  // all have read the last row's sums
    Row<V> row, grad;
    row.load(x + t * dim, dim);
    grad.load(dy + t * dim, dim);
    const float s = normalise(row, dim, inv_dim, eps, scratch);
    float sum = 0, dot = 0;
    Row<V>::for_each(dim, [&](int i, int64_t column) {
      float weight[kVec];
      if (w != nullptr) load8(w + column, weight);
      for (int j = 0; j < kVec; ++j) {
        const float g = grad.x[i][j] * scale;
        dw[i][j] += g * row.x[i][j];
        dbias[i][j] += g;
        grad.x[i][j] = w != nullptr ? g * weight[j] : g;
        sum += grad.x[i][j];
        dot += grad.x[i][j] * row.x[i][j];
      }
    });
    const float mean = block_sum(sum, scratch[2]) * inv_dim;
    const float pull = block_sum(dot, scratch[3]) * inv_dim;
    Row<V>::for_each(dim, [&](int i, int64_t column) {
      float out[kVec], extra[kVec];
      if (dres != nullptr) load8(dres + t * dim + column, extra);
      for (int j = 0; j < kVec; ++j) {
        out[j] = s * (grad.x[i][j] - mean - row.x[i][j] * pull);
        if (dres != nullptr) out[j] += extra[j];
      }
      store8(dx + t * dim + column, out);
    });
  }
  Row<V>::for_each(dim, [&](int i, int64_t column) {
    if (dw_blocks != nullptr) store8(dw_blocks + blockIdx.x * dim + column, dw[i]);
    if (dbias_blocks != nullptr) store8(dbias_blocks + blockIdx.x * dim + column, dbias[i]);
  });
}

}  // namespace

cudaError_t layer_norm(const bf16* x, const bf16* w, const bf16* bias, bf16* y, int64_t tokens, int64_t dim,
                       float eps, float scale, Queue queue) {
  return with_row_shape(dim, [&](auto v, unsigned threads) {
    return launch(layer_norm_kernel<decltype(v)::value>, dim3(unsigned(tokens)), threads, 0, queue, x, w,
                  bias, y, dim, 1.0f / float(dim), eps, scale);
  });
}

template <class G>
cudaError_t layer_norm_bwd(const LayerNormGradient<G>& g, void* workspace, int64_t tokens, int64_t dim,
                           float eps, float scale, cudaStream_t stream) {
  const int64_t blocks = norm_partials(tokens);
  auto* partials = static_cast<float*>(workspace);
  float* dw_blocks = g.dw != nullptr ? partials : nullptr;
  float* dbias_blocks = g.dbias != nullptr ? partials + (g.dw != nullptr ? blocks * dim : 0) : nullptr;
  auto status = with_row_shape(dim, [&](auto v, unsigned threads) {
    return launch(layer_norm_bwd_kernel<decltype(v)::value>, dim3(unsigned(blocks)), threads, 0, stream, g.x,
                  g.w, g.dy, g.dres, g.dx, dw_blocks, dbias_blocks, tokens, dim, 1.0f / float(dim), eps,
                  scale);
  });
  if (status == cudaSuccess && g.dw != nullptr)
    status = sum_partials(dw_blocks, g.dw, blocks, dim, g.accumulate_dw, stream);
  if (status == cudaSuccess && g.dbias != nullptr)
    status = sum_partials(dbias_blocks, g.dbias, blocks, dim, g.accumulate_dbias, stream);
  return status;
}

template cudaError_t layer_norm_bwd(const LayerNormGradient<float>&, void*, int64_t, int64_t, float, float,
                                    cudaStream_t);
template cudaError_t layer_norm_bwd(const LayerNormGradient<bf16>&, void*, int64_t, int64_t, float, float,
                                    cudaStream_t);

}  // namespace sluice::core::cuda
