// AdamW. Whether to update at all is data on the device (args.update, clip[1]), so that no step waits for the
// host.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/rounding.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// What one step needs, the same for every element.
struct Update {
  float clip, beta1, beta2, decay, rate, inv_bias1, inv_bias2, eps;

  __device__ Update(const AdamWParams& params, const StepArgs& args, float clip_scale)
      : clip(clip_scale),
        beta1(params.beta1),
        beta2(params.beta2),
        decay(params.weight_decay),
        rate(args.learning_rate),
        inv_bias1(1.0f / args.bias1),
        inv_bias2(1.0f / args.bias2),
        eps(params.eps) {}

  __device__ void operator()(float& w, float& m, float& v, float g) const {
    g *= clip;
    m = beta1 * m + (1.0f - beta1) * g;
    v = beta2 * v + (1.0f - beta2) * g * g;
    const float root = approximate_sqrt(v * inv_bias2);
    w -= rate * (__fdividef(m * inv_bias1, root + eps) + decay * w);
  }
};

// A bf16 that a draw rounded, as a float: storing it to bf16 changes nothing any more.
__device__ float rounded(float x, uint32_t draw) {
  return __uint_as_float(uint32_t{round_stochastic(__float_as_uint(x), draw)} << 16);
}

// The elements of one thread on their way.
struct Elements {
  float w[kVec], m[kVec], v[kVec];
};

// Rounds elements from `first` on; one Philox call serves a pair. kOdd: `first` is the second of its pair.
// kWeights, kState: what is bf16.
template <int kOdd, bool kWeights, bool kState>
__device__ void round_elements(Elements& e, uint64_t key, int64_t step, int64_t first) {
#pragma unroll
  for (int k = 0; k < kVec / 2 + kOdd; ++k) {
    const Philox4 pair = rounding_pair(key, step, (first >> 1) + k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * k + half - kOdd;
      if (i < 0 || i >= kVec) continue;
      const RoundingBits bits = rounding_bits(pair, half == 1);
      if constexpr (kWeights) e.w[i] = rounded(e.w[i], bits.p);
      if constexpr (kState) {
        e.m[i] = rounded(e.m[i], bits.m);
        e.v[i] = rounded(e.v[i], bits.v);
      }
    }
  }
}

template <bool kMaster, bool kStochastic, class G, class S>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWParams params, bf16* p, const G* gradient, S* m, S* v, float* master, const float* clip,
                 const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (begin >= params.elements) return;
  const bool whole = begin + kVec <= params.elements;
  const int count = whole ? kVec : int(params.elements - begin);

  Elements e{};
  float g[kVec] = {};
  if (whole) {
    if constexpr (kMaster) {
      load8(master + begin, e.w);
    } else {
      load8(p + begin, e.w);
    }
    load8(gradient + begin, g);
    load8(m + begin, e.m);
    load8(v + begin, e.v);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if (i >= count) continue;
      e.w[i] = kMaster ? master[begin + i] : to_float(p[begin + i]);
      g[i] = to_float(gradient[begin + i]);
      e.m[i] = to_float(m[begin + i]);
      e.v[i] = to_float(v[begin + i]);
    }
  }

  const Update update(params, *args, clip[1]);
#pragma unroll
  for (int i = 0; i < kVec; ++i) update(e.w[i], e.m[i], e.v[i], g[i]);
  if constexpr (kStochastic) {
    constexpr bool kState = sizeof(S) == sizeof(bf16);
    const uint64_t key = rounding_key(args->seed, params.object);
    const int64_t first = params.first + begin;
    if (first % 2 == 0) {
      round_elements<0, !kMaster, kState>(e, key, args->step, first);
    } else {
      round_elements<1, !kMaster, kState>(e, key, args->step, first);
    }
  }

  if (whole) {
    if constexpr (kMaster) store8(master + begin, e.w);
    store8(p + begin, e.w);
    store8(m + begin, e.m);
    store8(v + begin, e.v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i >= count) continue;
    if constexpr (kMaster) master[begin + i] = e.w[i];
    store_float(p + begin + i, e.w[i]);
    store_float(m + begin + i, e.m[i]);
    store_float(v + begin + i, e.v[i]);
  }
}

}  // namespace

template <class G, class S>
cudaError_t adamw(const AdamWParams& params, bf16* p, const G* g, S* m, S* v, float* master,
                  const float* clip, const StepArgs* args, bool stochastic, cudaStream_t stream) {
  const auto kernel = master
                          ? (stochastic ? adamw_kernel<true, true, G, S> : adamw_kernel<true, false, G, S>)
                          : (stochastic ? adamw_kernel<false, true, G, S> : adamw_kernel<false, false, G, S>);
  return launch(kernel, dim3(blocks_for(params.elements, kThreads * kVec)), kThreads, 0, stream, params, p, g,
                m, v, master, clip, args);
}

#define SLUICE_INSTANTIATE(G, S)                                                                \
  template cudaError_t adamw(const AdamWParams&, bf16*, const G*, S*, S*, float*, const float*, \
                             const StepArgs*, bool, cudaStream_t)
SLUICE_INSTANTIATE(float, float);
SLUICE_INSTANTIATE(float, bf16);
SLUICE_INSTANTIATE(bf16, float);
SLUICE_INSTANTIATE(bf16, bf16);
#undef SLUICE_INSTANTIATE

}  // namespace sluice::cuda
