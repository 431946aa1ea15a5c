// SPDX-License-Identifier: Apache-2.0
// Updates of weights, by each optimizer.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cuda/runner_call.h"

namespace sluice::core::cuda {
namespace {

AdamWRule rule_of(const AdamW& op) {
  return {float(op.beta1), float(op.beta2), op.eps, op.weight_decay, op.beta1, op.beta2};
}
AdamWRule rule_of(const AdamWMoments& op) {
  return {float(op.beta1), float(op.beta2), 0, 0, op.beta1, op.beta2};
}
SgdMomentumRule rule_of(const SgdMomentum& op) {
  return {op.momentum, op.weight_decay, op.nesterov};
}
SgdMomentumRule rule_of(const SgdMomentumState& op) {
  return {op.momentum, 0, false};
}
LionRule rule_of(const Lion& op) {
  return {op.beta1, op.beta2, op.weight_decay};
}
LionRule rule_of(const LionState& op) {
  return {0, op.beta2, 0};
}

}  // namespace

Status Runner::run_update(const auto& op, const Call& call) {
  using AnyUpdate = std::remove_cvref_t<decltype(op)>;
  const auto rule = rule_of(op);
  using Rule = std::remove_cvref_t<decltype(rule)>;
  const UpdateRange range{op.elements, op.first, op.object};
  const auto* clip = call.as<float>(AnyUpdate::kClip);
  const auto* args = call.as<StepArgs>(AnyUpdate::kArgs);
  const auto run_typed = [&](auto grad, auto state_type) {
    using S = decltype(state_type);
    const auto* g = call.as<decltype(grad)>(AnyUpdate::kG);
    S* state[Rule::kStates];
    for (int k = 0; k < Rule::kStates; ++k) state[k] = call.as<S>(AnyUpdate::kM + k);
    if constexpr (requires { AnyUpdate::kP; }) {
      const bool f32 = is_f32(op.dtype);  // these are masters without parameters beside them
      const cuda::Masters masters{
          f32                               ? call.as<float>(AnyUpdate::kP)
          : op.master == MasterWeights::F32 ? call.as<float>(AnyUpdate::kMaster)
                                            : nullptr,
          op.master == MasterWeights::I8 ? call.as<uint8_t>(AnyUpdate::kMaster) : nullptr};
      return update_weights(range, rule, f32 ? nullptr : call.as<bf16>(AnyUpdate::kP), g, state, masters,
                            clip, args, op.stochastic, op.moments, call.stream);
    } else {
      return update_state(range, rule, g, state, clip, args, op.stochastic, call.stream);
    }
  };
  return with_float(op.grad_dtype, [&](auto grad) {
    if (op.state_dtype == DType::I8) return run_typed(grad, cuda::Compact{});
    return with_device_type(op.state_dtype, [&](auto state) { return run_typed(grad, state); });
  });
}

Status Runner::run(const AdamW& op, const Call& call) {
  return run_update(op, call);
}
Status Runner::run(const AdamWMoments& op, const Call& call) {
  return run_update(op, call);
}
Status Runner::run(const SgdMomentum& op, const Call& call) {
  return run_update(op, call);
}
Status Runner::run(const SgdMomentumState& op, const Call& call) {
  return run_update(op, call);
}
Status Runner::run(const Lion& op, const Call& call) {
  return run_update(op, call);
}
Status Runner::run(const LionState& op, const Call& call) {
  return run_update(op, call);
}

Status Runner::run(const Muon& op, const Call& call) {
  const MuonParts at = workspace_parts(op);
  std::byte* const space = call.workspace.data;
  const Scratch scratch{space + at.product, kProductWorkspaceBytes};
  auto* u = reinterpret_cast<float*>(space + at.direction);
  bf16 *x = reinterpret_cast<bf16*>(space + at.x), *next = reinterpret_cast<bf16*>(u);
  bf16 *a = reinterpret_cast<bf16*>(space + at.a), *b = reinterpret_cast<bf16*>(space + at.b);
  auto* norm = reinterpret_cast<double*>(space + at.norm);
  const UpdateRange range{op.elements(), op.first, op.object};
  const MuonRule rule{op.momentum, op.scale, op.weight_decay, op.nesterov};
  const auto* clip = call.as<float>(Muon::kClip);
  const auto* args = call.as<StepArgs>(Muon::kArgs);
  // The direction is where masters would be; x is written once more by what comes next.
  SLUICE_TRY(with_float(op.grad_dtype, [&](auto grad) {
    const auto make = [&](auto state_type) {
      using S = decltype(state_type);
      S* state[] = {call.as<S>(Muon::kM)};
      return update_weights(range, rule, x, call.as<decltype(grad)>(Muon::kG), state,
                            cuda::Masters{u, nullptr}, clip, args, op.stochastic, true, call.stream);
    };
    if (op.state_dtype == DType::I8) return make(cuda::Compact{});
    return with_device_type(op.state_dtype, [&](auto state) { return make(state); });
  }));
  SLUICE_CUDA_TRY(sum_sq(u, norm, space + at.partials, op.elements(), 0, 1, true, call.stream));
  SLUICE_CUDA_TRY(muon_scale(u, norm, Muon::kEps, x, op.elements(), call.stream));
  const MuonProducts products = muon_products(op);
  for (int i = 0; i < Muon::kSteps; ++i) {
    SLUICE_TRY(products_.run(products.gram, x, x, nullptr, a, scratch, call.stream));
    SLUICE_TRY(products_.run(products.square, a, a, nullptr, b, scratch, call.stream));
    SLUICE_CUDA_TRY(
        muon_polynomial({Muon::kLinear, Muon::kCubic, Muon::kQuintic}, a, b, op.side(), call.stream));
    SLUICE_TRY(products_.run(products.next, op.tall() ? x : b, op.tall() ? b : x, nullptr, next, scratch,
                             call.stream));
    std::swap(x, next);
  }
  const cuda::Masters masters{op.master == MasterWeights::F32 ? call.as<float>(Muon::kMaster) : nullptr,
                              op.master == MasterWeights::I8 ? call.as<uint8_t>(Muon::kMaster) : nullptr};
  SLUICE_CUDA_TRY(
      muon_apply(range, rule, x, call.as<bf16>(Muon::kP), masters, op.stochastic, clip, args, call.stream));
  return {};
}

Status Runner::run(const Adafactor& op, const Call& call) {
  using A = Adafactor;
  const AdafactorParts at = workspace_parts(op);
  const auto part = [&](int64_t offset) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(call.workspace.data) + offset);
  };
  const AdafactorSpace space{part(at.row_factors), part(at.column_factors), part(at.row_sums),
                             part(at.weight_sums), part(at.column_sums),    part(at.scalars)};
  const AdafactorRule rule{op.decay_rate,     op.eps,          op.eps_scale,
                           op.clip_threshold, op.weight_decay, op.scale_parameter,
                           op.relative_step,  op.warmup_init};
  const cuda::Masters masters{op.master == MasterWeights::F32 ? call.as<float>(A::kMaster) : nullptr,
                              op.master == MasterWeights::I8 ? call.as<uint8_t>(A::kMaster) : nullptr};
  return with_float(op.grad_dtype, [&](auto grad) {
    return adafactor({op.rows, op.cols, op.first, op.object}, rule, call.as<bf16>(A::kP),
                     call.as<decltype(grad)>(A::kG), call.as<float>(A::kRow), call.as<float>(A::kCol),
                     masters, space, call.as<float>(A::kClip), call.as<StepArgs>(A::kArgs), op.stochastic,
                     call.stream);
  });
}

}  // namespace sluice::core::cuda
