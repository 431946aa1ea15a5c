// SPDX-License-Identifier: Apache-2.0
// What of Muon is no product: its state and direction, as a rule of update.cuh, which writes the direction
// where masters would be; the polynomial; the weights. Whether to update at all is data on the device: what
// products make of a skipped update's memory nobody reads.
#include "backend/cuda/kernels/update.cuh"

namespace sluice::core::cuda {
namespace {

template <>
struct Step<MuonRule> {
  float momentum;
  bool nesterov;

  __device__ Step(const MuonRule& rule, const StepArgs&, const float*)
      : momentum(rule.momentum), nesterov(rule.nesterov) {}

  __device__ static float mix(float beta, float m, float g) {
    return __fmaf_rn(beta, m, __fmul_rn(1.0f - beta, g));
  }

  __device__ void advance(float, float g, float (&state)[1]) const { state[0] = mix(momentum, state[0], g); }
  __device__ float weight(float, float g, const float (&)[1], const float (&state)[1]) const {
    return nesterov ? mix(momentum, state[0], g) : state[0];
  }
};

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const float* u, const double* squares, float eps, bf16* x, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  x[i] = __float2bfloat16_rn(__fdiv_rn(u[i], fmaxf(float(sqrt(*squares)), eps)));
}

// b = linear on the diagonal + cubic a + quintic b
__global__ void __launch_bounds__(kThreads)
    polynomial_kernel(MuonPolynomial p, const bf16* a, bf16* b, int64_t side) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= side * side) return;
  const float linear = i / side == i % side ? p.linear : 0.0f;
  b[i] = __float2bfloat16_rn(
      __fadd_rn(__fmaf_rn(to_float(b[i]), p.quintic, __fmul_rn(to_float(a[i]), p.cubic)), linear));
}

// A thread per pair of elements that share their random numbers.
__global__ void __launch_bounds__(kThreads)
    apply_kernel(UpdateRange range, MuonRule rule, const bf16* x, bf16* p, Masters masters, bool stochastic,
                 const float* clip, const StepArgs* args) {
  if (args->update == 0 || clip[1] == 0.0f) return;
  const int64_t pair = int64_t{blockIdx.x} * kThreads + threadIdx.x, odd = range.first % 2;
  const float rate = __fmul_rn(args->learning_rate, rule.scale),
              decay = __fmul_rn(args->learning_rate, rule.weight_decay);
  const bool draws = stochastic && masters.f32 == nullptr && masters.residual == nullptr;
  const Philox4 bits =
      draws ? rounding_pair(rounding_key(args->seed, range.object), args->step, range.first / 2 + pair)
            : Philox4{};
  for (int half = 0; half < 2; ++half) {
    const int64_t i = 2 * pair + half - odd;
    if (i < 0 || i >= range.elements) continue;
    const auto* parameters = reinterpret_cast<const uint16_t*>(p);
    const float old = masters.f32 != nullptr ? masters.f32[i]
                      : masters.residual != nullptr
                          ? __uint_as_float(join_master(parameters[i], masters.residual[i]))
                          : to_float(p[i]);
    const float w = __fsub_rn(old, __fmaf_rn(to_float(x[i]), rate, __fmul_rn(old, decay)));
    if (masters.residual != nullptr) {
      const SplitMaster split = split_master(__float_as_uint(w));
      reinterpret_cast<uint16_t*>(p)[i] = split.parameter;
      masters.residual[i] = split.residual;
      continue;
    }
    if (masters.f32 != nullptr) masters.f32[i] = w;
    store_float(p + i, draws ? rounded(w, rounding_bits(bits, half == 1).p) : w);
  }
}

}  // namespace

SLUICE_INSTANTIATE_UPDATE(MuonRule);

cudaError_t muon_scale(const float* u, const double* squares, float eps, bf16* x, int64_t elements,
                       cudaStream_t stream) {
  return launch(scale_kernel, dim3(blocks_for(elements, kThreads)), kThreads, 0, stream, u, squares, eps, x,
                elements);
}

cudaError_t muon_polynomial(const MuonPolynomial& p, const bf16* a, bf16* b, int64_t side,
                            cudaStream_t stream) {
  return launch(polynomial_kernel, dim3(blocks_for(side * side, kThreads)), kThreads, 0, stream, p, a, b,
                side);
}

cudaError_t muon_apply(const UpdateRange& range, const MuonRule& rule, const bf16* x, bf16* p,
                       const Masters& masters, bool stochastic, const float* clip, const StepArgs* args,
                       cudaStream_t stream) {
  const int64_t pairs = (range.elements + range.first % 2 + 1) / 2;
  return launch(apply_kernel, dim3(blocks_for(pairs, kThreads)), kThreads, 0, stream, range, rule, x, p,
                masters, stochastic, clip, args);
}

}  // namespace sluice::core::cuda
