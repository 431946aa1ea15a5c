// AdamW. Whether to update at all is data on the device (args.update, clip[1]), so that no step waits for the
// host.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/rounding.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// The moments of one step, in explicit roundings: which products and sums the compiler fuses must not depend
// on the kernel this is part of.
struct MomentsUpdate {
  float clip, beta1, beta2;

  __device__ void operator()(float& m, float& v, float g) const {
    g = __fmul_rn(clip, g);
    m = __fmaf_rn(beta1, m, __fmul_rn(1.0f - beta1, g));
    v = __fmaf_rn(g, __fmul_rn(1.0f - beta2, g), __fmul_rn(beta2, v));
  }
};

// A weight from its new moments, likewise.
struct WeightUpdate {
  float decay, rate, inv_bias1, inv_bias2, eps;

  __device__ WeightUpdate(const AdamWParams& params, const StepArgs& args)
      : decay(params.weight_decay),
        rate(args.learning_rate),
        inv_bias1(1.0f / args.bias1),
        inv_bias2(1.0f / args.bias2),
        eps(params.eps) {}

  __device__ void operator()(float& w, float m, float v) const {
    const float root = approximate_sqrt(__fmul_rn(v, inv_bias2));
    const float direction = __fdividef(__fmul_rn(m, inv_bias1), __fadd_rn(root, eps));
    w = __fmaf_rn(-rate, __fmaf_rn(decay, w, direction), w);
  }
};

// A bf16 that a draw rounded, as a float: storing it to bf16 changes nothing any more.
__device__ float rounded(float x, uint32_t draw) {
  return __uint_as_float(uint32_t{round_stochastic(__float_as_uint(x), draw)} << 16);
}

// The elements of one thread on their way.
struct Elements {
  float w[kVec], g[kVec], m[kVec], v[kVec];
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

// How many of a thread's elements there are: all eight, or (int) fewer, the last of the tensor.
struct Whole {};

template <class T>
__device__ void load(const T* from, float (&x)[kVec], Whole) {
  load8(from, x);
}
template <class T>
__device__ void load(const T* from, float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i < count) x[i] = to_float(from[i]);
  }
}
template <class T>
__device__ void store(T* to, const float (&x)[kVec], Whole) {
  store8(to, x);
}
template <class T>
__device__ void store(T* to, const float (&x)[kVec], int count) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i < count) store_float(to + i, x[i]);
  }
}

// Calls body(how many) for the elements from `begin` on: one branch around all loads, so that they are in
// flight together.
template <class Body>
__device__ void with_count(const AdamWParams& params, int64_t begin, Body&& body) {
  if (begin + kVec <= params.elements) {
    body(Whole{});
  } else {
    body(int(params.elements - begin));
  }
}

__device__ void advance_moments(const AdamWParams& params, float clip, Elements& e) {
  const MomentsUpdate update{clip, params.beta1, params.beta2};
#pragma unroll
  for (int i = 0; i < kVec; ++i) update(e.m[i], e.v[i], e.g[i]);
}

// Rounds a thread's elements, from `first` of the parameter on.
template <bool kWeights, bool kState>
__device__ void round_all(Elements& e, const AdamWParams& params, const StepArgs& args, int64_t first) {
  const uint64_t key = rounding_key(args.seed, params.object);
  if (first % 2 == 0) {
    round_elements<0, kWeights, kState>(e, key, args.step, first);
  } else {
    round_elements<1, kWeights, kState>(e, key, args.step, first);
  }
}

__device__ int64_t first_element() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
}

// kMoments: whether m and v are written.
template <bool kMaster, bool kStochastic, bool kMoments, class G, class S>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWParams params, bf16* p, const G* gradient, S* m, S* v, float* master, const float* clip,
                 const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = first_element();
  if (begin >= params.elements) return;

  Elements e{};
  with_count(params, begin, [&](auto count) {
    if constexpr (kMaster) {
      load(master + begin, e.w, count);
    } else {
      load(p + begin, e.w, count);
    }
    load(gradient + begin, e.g, count);
    load(m + begin, e.m, count);
    load(v + begin, e.v, count);
  });
  advance_moments(params, clip[1], e);
  const WeightUpdate update(params, *args);
