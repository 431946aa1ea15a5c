// SPDX-License-Identifier: Apache-2.0
// AdamW's rule.
#include "backend/cuda/kernels/update.cuh"
#include "ops/adam_bias.h"

namespace sluice::core::cuda {
namespace {

template <>
struct Step<AdamWRule> {
  static constexpr int kPerBlock = 2;  // 1 / bias
  float beta1, beta2, decay, rate, eps;
  const float* inv_bias;

  __device__ static float per_block(const AdamWRule& rule, const StepArgs& args, int i) {
    return 1.0f / adam_bias(i == 0 ? rule.exact_beta1 : rule.exact_beta2, args.updates);
  }
  __device__ Step(const AdamWRule& rule, const StepArgs& args, const float* block)
      : beta1(rule.beta1),
        beta2(rule.beta2),
        decay(rule.weight_decay),
        rate(args.learning_rate),
        eps(rule.eps),
        inv_bias(block) {}

  __device__ void advance(float, float g, float (&state)[2]) const {
    auto& [m, v] = state;
    m = __fmaf_rn(beta1, m, __fmul_rn(1.0f - beta1, g));
    v = __fmaf_rn(g, __fmul_rn(1.0f - beta2, g), __fmul_rn(beta2, v));
  }
  __device__ float weight(float w, float, const float (&)[2], const float (&state)[2]) const {
    const auto& [m, v] = state;
    const float root = approximate_sqrt(__fmul_rn(v, inv_bias[1]));
    const float direction = __fdividef(__fmul_rn(m, inv_bias[0]), __fadd_rn(root, eps));
    return __fmaf_rn(-rate, __fmaf_rn(decay, w, direction), w);
  }
};

}  // namespace

SLUICE_INSTANTIATE_UPDATE(AdamWRule);

}  // namespace sluice::core::cuda
