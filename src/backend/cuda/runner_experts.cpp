// SPDX-License-Identifier: Apache-2.0
// Ops of mixtures of experts.
#include "backend/cuda/runner_call.h"

namespace sluice::core::cuda {
namespace {

RouterSizes sizes_of(const Mixture& m) {
  return {m.tokens, m.experts, m.top_k};
}
RouterForm router_form_of(const auto& op) {
  const RouterKind kind = op.score == RouterScore::Softmax  ? RouterKind::Softmax
                          : op.score == RouterScore::Chosen ? RouterKind::Chosen
                                                            : RouterKind::Sigmoid;
  return {kind, op.normalised, op.scale};
}
// Groups all experts, or one group.
Grouping grouping_of(const Mixture& m, const int32_t* routing) {
  return {routing, m.experts, m.rows(), m.top_k, 0, m.experts};
}
Grouping grouping_of(const auto& op, const int32_t* routing) {
  Grouping out = grouping_of(op.mixture, routing);
  out.first = op.group.first, out.count = op.group.count;
  return out;
}

RankForm rank_form_of(const auto& op) {
  const ExpertRank& s = op.sizes;
  return {s.rank, s.parts, s.part, s.at, s.columns, op.scale};
}

}  // namespace

Status Runner::run(const GroupedLowRank& op, const Call& call) {
  using L = GroupedLowRank;
  SLUICE_CUDA_TRY(grouped_low_rank(grouping_of(op, call.as<int32_t>(L::kRouting)), rank_form_of(op),
                                   call.as<bf16>(L::kU), call.as<bf16>(L::kB), call.as<bf16>(L::kY),
                                   op.turned, call.stream));
  return {};
}

Status Runner::run(const GroupedLowRankDgrad& op, const Call& call) {
  using L = GroupedLowRankDgrad;
  SLUICE_CUDA_TRY(grouped_low_rank_dgrad(grouping_of(op, call.as<int32_t>(L::kRouting)), rank_form_of(op),
                                         call.as<bf16>(L::kDy), call.as<bf16>(L::kB), call.as<bf16>(L::kDu),
                                         op.gathers, op.accumulate, call.stream));
  return {};
}

Status Runner::run(const GroupedLowRankWgrad& op, const Call& call) {
  using L = GroupedLowRankWgrad;
  return with_float(op.grad_dtype, [&]<class G>(G) {
    return grouped_low_rank_wgrad(grouping_of(op, call.as<int32_t>(L::kRouting)), rank_form_of(op),
                                  call.as<bf16>(L::kDy), call.as<bf16>(L::kU), call.as<G>(L::kDb), op.gathers,
                                  op.accumulate, call.stream);
  });
}

Status Runner::run(const Route& op, const Call& call) {
  SLUICE_CUDA_TRY(route(call.as<float>(Route::kLogits), op.has_bias ? call.as<float>(Route::kBias) : nullptr,
                        call.as<float>(Route::kGates), call.as<int32_t>(Route::kChosen), sizes_of(op.mixture),
                        router_form_of(op), call.stream));
  return {};
}

Status Runner::run(const RouteBwd& op, const Call& call) {
  const double n = double(op.losses.n);
  const RouterTerms terms{
      op.losses.n > 0, op.reads_round() ? double(op.losses.balance) * double(op.mixture.experts) / n / n : 0,
      op.losses.z};
  SLUICE_CUDA_TRY(route_bwd(
      call.as<float>(RouteBwd::kLogits), call.as<int32_t>(RouteBwd::kChosen),
      call.as<float>(RouteBwd::kDgates), op.reads_round() ? call.as<double>(RouteBwd::kRound) : nullptr,
      call.as<bf16>(RouteBwd::kDlogits), sizes_of(op.mixture), router_form_of(op), terms, call.stream));
  return {};
}

Status Runner::run(const RouterLoad& op, const Call& call) {
  SLUICE_CUDA_TRY(router_load(call.as<float>(RouterLoad::kLogits), call.as<int32_t>(RouterLoad::kChosen),
                              call.as<double>(RouterLoad::kLayer), op.accumulate_layer,
                              op.alone ? nullptr : call.as<double>(RouterLoad::kRound), op.accumulate_round,
                              call.workspace.data, sizes_of(op.mixture), call.stream));
  return {};
}

Status Runner::run(const SortByExpert& op, const Call& call) {
  SLUICE_CUDA_TRY(sort_by_expert(call.as<int32_t>(SortByExpert::kChosen),
                                 call.as<int32_t>(SortByExpert::kRouting), call.workspace.data,
                                 sizes_of(op.mixture), call.stream));
  return {};
}

Status Runner::run(const GroupedLinear& op, const Call& call) {
  SLUICE_CUDA_TRY(grouped_linear(
      grouping_of(op, call.as<int32_t>(GroupedLinear::kRouting)), call.as<bf16>(GroupedLinear::kX),
      call.as<bf16>(GroupedLinear::kW), op.has_bias ? call.as<bf16>(GroupedLinear::kBias) : nullptr,
      call.as<bf16>(GroupedLinear::kY), op.out, op.in, op.gathers, op.accumulate, call.stream));
  return {};
}

Status Runner::run(const GroupedDgrad& op, const Call& call) {
  SLUICE_CUDA_TRY(grouped_dgrad(grouping_of(op, call.as<int32_t>(GroupedDgrad::kRouting)),
                                call.as<bf16>(GroupedDgrad::kDy), call.as<bf16>(GroupedDgrad::kW),
                                call.as<bf16>(GroupedDgrad::kDx), op.out, op.in, op.gathers, op.accumulate,
                                call.stream));
  return {};
}

Status Runner::run(const GroupedWgrad& op, const Call& call) {
  return with_float(op.grad_dtype, [&](auto grad) {
    return grouped_wgrad(grouping_of(op, call.as<int32_t>(GroupedWgrad::kRouting)),
                         call.as<bf16>(GroupedWgrad::kDy), call.as<bf16>(GroupedWgrad::kX),
                         call.as<decltype(grad)>(GroupedWgrad::kDw), op.out, op.in, op.gathers_dy,
                         op.gathers_x, op.accumulate, call.stream);
  });
}

Status Runner::run(const GroupedBiasGrad& op, const Call& call) {
  return with_float(op.grad_dtype, [&](auto grad) {
    return grouped_bias_grad(
        grouping_of(op.mixture, call.as<int32_t>(GroupedBiasGrad::kRouting)),
        call.as<bf16>(GroupedBiasGrad::kDy), op.gathers ? call.as<float>(GroupedBiasGrad::kGates) : nullptr,
        call.as<decltype(grad)>(GroupedBiasGrad::kDbias), op.out, op.accumulate, call.stream);
  });
}

Status Runner::run(const CombineExperts& op, const Call& call) {
  const Grouping g = grouping_of(op.mixture, call.as<int32_t>(CombineExperts::kRouting));
  SLUICE_CUDA_TRY(combine_experts(call.as<bf16>(CombineExperts::kX), g.row_of_choice(),
                                  op.has_gates ? call.as<float>(int(op.gates_operand())) : nullptr,
                                  op.has_residual ? call.as<bf16>(int(op.residual_operand())) : nullptr,
                                  call.as<bf16>(CombineExperts::kY), op.mixture.tokens, op.dim,
                                  op.mixture.top_k, call.stream));
  return {};
}

Status Runner::run(const ExpertGluBwd& op, const Call& call) {
  using E = ExpertGluBwd;
  const Grouping g = grouping_of(op.mixture, call.as<int32_t>(E::kRouting));
  const ExpertGlu rows{.gu = call.as<bf16>(E::kGu),
                       .dy = call.as<bf16>(E::kDy),
                       .gates = call.as<float>(E::kGates),
                       .begin = g.routing,
                       .choice = g.choices(),
                       .dgu = call.as<bf16>(E::kDgu),
                       .gated = call.as<bf16>(E::kGated),
                       .dgates = call.as<float>(E::kDgates),
                       .bias = op.biased > 0 ? call.as<bf16>(E::kBias) : nullptr,
                       .dout = op.biased > 0 ? call.as<bf16>(E::kDout) : nullptr,
                       .rows = g.rows,
                       .dim = op.dim,
                       .biased = op.biased,
                       .experts = int32_t(op.mixture.experts),
                       .top_k = int32_t(op.mixture.top_k)};
  SLUICE_CUDA_TRY(expert_glu_bwd(rows, {activation_of(op.activation), op.limit}, call.stream));
  return {};
}

Status Runner::run(const ScaleGates& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    return scale_gates(call.as<float>(ScaleGates::kGates), call.as<int32_t>(ScaleGates::kChosen),
                       call.as<T>(ScaleGates::kScales), call.as<float>(ScaleGates::kY), op.mixture.rows(),
                       call.stream);
  });
}