#pragma unroll
  for (int i = 0; i < kVec; ++i) update(e.w[i], e.m[i], e.v[i]);
  if constexpr (kStochastic) {
    round_all<!kMaster, kMoments && sizeof(S) == sizeof(bf16)>(e, params, *args, params.first + begin);
  }

  with_count(params, begin, [&](auto count) {
    if constexpr (kMaster) store(master + begin, e.w, count);
    store(p + begin, e.w, count);
    if constexpr (kMoments) {
      store(m + begin, e.m, count);
      store(v + begin, e.v, count);
    }
  });
}

template <bool kStochastic, class G, class S>
__global__ void __launch_bounds__(kThreads) moments_kernel(AdamWParams params, const G* gradient, S* m, S* v,
                                                           const float* clip, const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = first_element();
  if (begin >= params.elements) return;

  Elements e{};
  with_count(params, begin, [&](auto count) {
    load(gradient + begin, e.g, count);
    load(m + begin, e.m, count);
    load(v + begin, e.v, count);
  });
  advance_moments(params, clip[1], e);
  if constexpr (kStochastic && sizeof(S) == sizeof(bf16)) {
    round_all<false, true>(e, params, *args, params.first + begin);
  }
  with_count(params, begin, [&](auto count) {
    store(m + begin, e.m, count);
    store(v + begin, e.v, count);
  });
}

template <bool kMoments, class G, class S>
auto pick_kernel(bool master, bool stochastic) {
  if (master) {
    return stochastic ? adamw_kernel<true, true, kMoments, G, S> : adamw_kernel<true, false, kMoments, G, S>;
  }
  return stochastic ? adamw_kernel<false, true, kMoments, G, S> : adamw_kernel<false, false, kMoments, G, S>;
}

}  // namespace

template <class G, class S>
cudaError_t adamw(const AdamWParams& params, bf16* p, const G* g, S* m, S* v, float* master,
                  const float* clip, const StepArgs* args, bool stochastic, bool moments,
                  cudaStream_t stream) {
  const bool has_master = master != nullptr;
  const auto kernel = moments ? pick_kernel<true, G, S>(has_master, stochastic)
                              : pick_kernel<false, G, S>(has_master, stochastic);
  return launch(kernel, dim3(blocks_for(params.elements, kThreads * kVec)), kThreads, 0, stream, params, p, g,
                m, v, master, clip, args);
}

template <class G, class S>
cudaError_t adamw_moments(const AdamWParams& params, const G* g, S* m, S* v, const float* clip,
                          const StepArgs* args, bool stochastic, cudaStream_t stream) {
  const auto kernel = stochastic ? moments_kernel<true, G, S> : moments_kernel<false, G, S>;
  return launch(kernel, dim3(blocks_for(params.elements, kThreads * kVec)), kThreads, 0, stream, params, g, m,
                v, clip, args);
}

#define SLUICE_INSTANTIATE(G, S)                                                                          \
  template cudaError_t adamw(const AdamWParams&, bf16*, const G*, S*, S*, float*, const float*,           \
                             const StepArgs*, bool, bool, cudaStream_t);                                  \
  template cudaError_t adamw_moments(const AdamWParams&, const G*, S*, S*, const float*, const StepArgs*, \
                                     bool, cudaStream_t)
SLUICE_INSTANTIATE(float, float);
SLUICE_INSTANTIATE(float, bf16);
SLUICE_INSTANTIATE(bf16, float);
SLUICE_INSTANTIATE(bf16, bf16);
#undef SLUICE_INSTANTIATE

}  // namespace sluice::cuda
