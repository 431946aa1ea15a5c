// SPDX-License-Identifier: Apache-2.0
// A loss with a weight for every token, and log-probabilities, against the plain loss.
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/rig/rig.h"

namespace sluice::core {
namespace {

const StepShape kShape{16, 8, 4, 2, 3};

Question request_with(const LossForm& loss, int64_t device_bytes = kUnlimited) {
  Question request;
  request.model =
      model_of({.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
  request.shape = kShape;
  request.optimizer.deferred = true;
  request.loss = loss;
  request.caps[kDevice] = device_bytes;
  return request;
}

rig::Tokens tokens_with(float weight) {
  rig::Tokens tokens = rig::random_tokens(kShape, 61, 3);
  tokens.weights.assign(tokens.tokens.size(), weight);
  return tokens;
}

// What a step makes of these tokens.
struct Made {
  double loss;
  rig::State gradients;
  std::vector<float> log_probs;
};
Made made_of(const rig::Tokens& tokens, const Question& request) {
  rig::Rig run(request);
  run.initialize();
  const double loss = run.measure(tokens).loss;
  return {loss, rig::read_state(run.training(), {ObjectKind::Grad}), run.log_probs()};
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(out)).begin());
  return out;
}

TEST(WeightedLoss, OfOnesIsThePlainOne) {
  const Made plain = made_of(tokens_with(1), request_with({}));
  const Made weighted = made_of(tokens_with(1), request_with({.weighted = true, .log_probs = true}));
  EXPECT_EQ(weighted.loss, plain.loss);
  EXPECT_EQ(weighted.gradients, plain.gradients);
  EXPECT_TRUE(plain.log_probs.empty());
}

// Exactly, as 2 and -1 change no mantissa.
TEST(WeightedLoss, IsLinearInItsWeights) {
  const Made plain = made_of(tokens_with(1), request_with({}));
  for (const float weight : {2.0f, -1.0f}) {
    const Made weighted = made_of(tokens_with(weight), request_with({.weighted = true}));
    EXPECT_EQ(weighted.loss, double{weight} * plain.loss);
    for (const auto& [name, bytes] : plain.gradients) {
      std::vector<float> expected = floats(bytes);
      for (float& g : expected) g *= weight;
      EXPECT_EQ(floats(weighted.gradients.at(name)), expected) << name;
    }
  }
}

TEST(WeightedLoss, OfZeroAndOneIsThatOfFewerTargets) {
  rig::Tokens some = tokens_with(1), fewer = some;
  for (size_t t = 0; t < some.tokens.size(); t += 3) some.weights[t] = 0, fewer.targets[t] = -1;
  const Made weighted = made_of(some, request_with({.weighted = true}));
  const Made plain = made_of(fewer, request_with({}));
  // The sums are the same, the number of targets that they are divided by is not.
  const double more = double(some.counted()) / double(fewer.counted());
  EXPECT_NEAR(weighted.loss * more, plain.loss, 1e-12 * plain.loss);
}

TEST(WeightedLoss, LogProbabilitiesSumUpToIt) {
  rig::Tokens tokens = tokens_with(1);
  for (size_t t = 0; t < tokens.weights.size(); ++t) tokens.weights[t] = 0.25f * float(t % 7) - 0.5f;
  const Made made = made_of(tokens, request_with({.weighted = true, .log_probs = true}));
  ASSERT_EQ(made.log_probs.size(), tokens.tokens.size());
  double sum = 0, absolute = 0;
  for (size_t t = 0; t < made.log_probs.size(); ++t) {
    if (tokens.targets[t] < 0) {
      EXPECT_EQ(made.log_probs[t], 0) << t;
    } else {
      EXPECT_LT(made.log_probs[t], 0) << t;
    }
    sum -= double{tokens.weights[t]} * double{made.log_probs[t]};
    absolute += std::abs(double{tokens.weights[t]} * double{made.log_probs[t]});
  }
  // Each was rounded to f32 once.
  EXPECT_NEAR(sum, made.loss * double(tokens.counted()), 0x1p-24 * absolute);
}

TEST(WeightedLoss, DoesNotDependOnCaps) {
  rig::Tokens tokens = tokens_with(1);
  for (size_t t = 0; t < tokens.weights.size(); ++t) tokens.weights[t] = 0.25f * float(t % 7) - 0.5f;
  const LossForm form{.weighted = true, .log_probs = true};
  const Made free = made_of(tokens, request_with(form)),
             tight = made_of(tokens, request_with(form, 96 << 10));
  EXPECT_EQ(tight.loss, free.loss);
  EXPECT_EQ(tight.gradients, free.gradients);
  EXPECT_EQ(tight.log_probs, free.log_probs);
}

}  // namespace
}  // namespace sluice::core
