// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU: y = activation(gate) * up, see ops/mlp.h. Backward also writes y again, because reading
// gate and up once serves both. Rows of gates and of ups are equally far apart, in one matrix or in two.
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

// From exp(-|x|), which neither overflows nor loses its relative precision.
__device__ float sigmoid(float x) {
  const float e = __expf(-fabsf(x)), upper = __fdividef(1.0f, 1.0f + e);
  return x >= 0 ? upper : e * upper;
}

// The share of a gate that is left of it, and what its derivative is times the gate, given that share.
struct Silu {
  static __device__ float share(float gate) { return sigmoid(gate); }
  static __device__ float growth(float gate, float share) { return share * (gate * (1.0f - share)); }
};
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  // Beyond, the sigmoid is 0 or 1, and the cube of what is still finite may not be.
  static __device__ float bounded(float gate) { return fminf(fmaxf(gate, -16.0f), 16.0f); }
  static __device__ float share(float gate) {
    const float x = bounded(gate);
    return sigmoid(kTwice * (x + kCubic * (x * x * x)));
  }
  static __device__ float growth(float gate, float share) {
    const float x = bounded(gate);
    return share * (gate * (1.0f - share) * (kTwice * (1.0f + 3 * kCubic * (x * x))));
  }
};
struct Gelu {
  static __device__ float share(float gate) { return normcdff(gate); }
  static __device__ float growth(float gate, float) {
    return gate * (0.3989422804014327f * __expf(-0.5f * gate * gate));  // 1 / sqrt(2 pi)
  }
};

struct QuickGelu {
  static constexpr float kSteep = 1.702f;
  static __device__ float share(float gate) { return sigmoid(kSteep * gate); }
  static __device__ float growth(float gate, float share) { return share * (gate * (1.0f - share) * kSteep); }
};

// A gate and its factor under a limit, unless that is 0. A NaN stays one, which fminf would not let it.
__device__ float limited_gate(float gate, float limit) {
  return limit > 0 && gate > limit ? limit : gate;
}
__device__ float limited_up(float up, float limit) {
  return limit > 0 ? (up > limit ? limit : up < -limit ? -limit : up) + 1.0f : up;
}

// One definition for both directions: recomputation must write the same bits.
template <class Gate>
__device__ float gated(float gate, float up) {
  return gate * Gate::share(gate) * up;
}

