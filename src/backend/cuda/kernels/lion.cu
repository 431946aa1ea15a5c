// SPDX-License-Identifier: Apache-2.0
// Lion's rule.
#include "backend/cuda/kernels/update.cuh"

namespace sluice::core::cuda {
namespace {

template <>
struct Step<LionRule> {
  float beta1, beta2, decay, rate;

  __device__ Step(const LionRule& rule, const StepArgs& args, const float*)
      : beta1(rule.beta1), beta2(rule.beta2), decay(rule.weight_decay), rate(args.learning_rate) {}

  __device__ static float mix(float beta, float m, float g) {
    return __fmaf_rn(beta, m, __fmul_rn(1.0f - beta, g));
  }

  __device__ void advance(float, float g, float (&state)[1]) const { state[0] = mix(beta2, state[0], g); }
  __device__ float weight(float w, float g, const float (&old)[1], const float (&)[1]) const {
    const float c = mix(beta1, old[0], g);
    const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
    return __fmaf_rn(-rate, __fmaf_rn(decay, w, sign), w);
  }
};

}  // namespace

SLUICE_INSTANTIATE_UPDATE(LionRule);

}  // namespace sluice::core::cuda
