// SPDX-License-Identifier: Apache-2.0
// RMSNorm, forward and backward: one pass over memory each, rows held in registers.
//
// Backward. Let r be 1/sqrt(mean(x^2) + eps), v be offset + w, and g be dy * scale.
//   dx = r * (v * g) - x * r^3 / dim * sum(v * g * x) (+ dres).
//   dw = sum over rows of g * x * r.
// Each of a fixed number of blocks sums dw over its rows, a second kernel adds the blocks in order. The
// number is the same on every GPU so that the bits are too.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/quantize.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/row_shape.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// Eight columns of a row whose factor is r.
__device__ inline Eight normed(const Eight& x, const Eight& weights, float r, float offset) {
  float v[kVec], weight[kVec];
  x.unpack(v);
  weights.unpack(weight);
#pragma unroll
  for (int j = 0; j < kVec; ++j) v[j] *= r * (offset + weight[j]);
  return Eight::of(v);
}

// V: vectors of 8 per thread.
template <class T, int V>
__global__ void __launch_bounds__(kMaxRowThreads)
    rms_norm_kernel(const T* x, const T* w, const T* residual, T* y, int64_t dim, float inv_dim,
                    NormForm form) {
  __shared__ float scratch[kMaxWarps];
  const T* from = x + blockIdx.x * dim;
  T* to = y + blockIdx.x * dim;
  Vec8<T> row[V], weights[V];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int64_t column = (threadIdx.x + int64_t{i} * blockDim.x) * kVec;
    if (column < dim) weights[i] = Vec8<T>::load(w + column);
  }
  let_next_begin();
  await_previous();
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int64_t column = (threadIdx.x + int64_t{i} * blockDim.x) * kVec;
    if (column < dim) row[i] = Vec8<T>::load(from + column);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int64_t column = (threadIdx.x + int64_t{i} * blockDim.x) * kVec;
    if (column >= dim) continue;
    float v[kVec];
    row[i].unpack(v);
    for (int j = 0; j < kVec; ++j) squares += v[j] * v[j];
  }
  const float r = rsqrtf(block_sum(squares, scratch) * inv_dim + form.eps) * form.scale;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int64_t column = (threadIdx.x + int64_t{i} * blockDim.x) * kVec;
    if (column >= dim) continue;
    float v[kVec], weight[kVec];
    row[i].unpack(v);
    weights[i].unpack(weight);
    for (int j = 0; j < kVec; ++j) v[j] *= r * (form.offset + weight[j]);
    if (residual != nullptr) {
      float extra[kVec];
      load8(residual + blockIdx.x * dim + column, extra);
      for (int j = 0; j < kVec; ++j) v[j] += extra[j];
    }
    store8(to + column, v);
  }
}

// y in 8 bits: what rms_norm_kernel stores has these maxima, and rows these factors. Magnitudes of a block's
// columns are gathered in pairs in dynamic shared memory.
template <int V>
__global__ void __launch_bounds__(kMaxRowThreads)
    rms_norm_maxima_kernel(const bf16* x, const bf16* w, float* factors, uint32_t* of_rows, uint32_t* of_cols,
                           int64_t tokens, int64_t dim, float inv_dim, NormForm form) {
  extern __shared__ uint32_t of_pairs[];
  __shared__ float scratch[2][kMaxWarps];
  const auto column_of = [&](int i) { return (threadIdx.x + int64_t{i} * blockDim.x) * kVec; };
  Eight weights[V], of_col[V] = {};
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (column_of(i) < dim) weights[i] = Eight::load(w + column_of(i));
  }
  int turn = 0;  // two sets of scratch, so that one barrier a row is enough
  for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x, turn ^= 1) {
    Eight row[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column_of(i) < dim) row[i] = Eight::load(x + t * dim + column_of(i));
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column_of(i) >= dim) continue;
      float v[kVec];
      row[i].unpack(v);
      for (int j = 0; j < kVec; ++j) squares += v[j] * v[j];
    }
    const float r = rsqrtf(block_sum(squares, scratch[turn]) * inv_dim + form.eps) * form.scale;
    uint32_t of_row = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column_of(i) >= dim) continue;
      const Eight y = normed(row[i], weights[i], r, form.offset);
      most_of(of_col[i], y);
      of_row = __vmaxu2(of_row, most_of(y));
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      of_row = __vmaxu2(of_row, __shfl_xor_sync(kFullWarp, of_row, offset));
    if (threadIdx.x % kWarp == 0) atomicMax(of_rows + t, low_magnitude(of_row));
    if (threadIdx.x == 0) factors[t] = r;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (column_of(i) >= dim) continue;
    for (int pair = 0; pair < kPairs; ++pair) of_pairs[column_of(i) / 2 + pair] = of_col[i].pairs[pair];
  }
  __syncthreads();
  for (int64_t pair = threadIdx.x; pair < dim / 2; pair += blockDim.x) {
    atomicMax(of_cols + 2 * pair, low_magnitude(of_pairs[pair]));
    atomicMax(of_cols + 2 * pair + 1, high_magnitude(of_pairs[pair]));
  }
}