template <class Gate, bool kPlain, class T>
__global__ void swiglu_kernel(GateRows<T> rows, T* y, int64_t dim, float limit) {
  let_next_begin();
  await_previous();
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const int64_t at = token * rows.stride + column;
  const auto gates = Vec8<T>::load(rows.gate + at), ups = Vec8<T>::load((kPlain ? rows.gate : rows.up) + at);
  float gate[kVec], up[kVec], out[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  for (int j = 0; j < kVec; ++j)
    out[j] = gated<Gate>(limited_gate(gate[j], limit), kPlain ? 1.0f : limited_up(up[j], limit));
  store8(y + token * dim + column, out);
}

template <class Gate, bool kPlain, class T>
__global__ void swiglu_bwd_kernel(GateRows<T> rows, const T* dy, T* d_gates, T* d_ups, T* y, int64_t dim,
                                  float limit) {
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const int64_t at = token * rows.stride + column;
  const auto gates = Vec8<T>::load(rows.gate + at), ups = Vec8<T>::load((kPlain ? rows.gate : rows.up) + at);
  const auto grads = Vec8<T>::load(dy + token * dim + column);
  float gate[kVec], up[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  grads.unpack(grad);
  for (int j = 0; j < kVec; ++j) {
    const float x = limited_gate(gate[j], limit), u = kPlain ? 1.0f : limited_up(up[j], limit);
    const float s = Gate::share(x);
    out[j] = gated<Gate>(x, u);
    d_up[j] = limit > 0 && fabsf(up[j]) > limit ? 0.0f : grad[j] * x * s;
    d_gate[j] = limit > 0 && gate[j] > limit ? 0.0f : grad[j] * u * (s + Gate::growth(x, s));
  }
  store8(y + token * dim + column, out);
  store8(d_gates + at, d_gate);
  if (!kPlain) store8(d_ups + at, d_up);
}

// A block has a row of an expert. Its expert, where there is a bias, is the last that begins at or before it.
template <class Gate>
__global__ void __launch_bounds__(kThreads) expert_glu_bwd_kernel(ExpertGlu all, float limit) {
  __shared__ float scratch[kMaxWarps];
  const int64_t row = blockIdx.x, dim = all.dim;
  const int32_t choice = all.choice[row];
  const float of_row = all.gates[choice];
  float dot = 0;
  for (int64_t column = int64_t{threadIdx.x} * kVec; column < dim; column += int64_t{blockDim.x} * kVec) {
    const int64_t at = row * 2 * dim + column;
    const auto gates = Vec8<bf16>::load(all.gu + at), ups = Vec8<bf16>::load(all.gu + at + dim);
    const auto grads = Vec8<bf16>::load(all.dy + row * dim + column);
    float gate[kVec], up[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
    gates.unpack(gate);
    ups.unpack(up);
    grads.unpack(grad);
    for (int j = 0; j < kVec; ++j) {
      const float x = limited_gate(gate[j], limit), u = limited_up(up[j], limit), s = Gate::share(x);
      const float y = gated<Gate>(x, u), g = of_row * grad[j];
      dot += grad[j] * y;
      out[j] = of_row * y;
      d_up[j] = limit > 0 && fabsf(up[j]) > limit ? 0.0f : g * x * s;
      d_gate[j] = limit > 0 && gate[j] > limit ? 0.0f : g * u * (s + Gate::growth(x, s));
    }
    store8(all.gated + row * dim + column, out);
    store8(all.dgu + at, d_gate);
    store8(all.dgu + at + dim, d_up);
  }
  if (all.bias != nullptr) {
    int64_t expert = 0;
    // A rehearsal of zeros has a routing without rows.
    while (expert + 1 < all.experts && all.begin[expert + 1] <= row) ++expert;
    const bf16 *bias = all.bias + expert * all.biased, *dout = all.dout + choice / all.top_k * all.biased;
    for (int64_t column = int64_t{threadIdx.x} * kVec; column < all.biased;
         column += int64_t{blockDim.x} * kVec) {
      float a[kVec], b[kVec];
      load8(bias + column, a);
      load8(dout + column, b);
      for (int j = 0; j < kVec; ++j) dot += a[j] * b[j];
    }
  }
  dot = block_sum(dot, scratch);
  if (threadIdx.x == 0) all.dgates[choice] = dot;
}

dim3 grid_for(int64_t tokens, int64_t dim) {
  return dim3(unsigned(tokens), blocks_for(dim, kThreads * kVec));
}

// Calls f with the activation as a type, and whether all is gate as a constant. f32 has SiLU alone.
template <class T, class F>
cudaError_t with_gate(Activation activation, bool plain, F f) {
  const auto with = [&](auto gate) { return plain ? f(gate, std::true_type{}) : f(gate, std::false_type{}); };
  if constexpr (std::is_same_v<T, float>) {
    return with(Silu{});
  } else {
    if (activation == Activation::Silu) return with(Silu{});
    if (activation == Activation::QuickGelu) return with(QuickGelu{});
    return activation == Activation::Gelu ? with(Gelu{}) : with(GeluTanh{});
  }
}

}  // namespace

cudaError_t expert_glu_bwd(const ExpertGlu& rows, const GateForm& form, cudaStream_t stream) {
  return with_gate<bf16>(form.activation, false, [&](auto gate, auto) {
    return launch(expert_glu_bwd_kernel<decltype(gate)>, dim3(unsigned(rows.rows)),
                  threads_for(rows.dim / kVec, kThreads), 0, stream, rows, form.limit);
  });
}

template <class T>
cudaError_t swiglu(const GateRows<T>& rows, T* y, int64_t tokens, int64_t dim, const GateForm& form,
                   Queue queue) {
  return with_gate<T>(form.activation, rows.up == nullptr, [&](auto gate, auto is_plain) {
    return launch(swiglu_kernel<decltype(gate), decltype(is_plain)::value, T>, grid_for(tokens, dim),
                  kThreads, 0, queue, rows, y, dim, form.limit);
  });
}

template <class T>
cudaError_t swiglu_bwd(const GateRows<T>& rows, const T* dy, T* d_gate, T* d_up, T* y, int64_t tokens,
                       int64_t dim, const GateForm& form, cudaStream_t stream) {
  return with_gate<T>(form.activation, rows.up == nullptr, [&](auto gate, auto is_plain) {
    return launch(swiglu_bwd_kernel<decltype(gate), decltype(is_plain)::value, T>, grid_for(tokens, dim),
                  kThreads, 0, stream, rows, dy, d_gate, d_up, y, dim, form.limit);
  });
}

template cudaError_t swiglu(const GateRows<bf16>&, bf16*, int64_t, int64_t, const GateForm&, Queue);
template cudaError_t swiglu(const GateRows<float>&, float*, int64_t, int64_t, const GateForm&, Queue);
template cudaError_t swiglu_bwd(const GateRows<bf16>&, const bf16*, bf16*, bf16*, bf16*, int64_t, int64_t,
                                const GateForm&, cudaStream_t);
template cudaError_t swiglu_bwd(const GateRows<float>&, const float*, float*, float*, float*, int64_t,
                                int64_t, const GateForm&, cudaStream_t);

}  // namespace sluice::core::cuda
