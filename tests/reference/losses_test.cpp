// SPDX-License-Identifier: Apache-2.0
// Losses of one's own, through a session, against PyTorch's autograd: the gradient of every tensor.
// Tolerances are those of gradients_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "api/rig.h"
#include "reference/fixture.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

constexpr size_t kRow = 64;
constexpr double kBeta = 0.5;  // DPO's, as make_fixtures.py has it

// Of what waits in the session.
void expect_gradients(Session& session, const core::Fixture& fixture, const std::string& prefix) {
  for (const WeightInfo& w : session.weights()) {
    const auto found = session.gradient(w.name);
    ASSERT_TRUE(found.ok()) << found.message();
    const auto expected = fixture.values<float>(prefix + ".grad." + w.name);
    ASSERT_EQ(found->size(), expected.size()) << w.name;
    const core::Distance d = core::distance(*found, expected);
    EXPECT_LT(d.relative, 2e-5) << prefix << " " << w.name;
    EXPECT_LT(d.largest, 1e-4) << prefix << " " << w.name;
  }
}

// A mean with a weight for every token, and a preference of the first of two rows:
// -log sigmoid(beta (p0 - p1 - (r0 - r1))), p the log-probability of a row and r that of a reference.
TEST(Losses, HaveTheGradientsOfPyTorch) {
  const core::Fixture fixture("qwen3_tiny", "losses.safetensors");
  const core::rig::Tokens rows = core::Fixture("qwen3_tiny").tokens("", int64_t{kRow});
  StepOptions options;
  options.seq_len = kRow;
  options.tokens_per_step = 2 * kRow;
  options.compute = options.gradients = options.state = Format::F32;
  options.weighted = true;
  options.deferred_updates = true;  // so that gradients outlive the step
  const auto plan = sluice::plan(*Model::from_pretrained(fixture.dir), options, {}, api_rig::here());
  ASSERT_TRUE(plan.ok()) << plan.message();
  auto session = Session::open(*plan);
  ASSERT_TRUE(session.ok()) << session.message();

  const std::vector<float> weights = fixture.values<float>("weights");
  Batch batch{rows.tokens, rows.targets, {}};
  batch.weights = weights;
  ASSERT_TRUE(session->forward_backward(batch).ok());
  expect_gradients(*session, fixture, "weighted");
  const double expected = fixture.values<float>("weighted_loss")[0];
  EXPECT_NEAR(session->optim_step(0)->loss, expected, 2e-6 * std::abs(expected) + 1e-7);

  batch.weights = {};
  const auto log_probs = session->forward(batch);
  ASSERT_TRUE(log_probs.ok()) << log_probs.message();
  EXPECT_LT(core::distance(*log_probs, fixture.values<float>("log_probs")).largest, 1e-5);
  const std::vector<float> reference = fixture.values<float>("dpo_reference");
  const auto gain = [&](size_t row) {
    const auto begin = log_probs->begin() + int64_t(row * kRow);
    return std::accumulate(begin, begin + kRow, 0.0) - double{reference[row]};
  };
  const double margin = gain(0) - gain(1), wrong = 1 / (1 + std::exp(kBeta * margin));
  EXPECT_NEAR(std::log1p(std::exp(-kBeta * margin)), fixture.values<float>("dpo_loss")[0], 1e-5);
  std::vector<float> seeds(2 * kRow, float(kBeta * wrong));
  std::fill_n(seeds.begin(), kRow, float(-kBeta * wrong));
  batch.seeds = seeds;
  ASSERT_TRUE(session->forward_backward(batch).ok());
  expect_gradients(*session, fixture, "dpo");
}

}  // namespace
}  // namespace sluice