// Rows of y as rms_norm_kernel stores them, given their factors.
struct NormedRows {
  const bf16* w;
  const float* factors;
  float offset;
  Eight weights = {};

  __device__ void begin(int64_t col) { weights = Eight::load(w + col); }
  __device__ Eight operator()(const Eight& x, int64_t row) const {
    return normed(x, weights, factors[row], offset);
  }
};

template <class T, int V>
__global__ void __launch_bounds__(V <= 2 ? 256 : kMaxRowThreads, V <= 2 ? 3 : 1)
    rms_norm_bwd_kernel(const T* x, const T* w, const T* dy, const T* dres, T* dx, float* dw_blocks,
                        int64_t tokens, int64_t dim, float inv_dim, NormForm form) {
  __shared__ float scratch[2][2][kMaxWarps];
  const auto column_of = [&](int i) { return (threadIdx.x + int64_t{i} * blockDim.x) * kVec; };
  float dw[V][kVec] = {};

  int turn = 0;  // two sets of scratch, so that one barrier a row is enough
  for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x, turn ^= 1) {
    Vec8<T> row[V], grad[V], residual[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int64_t column = column_of(i);
      if (column >= dim) continue;
      row[i] = Vec8<T>::load(x + t * dim + column);
      grad[i] = Vec8<T>::load(dy + t * dim + column);
      if (dres) residual[i] = Vec8<T>::load(dres + t * dim + column);
    }
    float squares = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (column_of(i) >= dim) continue;
      float a[kVec], g[kVec], b[kVec];
      row[i].unpack(a);
      grad[i].unpack(g);
      load8(w + column_of(i), b);
      for (int j = 0; j < kVec; ++j) {
        squares += a[j] * a[j];
        dot += a[j] * (g[j] * form.scale) * (form.offset + b[j]);
      }
    }
    // Both sums behind one barrier.
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
    squares = warp_sum(squares);
    dot = warp_sum(dot);
    if (lane == 0) {
      scratch[turn][0][warp] = squares;
      scratch[turn][1][warp] = dot;
    }
    __syncthreads();
    squares = warp_sum(lane < warps ? scratch[turn][0][lane] : 0.0f);
    dot = warp_sum(lane < warps ? scratch[turn][1][lane] : 0.0f);

    const float r = rsqrtf(squares * inv_dim + form.eps);
    const float pull = r * r * r * inv_dim * dot;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int64_t column = column_of(i);
      if (column >= dim) continue;
      float a[kVec], g[kVec], b[kVec], out[kVec];
      row[i].unpack(a);
      grad[i].unpack(g);
      load8(w + column, b);
      for (int j = 0; j < kVec; ++j) {
        const float scaled = g[j] * form.scale;
        out[j] = r * (form.offset + b[j]) * scaled - a[j] * pull;
        dw[i][j] += scaled * a[j] * r;
      }
      if (dres) {
        float extra[kVec];
        residual[i].unpack(extra);
        for (int j = 0; j < kVec; ++j) out[j] += extra[j];
      }
      store8(dx + t * dim + column, out);
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (column_of(i) < dim) store8(dw_blocks + blockIdx.x * dim + column_of(i), dw[i]);
  }
}

}  // namespace

