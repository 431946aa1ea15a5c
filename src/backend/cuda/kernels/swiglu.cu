// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU: y = activation(gate) * up, see ops/mlp.h. Backward also writes y again, because reading
// gate and up once serves both.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

// From exp(-|x|), which neither overflows nor loses its relative precision.
__device__ float sigmoid(float x) {
  const float e = __expf(-fabsf(x)), upper = __fdividef(1.0f, 1.0f + e);
  return x >= 0 ? upper : e * upper;
}

// The sigmoid that a gate is multiplied by, and how fast its argument grows with the gate.
struct Silu {
  static __device__ float share(float gate) { return sigmoid(gate); }
  static __device__ float slope(float) { return 1.0f; }
};
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  // Beyond, the sigmoid is 0 or 1, and the cube of what is still finite may not be.
  static __device__ float bounded(float gate) { return fminf(fmaxf(gate, -16.0f), 16.0f); }
  static __device__ float share(float gate) {
    const float x = bounded(gate);
    return sigmoid(kTwice * (x + kCubic * (x * x * x)));
  }
  static __device__ float slope(float gate) {
    const float x = bounded(gate);
    return kTwice * (1.0f + 3 * kCubic * (x * x));
  }
};

// One definition for both directions: recomputation must write the same bits.
template <class Gate>
__device__ float gated(float gate, float up) {
  return gate * Gate::share(gate) * up;
}

template <class Gate>
__global__ void swiglu_kernel(const bf16* gu, bf16* y, int64_t dim) {
  let_next_begin();
  await_previous();
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const bf16* row = gu + token * 2 * dim + column;
  const auto gates = Vec8<bf16>::load(row), ups = Vec8<bf16>::load(row + dim);
  float gate[kVec], up[kVec], out[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  for (int j = 0; j < kVec; ++j) out[j] = gated<Gate>(gate[j], up[j]);
  store8(y + token * dim + column, out);
}

template <class Gate>
__global__ void swiglu_bwd_kernel(const bf16* gu, const bf16* dy, bf16* dgu, bf16* y, int64_t dim) {
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const bf16* row = gu + token * 2 * dim + column;
  const auto gates = Vec8<bf16>::load(row), ups = Vec8<bf16>::load(row + dim);
  const auto grads = Vec8<bf16>::load(dy + token * dim + column);
  float gate[kVec], up[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  grads.unpack(grad);
  for (int j = 0; j < kVec; ++j) {
    const float s = Gate::share(gate[j]);
    out[j] = gated<Gate>(gate[j], up[j]);
    d_up[j] = grad[j] * gate[j] * s;
    d_gate[j] = grad[j] * up[j] * s * (1.0f + gate[j] * (1.0f - s) * Gate::slope(gate[j]));
  }
  store8(y + token * dim + column, out);
  store8(dgu + token * 2 * dim + column, d_gate);
  store8(dgu + token * 2 * dim + dim + column, d_up);
}

dim3 grid_for(int64_t tokens, int64_t dim) {
  return dim3(unsigned(tokens), blocks_for(dim, kThreads * kVec));
}

}  // namespace

cudaError_t swiglu(const bf16* gu, bf16* y, int64_t tokens, int64_t dim, bool gelu, Queue queue) {
  const auto kernel = gelu ? swiglu_kernel<GeluTanh> : swiglu_kernel<Silu>;
  return launch(kernel, grid_for(tokens, dim), kThreads, 0, queue, gu, y, dim);
}

cudaError_t swiglu_bwd(const bf16* gu, const bf16* dy, bf16* dgu, bf16* y, int64_t tokens, int64_t dim,
                       bool gelu, cudaStream_t stream) {
  const auto kernel = gelu ? swiglu_bwd_kernel<GeluTanh> : swiglu_bwd_kernel<Silu>;
  return launch(kernel, grid_for(tokens, dim), kThreads, 0, stream, gu, dy, dgu, y, dim);
}

}  // namespace sluice::core::cuda
