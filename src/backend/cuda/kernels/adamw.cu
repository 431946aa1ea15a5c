// AdamW's rule.
#include "backend/cuda/kernels/update.cuh"

namespace sluice::cuda {
namespace {

template <>
struct Step<AdamWRule> {
  float beta1, beta2, decay, rate, inv_bias1, inv_bias2, eps;

  __device__ Step(const AdamWRule& rule, const StepArgs& args)
      : beta1(rule.beta1),
        beta2(rule.beta2),
        decay(rule.weight_decay),
        rate(args.learning_rate),
        inv_bias1(1.0f / args.bias1),
        inv_bias2(1.0f / args.bias2),
        eps(rule.eps) {}

  __device__ void advance(float, float g, float (&state)[2]) const {
    auto& [m, v] = state;
    m = __fmaf_rn(beta1, m, __fmul_rn(1.0f - beta1, g));
    v = __fmaf_rn(g, __fmul_rn(1.0f - beta2, g), __fmul_rn(beta2, v));
  }
  __device__ float weight(float w, float, const float (&)[2], const float (&state)[2]) const {
    const auto& [m, v] = state;
    const float root = approximate_sqrt(__fmul_rn(v, inv_bias2));
    const float direction = __fdividef(__fmul_rn(m, inv_bias1), __fadd_rn(root, eps));
    return __fmaf_rn(-rate, __fmaf_rn(decay, w, direction), w);
  }
};

}  // namespace

SLUICE_INSTANTIATE_UPDATE(AdamWRule);

}  // namespace sluice::cuda