template <class T>
cudaError_t rms_norm(const T* x, const T* w, const T* residual, T* y, int64_t tokens, int64_t dim,
                     const NormForm& form, Queue queue) {
  return with_row_shape(dim, [&](auto v, unsigned threads) {
    return launch(rms_norm_kernel<T, decltype(v)::value>, dim3(unsigned(tokens)), threads, 0, queue, x, w,
                  residual, y, dim, 1.0f / float(dim), form);
  });
}

template cudaError_t rms_norm(const bf16*, const bf16*, const bf16*, bf16*, int64_t, int64_t, const NormForm&,
                              Queue);
template cudaError_t rms_norm(const float*, const float*, const float*, float*, int64_t, int64_t,
                              const NormForm&, Queue);

cudaError_t rms_norm_narrow(const bf16* x, const bf16* w, uint8_t* y, uint8_t* turned, void* workspace,
                            int64_t tokens, int64_t dim, const NormForm& form, cudaStream_t stream) {
  constexpr int64_t kBlocks = 512;  // each adds its columns' maxima to those of all
  auto* const of_rows = static_cast<uint32_t*>(workspace);
  uint32_t* const of_cols = of_rows + tokens;
  auto* const factors = reinterpret_cast<float*>(of_cols + dim);
  if (const auto status = cudaMemsetAsync(of_rows, 0, size_t(tokens + dim) * sizeof(uint32_t), stream);
      status != cudaSuccess)
    return status;
  const auto status = with_row_shape(dim, [&](auto v, unsigned threads) {
    return launch(rms_norm_maxima_kernel<decltype(v)::value>,
                  dim3(unsigned(tokens < kBlocks ? tokens : kBlocks)), threads,
                  size_t(dim / 2) * sizeof(uint32_t), stream, x, w, factors, of_rows, of_cols, tokens, dim,
                  1.0f / float(dim), form);
  });
  if (status != cudaSuccess) return status;
  return quantize_tiles(NormedRows{w, factors, form.offset}, x, dim, of_rows, of_cols, y, turned, tokens, dim,
                        stream);
}

template <class T, class G>
cudaError_t rms_norm_bwd(const T* x, const T* w, const T* dy, const T* dres, T* dx, G* dw, void* workspace,
                         int64_t tokens, int64_t dim, const NormForm& form, bool accumulate,
                         cudaStream_t stream) {
  auto* dw_blocks = static_cast<float*>(workspace);
  const int64_t blocks = norm_partials(tokens);
  const auto status = with_row_shape(dim, [&](auto v, unsigned threads) {
    return launch(rms_norm_bwd_kernel<T, decltype(v)::value>, dim3(unsigned(blocks)), threads, 0, stream, x,
                  w, dy, dres, dx, dw_blocks, tokens, dim, 1.0f / float(dim), form);
  });
  if (status != cudaSuccess) return status;
  return sum_partials(dw_blocks, dw, blocks, dim, accumulate, stream);
}

template cudaError_t rms_norm_bwd(const float*, const float*, const float*, const float*, float*, float*,
                                  void*, int64_t, int64_t, const NormForm&, bool, cudaStream_t);
template cudaError_t rms_norm_bwd(const bf16*, const bf16*, const bf16*, const bf16*, bf16*, float*, void*,
                                  int64_t, int64_t, const NormForm&, bool, cudaStream_t);
template cudaError_t rms_norm_bwd(const bf16*, const bf16*, const bf16*, const bf16*, bf16*, bf16*, void*,
                                  int64_t, int64_t, const NormForm&, bool, cudaStream_t);

}  // namespace sluice::core::cuda
