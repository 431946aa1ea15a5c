// SPDX-License-Identifier: Apache-2.0
// The rule of SGD with momentum.
#include "backend/cuda/kernels/update.cuh"

namespace sluice::core::cuda {
namespace {

template <>
struct Step<SgdMomentumRule> {
  float momentum, decay, rate;
  bool nesterov;

  __device__ Step(const SgdMomentumRule& rule, const StepArgs& args, const float*)
      : momentum(rule.momentum),
        decay(rule.weight_decay),
        rate(args.learning_rate),
        nesterov(rule.nesterov) {}

  // The state alone is updated without the weights, so without decay they must not count.
  __device__ float decayed(float w, float g) const { return decay == 0.0f ? g : __fmaf_rn(decay, w, g); }

  __device__ void advance(float w, float g, float (&state)[1]) const {
    state[0] = __fmaf_rn(momentum, state[0], decayed(w, g));
  }
  __device__ float weight(float w, float g, const float (&)[1], const float (&state)[1]) const {
    const float m = state[0];
    return __fmaf_rn(-rate, nesterov ? __fmaf_rn(momentum, m, decayed(w, g)) : m, w);
  }
};

}  // namespace

SLUICE_INSTANTIATE_UPDATE(SgdMomentumRule);

}  // namespace sluice::core::cuda
