// SPDX-License-Identifier: Apache-2.0
// Gates of what a half of a layer makes (HeadGate of ops/delta.h): half a warp takes a head. With g = dy z
// sigmoid(z) and s = 1 / rms, a normalised head has dx = s (w g - x s mean(w g x s)), and dw is the sum of g
// x s. A fixed number of blocks sums its heads' dw, and a second kernel adds these in order.
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 16, kGroups = kThreads / kLanes, kStep = kLanes * kVec;
static_assert(kMaxGatedHeadDim == 2 * kStep);

__device__ float sigmoid_of(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}
// Every lane of a head's receives the sum.
__device__ float head_sum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

// A lane's share of a head, V vectors of it; 0 beyond it.
template <int V, class T>
__device__ void load_share(const T* head, int dim, bool exists, float (&x)[V][kVec]) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const int column = v * kStep + int(threadIdx.x) % kLanes * kVec;
#pragma unroll
    for (int i = 0; i < kVec; ++i) x[v][i] = 0;
    if (exists && column < dim) load8(head + column, x[v]);
  }
}
template <int V, class T>
__device__ void store_share(T* head, int dim, const float (&x)[V][kVec]) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const int column = v * kStep + int(threadIdx.x) % kLanes * kVec;
    if (column < dim) store8(head + column, x[v]);
  }
}

template <int V>
__device__ float inverse_rms(const float (&x)[V][kVec], int dim, float eps) {
  float squares = 0;
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) squares += x[v][i] * x[v][i];
  }
  return rsqrtf(head_sum(squares) / float(dim) + eps);
}

template <int V, bool kNormed, class T>
__global__ void __launch_bounds__(kThreads) head_gate_kernel(HeadGates<T> b, T* y) {
  const int64_t head = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes, at = head * b.head_dim;
  const bool exists = head < b.heads;
  float x[V][kVec], z[V][kVec], w[V][kVec];
  load_share(b.x + at, b.head_dim, exists, x);
  load_share(b.z + at, b.head_dim, exists, z);
  if (kNormed) load_share(b.w, b.head_dim, exists, w);
  const float s = kNormed ? inverse_rms(x, b.head_dim, b.eps) : 1.0f;
  if (!exists) return;
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      x[v][i] *= sigmoid_of(z[v][i]);
      if (kNormed) x[v][i] *= z[v][i] * s * w[v][i];
    }
  }
  store_share(y + at, b.head_dim, x);
}

// Partial sums: [blocks, head_dim] of dw.
template <int V, bool kNormed, class T>
__global__ void __launch_bounds__(kThreads)
    head_gate_bwd_kernel(HeadGates<T> b, const T* dy, T* dx, T* dz, float* partials) {
  __shared__ float sums[kNormed ? kGroups : 1][V * kStep];
  float w[V][kVec], dw[V][kVec] = {};
  if (kNormed) load_share(b.w, b.head_dim, true, w);
  const int group = threadIdx.x / kLanes;
  for (int64_t first = int64_t{blockIdx.x} * kGroups; first < b.heads;
       first += int64_t{gridDim.x} * kGroups) {
    const int64_t head = first + group, at = head * b.head_dim;
    const bool exists = head < b.heads;
    float x[V][kVec], z[V][kVec], d[V][kVec];
    load_share(b.x + at, b.head_dim, exists, x);
    load_share(b.z + at, b.head_dim, exists, z);
    load_share(dy + at, b.head_dim, exists, d);
    const float s = kNormed ? inverse_rms(x, b.head_dim, b.eps) : 1.0f;
    float dots = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const float gate = sigmoid_of(z[v][i]), given = d[v][i];
        if (kNormed) {
          const float xh = x[v][i] * s, slope = gate * (1.0f + z[v][i] * (1.0f - gate));
          d[v][i] = given * z[v][i] * gate;
          const float inner = d[v][i] * xh;
          dw[v][i] += inner;
          dots += inner * w[v][i];
          z[v][i] = slope * given * xh * w[v][i];
          x[v][i] = xh;
        } else {
          d[v][i] = given * gate;
          z[v][i] = d[v][i] * (1.0f - gate) * x[v][i];
        }
      }
    }
    if constexpr (kNormed) {
      const float mean = head_sum(dots) / float(b.head_dim);
#pragma unroll
      for (int v = 0; v < V; ++v) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) d[v][i] = (d[v][i] * w[v][i] - x[v][i] * mean) * s;
      }
    }
    if (!exists) continue;
    store_share(dx + at, b.head_dim, d);
    store_share(dz + at, b.head_dim, z);
  }
  if constexpr (kNormed) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) sums[group][v * kStep + int(threadIdx.x) % kLanes * kVec + i] = dw[v][i];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < b.head_dim; column += kThreads) {
      float total = 0;
      for (int i = 0; i < kGroups; ++i) total += sums[i][column];
      partials[int64_t{blockIdx.x} * b.head_dim + column] = total;
    }
  }
}

template <class F>
cudaError_t with_vectors(int head_dim, F f) {
  return head_dim <= kStep ? f(std::integral_constant<int, 1>{}) : f(std::integral_constant<int, 2>{});
}

}  // namespace

template <class T>
cudaError_t head_gate(const HeadGates<T>& b, T* y, cudaStream_t stream) {
  return with_vectors(b.head_dim, [&](auto vectors) {
    constexpr int V = decltype(vectors)::value;
    return launch(b.w != nullptr ? head_gate_kernel<V, true, T> : head_gate_kernel<V, false, T>,
                  dim3(blocks_for(b.heads, kGroups)), kThreads, 0, stream, b, y);
  });
}

template <class T, class G>
cudaError_t head_gate_bwd(const HeadGates<T>& b, const T* dy, T* dx, T* dz, G* dw, void* workspace,
                          int64_t tokens, bool accumulate, cudaStream_t stream) {
  const int64_t parts = head_norm_partials(tokens);
  auto* partials = static_cast<float*>(workspace);
  return with_vectors(b.head_dim, [&](auto vectors) {
    constexpr int V = decltype(vectors)::value;
    if (b.w == nullptr)
      return launch(head_gate_bwd_kernel<V, false, T>, dim3(blocks_for(b.heads, kGroups)), kThreads, 0,
                    stream, b, dy, dx, dz, partials);
    const auto status = launch(head_gate_bwd_kernel<V, true, T>, dim3(unsigned(parts)), kThreads, 0, stream,
                               b, dy, dx, dz, partials);
    if (status != cudaSuccess) return status;
    return sum_partials(partials, dw, parts, b.head_dim, accumulate, stream);
  });
}

template cudaError_t head_gate(const HeadGates<bf16>&, bf16*, cudaStream_t);
template cudaError_t head_gate(const HeadGates<float>&, float*, cudaStream_t);
template cudaError_t head_gate_bwd(const HeadGates<bf16>&, const bf16*, bf16*, bf16*, bf16*, void*, int64_t,
                                   bool, cudaStream_t);
template cudaError_t head_gate_bwd(const HeadGates<bf16>&, const bf16*, bf16*, bf16*, float*, void*, int64_t,
                                   bool, cudaStream_t);
template cudaError_t head_gate_bwd(const HeadGates<float>&, const float*, float*, float*, float*, void*,
                                   int64_t, bool, cudaStream_t);

}  // namespace sluice::core::cuda
