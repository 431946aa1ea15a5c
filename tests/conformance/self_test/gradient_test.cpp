// SPDX-License-Identifier: Apache-2.0
// The reference's backward ops are the derivatives of its forward ops, by central differences in double
// precision.
#include <gtest/gtest.h>

#include <cmath>

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

// Differences have an error of h^2 f''' / 6, and h is 1/128.
void expect_gradient(const std::vector<double>& gradient, const Op& forward, std::vector<Tensor> in, int x,
                     int y, const std::vector<double>& dy) {
  Tensor& tensor = in[static_cast<size_t>(x)];
  const auto loss = [&] {
    const std::vector<double> values = values_of(reference(forward, in), y);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * dy[i];
    return sum;
  };
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

void expect_head_norm_gradients(float offset, bool whole) {
  const HeadNormRopeBwd backward{3, 2, 6, 3, 1e-3f, kF32, kF32, kF32, false, 1, offset, whole};
  const HeadNormRope forward{3, 2, 6, 3, 1e-3f, kF32, 1, offset, whole};
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

}  // namespace
}  // namespace sluice::core::conformance
