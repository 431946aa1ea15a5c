// SPDX-License-Identifier: Apache-2.0
// The reference's backward ops are the derivatives of its forward ops, by central differences in double
// precision.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "conformance/data.h"
#include "conformance/reference.h"

namespace sluice::core::conformance {
namespace {

constexpr auto kF32 = DType::F32;

std::vector<double> values_of(const Outputs& outputs, int operand) {
  std::vector<double> values;
  for (const Expected& expected : outputs) {
    if (expected.operand != operand) continue;
    for (const Approx& a : expected.values) values.push_back(a.value);
  }
  return values;
}

// Of loss() by the elements of a tensor that it reads. Differences have an error of h^2 f''' / 6, and h is
// 1/128.
void expect_derivative(const std::vector<double>& gradient, Tensor& tensor, const auto& loss) {
  double scale = 0;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  ASSERT_EQ(gradient.size(), static_cast<size_t>(tensor.elements()));
  ASSERT_GT(scale, 0);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    tensor.set(i, value + 0x1p-7);
    const double above = tensor.at(i), loss_above = loss();
    tensor.set(i, value - 0x1p-7);
    const double below = tensor.at(i), loss_below = loss();
    tensor.set(i, value);
    EXPECT_NEAR(gradient[static_cast<size_t>(i)], (loss_above - loss_below) / (above - below), 1e-3 * scale)
        << "element " << i;
  }
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void expect_gradient(const std::vector<double>& gradient, const Op& forward, std::vector<Tensor> in, int x,
                     int y, const std::vector<double>& dy) {
  expect_derivative(gradient, in[static_cast<size_t>(x)],
                    [&] { return dot(values_of(reference(forward, in), y), dy); });
}

TEST(Gradients, Embed) {
  const EmbedBwd backward{9, 7, 4, kF32, kF32, false};
  const auto in = make_operands(backward, {});
  const Tensor table = make_tensor(kF32, 7 * 4), y = make_tensor(kF32, 9 * 4);
  expect_gradient(values_of(reference(backward, in), EmbedBwd::kDTable), Embed{9, 7, 4, kF32},
                  {in[EmbedBwd::kIds], table, y}, Embed::kTable, Embed::kY, in[EmbedBwd::kDy].values());
}

TEST(Gradients, ScaledEmbed) {
  const EmbedBwd backward{9, 7, 4, kF32, kF32, false, 2.5f};
  const auto in = make_operands(backward, {});
  const Tensor table = make_tensor(kF32, 7 * 4), y = make_tensor(kF32, 9 * 4);
  expect_gradient(values_of(reference(backward, in), EmbedBwd::kDTable), Embed{9, 7, 4, kF32, 2.5f},
                  {in[EmbedBwd::kIds], table, y}, Embed::kTable, Embed::kY, in[EmbedBwd::kDy].values());
}

TEST(Gradients, EmbedAddedToAnother) {
  const EmbedBwd backward{9, 7, 4, kF32, kF32, false};
  const auto in = make_operands(backward, {});
  const Tensor table = make_tensor(kF32, 7 * 4), y = make_tensor(kF32, 9 * 4);
  expect_gradient(values_of(reference(backward, in), EmbedBwd::kDTable), Embed{9, 7, 4, kF32, 1, true},
                  {in[EmbedBwd::kIds], table, y, make_tensor(kF32, 9 * 4)}, Embed::kTable, Embed::kY,
                  in[EmbedBwd::kDy].values());
}

TEST(Gradients, ShiftedAndScaledRmsNorm) {
  const RmsNormBwd backward{3, 6, 1e-3f, kF32, kF32, false, false, 1, 2.5f};
  const auto in = make_operands(backward, {});
  const auto out = reference(backward, in);
  const RmsNorm forward{3, 6, 1e-3f, kF32, 1, 2.5f};
  const std::vector<Tensor> forward_in{in[RmsNormBwd::kX], in[RmsNormBwd::kW], make_tensor(kF32, 18)};
  const auto dy = in[RmsNormBwd::kDy].values();
  expect_gradient(values_of(out, RmsNormBwd::kDx), forward, forward_in, RmsNorm::kX, RmsNorm::kY, dy);
  expect_gradient(values_of(out, RmsNormBwd::kDw), forward, forward_in, RmsNorm::kW, RmsNorm::kY, dy);
}

TEST(Gradients, RmsNorm) {
  const RmsNormBwd backward{3, 6, 1e-3f, kF32, kF32, false, false};
  const auto in = make_operands(backward, {});
  const auto out = reference(backward, in);
  const RmsNorm forward{3, 6, 1e-3f, kF32};
  const std::vector<Tensor> forward_in{in[RmsNormBwd::kX], in[RmsNormBwd::kW], make_tensor(kF32, 18)};
  const auto dy = in[RmsNormBwd::kDy].values();
  expect_gradient(values_of(out, RmsNormBwd::kDx), forward, forward_in, RmsNorm::kX, RmsNorm::kY, dy);
  expect_gradient(values_of(out, RmsNormBwd::kDw), forward, forward_in, RmsNorm::kW, RmsNorm::kY, dy);
}

TEST(Gradients, LayerNorm) {
  struct Parts {
    bool weight, bias;
  };
  for (const auto [weight, bias] : {Parts{false, false}, {true, false}, {true, true}}) {
    const LayerNormBwd backward{3, 6, 1e-3f, kF32, kF32, weight, bias, false, false, false, 2.5f};
    const LayerNorm forward{3, 6, 1e-3f, kF32, weight, bias, 2.5f};
    const auto in = make_operands(backward, {});
    const auto out = reference(backward, in);
    std::vector<Tensor> forward_in{in[LayerNormBwd::kX], make_tensor(kF32, 18)};
    if (weight) forward_in.push_back(in[size_t(backward.w_operand())]);
    if (bias) forward_in.push_back(make_tensor(kF32, 6));
    const auto dy = in[LayerNormBwd::kDy].values();
    expect_gradient(values_of(out, LayerNormBwd::kDx), forward, forward_in, LayerNorm::kX, LayerNorm::kY, dy);
    if (weight)
      expect_gradient(values_of(out, backward.dw_operand()), forward, forward_in, LayerNorm::kW,
                      LayerNorm::kY, dy);
    if (bias)
      expect_gradient(values_of(out, backward.dbias_operand()), forward, forward_in, LayerNorm::kBias,
                      LayerNorm::kY, dy);
  }
}

TEST(Gradients, Linear) {
  const Linear forward{3, 4, 5, kF32};
  const auto in = make_operands(forward, {});
  const auto dgrad_in = make_operands(LinearDgrad{3, 4, 5, kF32, false}, {});
  const Tensor& dy = dgrad_in[LinearDgrad::kDy];
  const std::vector<Tensor> for_dx{dy, in[Linear::kW], make_tensor(kF32, 12)};
  const std::vector<Tensor> for_dw{dy, in[Linear::kX], make_tensor(kF32, 20)};
  const auto dx = reference(LinearDgrad{3, 4, 5, kF32, false}, for_dx);
  const auto dw = reference(LinearWgrad{3, 4, 5, kF32, kF32, false}, for_dw);
  expect_gradient(values_of(dx, LinearDgrad::kDx), forward, in, Linear::kX, Linear::kY, dy.values());
  expect_gradient(values_of(dw, LinearWgrad::kDw), forward, in, Linear::kW, Linear::kY, dy.values());
}

TEST(Gradients, Rope) {
  const RopeBwd backward{3, 2, 1, 4, kF32, kF32, 1.25f};
  const auto in = make_operands(backward, {});
  const auto out = reference(backward, in);
  const Tensor x = in[RopeBwd::kDkvRotated];
  const std::vector<Tensor> forward_in{x, in[RopeBwd::kPos], in[RopeBwd::kInvFreq]};
  expect_gradient(values_of(out, RopeBwd::kDq), Rope{3, 2, 4, 0, kF32, 1.25f}, forward_in, Rope::kX, Rope::kX,
                  in[RopeBwd::kDqRotated].values());
  expect_gradient(values_of(out, RopeBwd::kDkv), Rope{3, 1, 4, 4, kF32, 1.25f}, forward_in, Rope::kX,
                  Rope::kX, in[RopeBwd::kDkvRotated].values());
}

TEST(Gradients, Bias) {
  const BiasGrad backward{3, 5, kF32, kF32, false};
  const Linear forward{3, 4, 5, kF32, false, 0, 0, true};
  const auto in = make_operands(forward, {}), for_dbias = make_operands(backward, {});
  expect_gradient(values_of(reference(backward, for_dbias), BiasGrad::kDbias), forward, in,
                  int(forward.bias_operand()), Linear::kY, for_dbias[BiasGrad::kDy].values());
}

void expect_head_norm_gradients(float offset, bool whole, BehindHeads behind = BehindHeads::Copied) {
  const int64_t rest = behind == BehindHeads::Copied ? 3 : 12;
  const HeadNormRopeBwd backward{{3, 2, 6, rest, 1e-3f, 1, offset, whole, behind}, kF32, kF32, kF32, false};
  const HeadNormRope forward{{3, 2, 6, rest, 1e-3f, 1, offset, whole, behind}, kF32};
  const auto in = make_operands(backward, {});
  const auto out = reference(backward, in);
  const std::vector<Tensor> forward_in{in[HeadNormRopeBwd::kX], in[HeadNormRopeBwd::kW],
                                       in[HeadNormRopeBwd::kPos], in[HeadNormRopeBwd::kInvFreq],
                                       make_tensor(kF32, 3 * forward.columns())};
  const auto dy = in[HeadNormRopeBwd::kDy].values();
  expect_gradient(values_of(out, HeadNormRopeBwd::kDx), forward, forward_in, HeadNormRope::kX,
                  HeadNormRope::kY, dy);
  expect_gradient(values_of(out, HeadNormRopeBwd::kDw), forward, forward_in, HeadNormRope::kW,
                  HeadNormRope::kY, dy);
}

TEST(Gradients, HeadNormRope) {
  expect_head_norm_gradients(0, false);
}
TEST(Gradients, ShiftedHeadNormRope) {
  expect_head_norm_gradients(1, false);
}
TEST(Gradients, WholeNormRope) {
  expect_head_norm_gradients(0, true);
}
TEST(Gradients, HeadNormRopeWithValues) {
  expect_head_norm_gradients(0, false, BehindHeads::Normed);
  expect_head_norm_gradients(1, false, BehindHeads::Again);
}

TEST(Gradients, Swiglu) {
  for (const auto activation :
       {GateActivation::Silu, GateActivation::GeluTanh, GateActivation::Gelu, GateActivation::QuickGelu}) {
    for (const bool plain : {false, true}) {
      const SwigluBwd backward{3, 5, kF32, activation, plain};
      const auto in = make_operands(backward, {});
      expect_gradient(values_of(reference(backward, in), SwigluBwd::kDgu),
                      Swiglu{3, 5, kF32, activation, plain}, {in[SwigluBwd::kGu], make_tensor(kF32, 15)},
                      Swiglu::kGu, Swiglu::kY, in[SwigluBwd::kDy].values());
    }
  }
}

TEST(Gradients, SwigluApart) {
  const SwigluBwd backward{3, 5, kF32, GateActivation::GeluTanh, false, 0, true};
  const Swiglu forward{3, 5, kF32, GateActivation::GeluTanh, false, 0, true};
  const auto given = make_operands(backward, {});
  const auto out = reference(backward, given);
  const std::vector<Tensor> in{given[SwigluBwd::kGu], make_tensor(kF32, 15), given[SwigluBwd::kUp]};
  const auto dy = given[SwigluBwd::kDy].values();
  expect_gradient(values_of(out, SwigluBwd::kDgu), forward, in, Swiglu::kGu, Swiglu::kY, dy);
  expect_gradient(values_of(out, SwigluBwd::kDup), forward, in, Swiglu::kUp, Swiglu::kY, dy);
}

TEST(Gradients, ScaleGates) {
  using O = ScaleGatesBwd;
  const Mixture m{6, 4, 2};
  const auto given = make_operands(O{m, kF32, kF32, false}, {});
  const auto out = reference(O{m, kF32, kF32, false}, given);
  const std::vector<Tensor> in{given[O::kGates], given[O::kChosen], given[O::kScales], make_tensor(kF32, 12)};
  const auto dy = given[O::kDy].values();
  expect_gradient(values_of(out, O::kDgates), ScaleGates{m, kF32}, in, O::kGates, ScaleGates::kY, dy);
  expect_gradient(values_of(out, O::kDscales), ScaleGates{m, kF32}, in, O::kScales, ScaleGates::kY, dy);
}

TEST(Gradients, LimitedSwiglu) {
  const SwigluBwd backward{3, 5, kF32, GateActivation::QuickGelu, false, 0.8f};
  const auto in = make_operands(backward, {});
  expect_gradient(values_of(reference(backward, in), SwigluBwd::kDgu),
                  Swiglu{3, 5, kF32, GateActivation::QuickGelu, false, 0.8f},
                  {in[SwigluBwd::kGu], make_tensor(kF32, 15)}, Swiglu::kGu, Swiglu::kY,
                  in[SwigluBwd::kDy].values());
}

// Of everything that attention with sinks reads.
TEST(Gradients, Sinks) {
  const AttnShape shape{2, 6, 6, 4, 2, 4, 0, true, kF32};
  const AttnFwd forward{shape, kF32, false, true};
  const AttnBwd backward{shape, kF32, false, false};
  const SinkGrad of_sinks{2, 6, 4, 4, kF32, kF32, false};
  auto in = make_operands(backward, {.documents = {-1, 3}});
  const Tensor sinks = make_operands(of_sinks, {})[SinkGrad::kSinks];
  const std::vector<Tensor> forward_in{in[AttnBwd::kQ], in[AttnBwd::kKv],  in[AttnBwd::kPos],
                                       in[AttnBwd::kO], in[AttnBwd::kLse], sinks};
  const auto results = reference(forward, forward_in);
  in[AttnBwd::kO] = make_tensor(kF32, values_of(results, AttnFwd::kO));
  in[AttnBwd::kLse] = make_tensor(kF32, values_of(results, AttnFwd::kLse));
  const auto out = reference(backward, in);
  const std::vector<Tensor> given{sinks, in[AttnBwd::kLse], in[AttnBwd::kO], in[AttnBwd::kDo],
                                  make_tensor(kF32, 4)};
  const auto d_sinks = reference(of_sinks, given);
  const auto dout = in[AttnBwd::kDo].values();
  expect_gradient(values_of(out, AttnBwd::kDq), forward, forward_in, AttnFwd::kQ, AttnFwd::kO, dout);
  expect_gradient(values_of(out, AttnBwd::kDkv), forward, forward_in, AttnFwd::kKv, AttnFwd::kO, dout);
  expect_gradient(values_of(d_sinks, SinkGrad::kDSinks), forward, forward_in, AttnFwd::kSinks, AttnFwd::kO,
                  dout);
}

void expect_attention_gradients(int64_t window) {
  const AttnShape shape{2, 6, 6, 4, 2, 4, 0, true, kF32, window};
  const AttnFwd forward{shape, kF32, false};
  const AttnBwd backward{shape, kF32, false, false};
  auto in = make_operands(backward, {.documents = {-1, 3}});
  const std::vector<Tensor> forward_in{in[AttnBwd::kQ], in[AttnBwd::kKv], in[AttnBwd::kPos], in[AttnBwd::kO],
                                       in[AttnBwd::kLse]};
  const auto results = reference(forward, forward_in);
  in[AttnBwd::kO] = make_tensor(kF32, values_of(results, AttnFwd::kO));
  in[AttnBwd::kLse] = make_tensor(kF32, values_of(results, AttnFwd::kLse));
  const auto out = reference(backward, in);
  const auto dout = in[AttnBwd::kDo].values();
  expect_gradient(values_of(out, AttnBwd::kDq), forward, forward_in, AttnFwd::kQ, AttnFwd::kO, dout);
  expect_gradient(values_of(out, AttnBwd::kDkv), forward, forward_in, AttnFwd::kKv, AttnFwd::kO, dout);
}

TEST(Gradients, Attention) {
  expect_attention_gradients(0);
}
TEST(Gradients, AttentionInAWindow) {
  expect_attention_gradients(2);
}

void expect_loss_gradients(bool weighted) {
  const HeadLoss op{5, 4, 7, 2, kF32, kF32, false, false, false, false, weighted};
  HeadLoss forward = op;
  forward.forward_only = true;
  const auto in = make_operands(op, {.ignored = 0.3});
  const auto out = reference(op, in);
  std::vector<Tensor> forward_in(in.begin(), in.begin() + HeadLoss::kLoss);
  forward_in.push_back(make_operands(forward, {})[HeadLoss::kLoss]);
  if (weighted) forward_in.push_back(in[size_t(op.weights_operand())]);
  // The losses of all rows count alike, and whether they were the likeliest does not.
  std::vector<double> dloss(size_t(op.tokens), double{step_args(in[HeadLoss::kArgs]).loss_scale});
  dloss.resize(size_t(2 * op.tokens));
  expect_gradient(values_of(out, HeadLoss::kDx), forward, forward_in, HeadLoss::kX, HeadLoss::kLoss, dloss);
  expect_gradient(values_of(out, HeadLoss::kDw), forward, forward_in, HeadLoss::kW, HeadLoss::kLoss, dloss);
}

TEST(Gradients, HeadLoss) {
  expect_loss_gradients(false);
}
TEST(Gradients, WeightedHeadLoss) {
  expect_loss_gradients(true);
}

// Of any loss of log-probabilities, from its derivatives with respect to them.
TEST(Gradients, HeadLossFromSeeds) {
  const HeadLoss op{5, 4, 7, 2, kF32, kF32, false, false, false, false, true, true};
  HeadLoss forward = op;
  forward.forward_only = true, forward.weighted = false;
  const auto in = make_operands(op, {.ignored = 0.3, .seeds = true});
  std::vector<double> seeds = in[size_t(op.weights_operand())].values();
  for (double& s : seeds) s = -s;
  const auto out = reference(op, in);
  const auto plain = make_operands(forward, {});
  std::vector<Tensor> forward_in(in.begin(), in.begin() + HeadLoss::kLoss);
  forward_in.insert(forward_in.end(), plain.begin() + HeadLoss::kLoss, plain.end());
  const int log_probs = forward.log_probs_operand();
  expect_gradient(values_of(out, HeadLoss::kDx), forward, forward_in, HeadLoss::kX, log_probs, seeds);
  expect_gradient(values_of(out, HeadLoss::kDw), forward, forward_in, HeadLoss::kW, log_probs, seeds);
}

// Of the gates and of both losses that a router may have, in a round that has had other tokens before.
void expect_router_gradient(RouterScore score, bool normalised, const RouterLosses& losses) {
  const Mixture m{4, 5, 2};
  const Route forward{m, score, normalised, false, 1.5f};
  const RouteBwd backward{m, kF32, score, normalised, 1.5f, losses};
  const RouterLoad load{m, true, true};
  std::vector<Tensor> in = make_operands(forward, {}), loads = make_operands(load, {}),
                      for_dlogits = make_operands(backward, {});
  Tensor& logits = in[Route::kLogits];
  loads[RouterLoad::kChosen] = make_tensor(DType::I32, values_of(reference(forward, in), Route::kChosen));
  const auto round = [&] {
    loads[RouterLoad::kLogits] = logits;
    return values_of(reference(load, loads), RouterLoad::kRound);
  };
  for_dlogits[RouteBwd::kLogits] = logits;
  for_dlogits[RouteBwd::kChosen] = loads[RouterLoad::kChosen];
  if (backward.reads_round()) for_dlogits[RouteBwd::kRound] = make_tensor(DType::F64, round());
  const auto dlogits = values_of(reference(backward, for_dlogits), RouteBwd::kDlogits);
  const auto dgates = for_dlogits[RouteBwd::kDgates].values();
  expect_derivative(dlogits, logits, [&] {
    double loss = dot(values_of(reference(forward, in), Route::kGates), dgates);
    if (losses.n == 0) return loss;
    const LoadLayout at{m.experts};
    const std::vector<double> sums = round();
    const double n = double(losses.n);
    for (int64_t e = 0; e < m.experts; ++e)
      loss += double(losses.balance) * double(m.experts) * sums[size_t(at.choices() + e)] / n *
              sums[size_t(at.scores() + e)] / n;
    return loss + double(losses.z) * sums[size_t(at.z())];
  });
}

TEST(Gradients, Route) {
  for (const RouterLosses& losses : {RouterLosses{}, {2, 0, 7}, {0, 0.1f, 7}, {2, 0.1f, 7}}) {
    expect_router_gradient(RouterScore::Softmax, false, losses);
    expect_router_gradient(RouterScore::Chosen, false, losses);
    expect_router_gradient(RouterScore::Sigmoid, false, losses);
    expect_router_gradient(RouterScore::Sigmoid, true, losses);
  }
}

// A group in the middle, whose experts' rows alone count.
TEST(Gradients, GroupedLinear) {
  const Mixture m{6, 5, 2};
  const ExpertGroup group{1, 3};
  const int64_t in = 4, out = 3;
  for (const bool gathers : {false, true}) {
    const GroupedLinear forward{m, group, in, out, kF32, gathers, false, true};
    const GroupedDgrad dgrad{m, group, in, out, kF32, false, false};
    const GroupedWgrad wgrad{m, group, in, out, kF32, kF32, false, gathers, false};
    const auto given = make_operands(forward, {});
    const Tensor &x = given[GroupedLinear::kX], &w = given[GroupedLinear::kW],
                 &routing = given[GroupedLinear::kRouting];
    const Tensor dy = make_operands(dgrad, {.seed = 2})[GroupedDgrad::kDy];
    std::vector<double> dx =
        values_of(reference(dgrad, std::vector<Tensor>{dy, w, routing, make_tensor(kF32, m.rows() * in)}),
                  GroupedDgrad::kDx);
    if (gathers) {
      const std::vector<Tensor> rows{make_tensor(kF32, dx), routing, make_tensor(kF32, m.tokens * in)};
      dx = values_of(reference(CombineExperts{m, in, kF32, false, false}, rows), CombineExperts::kY);
    }
    const auto dw = values_of(
        reference(wgrad, std::vector<Tensor>{dy, x, routing, make_tensor(kF32, group.count * out * in)}),
        GroupedWgrad::kDw);
    expect_gradient(dx, forward, given, GroupedLinear::kX, GroupedLinear::kY, dy.values());
    expect_gradient(dw, forward, given, GroupedLinear::kW, GroupedLinear::kY, dy.values());
  }
}

// From what gates are applied to back to what experts' first products wrote, as the program does it: nothing
// behind the last products is kept.
void expect_expert_gradients(GateActivation activation, float limit) {
  const Mixture m{6, 4, 2};
  const ExpertGroup all{0, m.experts};
  const int64_t ffn = 3, dim = 4;
  const ExpertGluBwd glu{m, ffn, kF32, activation, limit, dim};
  auto back = make_operands(glu, {});
  Tensor &gu = back[ExpertGluBwd::kGu], &gates = back[ExpertGluBwd::kGates],
         &bias = back[ExpertGluBwd::kBias];
  const Tensor &routing = back[ExpertGluBwd::kRouting], &dout = back[ExpertGluBwd::kDout];
  const GroupedLinear down{m, all, ffn, dim, kF32, false, false, true};
  Tensor w = make_operands(down, {})[GroupedLinear::kW];
  const auto loss = [&] {
    const Swiglu swiglu{
        {.tokens = m.rows(), .dim = ffn, .dtype = kF32, .activation = activation, .limit = limit}};
    const auto act =
        values_of(reference(swiglu, std::vector<Tensor>{gu, make_tensor(kF32, m.rows() * ffn)}), Swiglu::kY);
    const auto rows = values_of(reference(down, std::vector<Tensor>{make_tensor(kF32, act), w, routing,
                                                                    make_tensor(kF32, m.rows() * dim), bias}),
                                GroupedLinear::kY);
    const std::vector<Tensor> combined{make_tensor(kF32, rows), routing, make_tensor(kF32, m.tokens * dim),
                                       gates};
    return dot(values_of(reference(CombineExperts{m, dim, kF32, true, false}, combined), CombineExperts::kY),
               dout.values());
  };
  const std::vector<Tensor> for_dy{dout, w, routing, make_tensor(kF32, m.rows() * ffn)};
  back[ExpertGluBwd::kDy] = make_tensor(
      kF32,
      values_of(reference(GroupedDgrad{m, all, ffn, dim, kF32, true, false}, for_dy), GroupedDgrad::kDx));
  const Outputs out = reference(glu, back);
  const std::vector<Tensor> for_dw{dout, make_tensor(kF32, values_of(out, ExpertGluBwd::kGated)), routing,
                                   make_tensor(kF32, w.elements())};
  const Outputs dw = reference(GroupedWgrad{m, all, ffn, dim, kF32, kF32, true, false, false}, for_dw);
  const std::vector<Tensor> for_dbias{dout, routing, make_tensor(kF32, bias.elements()), gates};
  const Outputs dbias = reference(GroupedBiasGrad{m, dim, kF32, kF32, true, false}, for_dbias);
  expect_derivative(values_of(out, ExpertGluBwd::kDgu), gu, loss);
  expect_derivative(values_of(out, ExpertGluBwd::kDgates), gates, loss);
  expect_derivative(values_of(dw, GroupedWgrad::kDw), w, loss);
  expect_derivative(values_of(dbias, GroupedBiasGrad::kDbias), bias, loss);
}

TEST(Gradients, Experts) {
  expect_expert_gradients(GateActivation::Silu, 0);
}
TEST(Gradients, LimitedExperts) {
  expect_expert_gradients(GateActivation::QuickGelu, 0.9f);  // no element is within 1/128 of it
}

// Of documents, the first of which goes on from a piece before, and the last into one behind.
TEST(Gradients, DeltaRule) {
  const DeltaRuleBwd backward{7, {1, 2, 3, 2}, kF32, true, true};
  const auto given = make_operands(backward, {.documents = {4}});
  const auto out = reference(backward, given);
  const DeltaRule forward{7, backward.sizes, kF32, true, true};
  std::vector<Tensor> in{given[DeltaRuleBwd::kQkv],
                         given[DeltaRuleBwd::kGates],
                         given[DeltaRuleBwd::kPos],
                         make_tensor(kF32, 7 * backward.sizes.values()),
                         given[size_t(backward.before_operand())],
                         make_tensor(kF32, backward.sizes.state())};
  const auto d_o = given[DeltaRuleBwd::kDo].values(),
             d_after = given[size_t(backward.d_after_operand())].values();
  for (const auto& [from, x] : {std::pair<int, int>{DeltaRuleBwd::kDqkv, DeltaRule::kQkv},
                                {DeltaRuleBwd::kDgates, DeltaRule::kGates},
                                {backward.d_before_operand(), forward.before_operand()}}) {
    expect_derivative(values_of(out, from), in[size_t(x)], [&] {
      const Outputs made = reference(forward, in);
      return dot(values_of(made, DeltaRule::kO), d_o) +
             dot(values_of(made, forward.after_operand()), d_after);
    });
  }
}

TEST(Gradients, DeltaGates) {
  using O = DeltaGatesBwd;
  const O backward{5, 3, kF32, kF32, false, false};
  const auto given = make_operands(backward, {});
  const auto out = reference(backward, given);
  const std::vector<Tensor> in{given[O::kBa], given[O::kALog], given[O::kDtBias], make_tensor(kF32, 30)};
  const auto dy = given[O::kDgates].values();
  for (const auto& [from, x] :
       {std::pair<int, int>{O::kDba, O::kBa}, {O::kDaLog, O::kALog}, {O::kDdtBias, O::kDtBias}})
    expect_gradient(values_of(out, from), DeltaGates{5, 3}, in, x, DeltaGates::kGates, dy);
}

TEST(Gradients, HeadGate) {
  using O = HeadGateBwd;
  for (const bool normed : {false, true}) {
    const O backward{3, 2, 5, kF32, kF32, normed, false, 1e-5f};
    const auto given = make_operands(backward, {});
    const auto out = reference(backward, given);
    std::vector<Tensor> in{given[O::kX], given[O::kZ], make_tensor(kF32, 30)};
    if (normed) in.push_back(given[O::kW]);
    const HeadGate forward{3, 2, 5, kF32, normed, 1e-5f};
    const auto dy = given[O::kDy].values();
    expect_gradient(values_of(out, O::kDx), forward, in, HeadGate::kX, HeadGate::kY, dy);
    expect_gradient(values_of(out, O::kDz), forward, in, HeadGate::kZ, HeadGate::kY, dy);
    if (normed) expect_gradient(values_of(out, O::kDw), forward, in, HeadGate::kW, HeadGate::kY, dy);
  }
}

TEST(Gradients, GatedAdd) {
  const GatedAddBwd backward{3, 5, kF32};
  const auto given = make_operands(backward, {});
  const auto out = reference(backward, given);
  const std::vector<Tensor> in{given[GatedAddBwd::kX], given[GatedAddBwd::kGate], make_tensor(kF32, 15)};
  const auto dy = given[GatedAddBwd::kDy].values();
  expect_gradient(values_of(out, GatedAddBwd::kDx), GatedAdd{3, 5, kF32}, in, GatedAdd::kX, GatedAdd::kY, dy);
  expect_gradient(values_of(out, GatedAddBwd::kDgate), GatedAdd{3, 5, kF32}, in, GatedAdd::kGate,
                  GatedAdd::kY, dy);
}

TEST(Gradients, LowRank) {
  const LowRankSizes sizes{4, 3, 2, 5, 1, 13};
  const LowRank forward{sizes, kF32, 0.7f};
  const auto given = make_operands(forward, {});
  const std::vector<Tensor> in{given[LowRank::kU], given[LowRank::kB], make_tensor(kF32, 4 * 13)};
  const Tensor dy = make_operands(LowRankDgrad{sizes, kF32, 0.7f}, {})[LowRankDgrad::kDy];
  const auto du =
      reference(LowRankDgrad{sizes, kF32, 0.7f}, std::vector<Tensor>{dy, in[1], make_tensor(kF32, 4 * 6)});
  const auto db = reference(LowRankWgrad{sizes, kF32, kF32, 0.7f},
                            std::vector<Tensor>{dy, in[0], make_tensor(kF32, 10 * 3)});
  expect_gradient(values_of(du, LowRankDgrad::kDu), forward, in, LowRank::kU, LowRank::kY, dy.values());
  expect_gradient(values_of(db, LowRankWgrad::kDb), forward, in, LowRank::kB, LowRank::kY, dy.values());
}

TEST(Gradients, Magnitude) {
  const Magnitude forward{4, 13, 1, 10, kF32};
  const auto given = make_operands(MagnitudeBwd{4, 13, 1, 10, kF32, kF32}, {});
  using M = MagnitudeBwd;
  const auto out = reference(MagnitudeBwd{4, 13, 1, 10, kF32, kF32}, given);
  const std::vector<Tensor> in{given[M::kZ], given[M::kM], given[M::kNorms], make_tensor(kF32, 4 * 13)};
  const auto dy = given[M::kDy].values();
  expect_gradient(values_of(out, M::kDz), forward, in, Magnitude::kZ, Magnitude::kY, dy);
  expect_gradient(values_of(out, M::kDm), forward, in, Magnitude::kM, Magnitude::kY, dy);
}

TEST(Gradients, GroupedLowRank) {
  const Mixture mixture{5, 4, 2};
  const ExpertGroup group{0, 4};
  const ExpertRank sizes{3, 2, 5, 1, 13};
  const GroupedLowRank forward{mixture, group, sizes, kF32, 0.7f};
  const auto in = make_operands(forward, {});
  const Tensor &u = in[GroupedLowRank::kU], &b = in[GroupedLowRank::kB],
               &routing = in[GroupedLowRank::kRouting];
  const GroupedLowRankDgrad dgrad{mixture, group, sizes, kF32, 0.7f};
  const GroupedLowRankWgrad wgrad{mixture, group, sizes, kF32, 0.7f, kF32};
  const Tensor dy = make_operands(dgrad, {})[GroupedLowRankDgrad::kDy];
  const auto du = reference(dgrad, std::vector<Tensor>{dy, b, routing, make_tensor(kF32, 10 * 6)});
  const auto db = reference(wgrad, std::vector<Tensor>{dy, u, routing, make_tensor(kF32, 4 * 10 * 3)});
  expect_gradient(values_of(du, GroupedLowRankDgrad::kDu), forward, in, GroupedLowRank::kU,
                  GroupedLowRank::kY, dy.values());
  expect_gradient(values_of(db, GroupedLowRankWgrad::kDb), forward, in, GroupedLowRank::kB,
                  GroupedLowRank::kY, dy.values());
}

}  // namespace
}  // namespace sluice::core::conformance
