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
    const float root = sqrtf(v * inv_bias2);
    w -= rate * (__fdividef(m * inv_bias1, root + eps) + decay * w);
  }
};

// The random bits of consecutive elements; one Philox call serves a pair.
class Rounder {
 public:
  __device__ Rounder(uint64_t key, int64_t step, int64_t element)
      : key_(key), step_(step), pair_(rounding_pair(key, step, element >> 1)) {}

  // Elements are asked for one after the other, from the one given to the constructor.
  __device__ RoundingBits next(int64_t element, bool first) {
    const bool odd = element & 1;
    if (!odd && !first) pair_ = rounding_pair(key_, step_, element >> 1);
    return rounding_bits(pair_, odd);
  }

 private:
  uint64_t key_;
  int64_t step_;
  Philox4 pair_;
};

// A bf16 that a draw rounded, as a float: storing it to bf16 changes nothing any more.
__device__ float rounded(float x, uint32_t draw) {
  return __uint_as_float(uint32_t{round_stochastic(__float_as_uint(x), draw)} << 16);
}

template <bool kMaster, bool kStochastic, class G, class S>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWParams params, bf16* p, const G* g, S* m, S* v, float* master, const float* clip,
                 const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (begin >= params.elements) return;
  const bool whole = begin + kVec <= params.elements;
  const int count = whole ? kVec : int(params.elements - begin);

  float ws[kVec] = {}, gs[kVec] = {}, ms[kVec] = {}, vs[kVec] = {};
  if (whole) {
    if constexpr (kMaster) {
      load8(master + begin, ws);
    } else {
      load8(p + begin, ws);
    }
    load8(g + begin, gs);
    load8(m + begin, ms);
    load8(v + begin, vs);
  } else {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if (i >= count) continue;
      ws[i] = kMaster ? master[begin + i] : to_float(p[begin + i]);
      gs[i] = to_float(g[begin + i]);
      ms[i] = to_float(m[begin + i]);
      vs[i] = to_float(v[begin + i]);
    }
  }

  const Update update(params, *args, clip[1]);
#pragma unroll
  for (int i = 0; i < kVec; ++i) update(ws[i], ms[i], vs[i], gs[i]);
  if constexpr (kStochastic) {
    Rounder rounder(rounding_key(args->seed, params.object), args->step, params.first + begin);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const RoundingBits bits = rounder.next(params.first + begin + i, i == 0);
      if constexpr (!kMaster) ws[i] = rounded(ws[i], bits.p);
      if constexpr (sizeof(S) == sizeof(bf16)) {
        ms[i] = rounded(ms[i], bits.m);
        vs[i] = rounded(vs[i], bits.v);
      }
    }
  }

  if (whole) {
    if constexpr (kMaster) store8(master + begin, ws);
    store8(p + begin, ws);
    store8(m + begin, ms);
    store8(v + begin, vs);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (i >= count) continue;
    if constexpr (kMaster) master[begin + i] = ws[i];
    store_float(p + begin + i, ws[i]);
    store_float(m + begin + i, ms[i]);
    store_float(v + begin + i, vs[i]);
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