Status Runner::run(const ScaleGatesBwd& op, const Call& call) {
  using S = ScaleGatesBwd;
  const auto* chosen = call.as<int32_t>(S::kChosen);
  const auto* dy = call.as<float>(S::kDy);
  SLUICE_TRY(with_float(op.dtype, [&]<class T>(T) {
    return scale_gates(dy, chosen, call.as<T>(S::kScales), call.as<float>(S::kDgates), op.mixture.rows(),
                       call.stream);
  }));
  return with_float(op.grad_dtype, [&]<class G>(G) {
    return scales_grad(call.as<float>(S::kGates), chosen, dy, call.as<G>(S::kDscales), sizes_of(op.mixture),
                       op.accumulate, call.stream);
  });
}

Status Runner::run(const GatedAdd& op, const Call& call) {
  SLUICE_CUDA_TRY(gated_add(call.as<bf16>(GatedAdd::kX), call.as<float>(GatedAdd::kGate),
                            op.has_residual ? call.as<bf16>(GatedAdd::kResidual) : nullptr,
                            call.as<bf16>(GatedAdd::kY), op.tokens, op.dim, call.stream));
  return {};
}

Status Runner::run(const GatedAddBwd& op, const Call& call) {
  SLUICE_CUDA_TRY(gated_add_bwd(call.as<bf16>(GatedAddBwd::kX), call.as<float>(GatedAddBwd::kGate),
                                call.as<bf16>(GatedAddBwd::kDy), call.as<bf16>(GatedAddBwd::kDx),
                                call.as<bf16>(GatedAddBwd::kDgate), op.tokens, op.dim, call.stream));
  return {};
}

}  // namespace sluice::core::cuda
