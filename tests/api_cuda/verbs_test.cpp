// SPDX-License-Identifier: Apache-2.0
// What of a loop of one's own is the backend's: values of a step's update, gradients and state by name.
#include <gtest/gtest.h>

#include <cmath>

#include "api/rig.h"

namespace sluice {
namespace {

using namespace api_rig;

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto machine = machine_of("cuda"); !machine.ok()) GTEST_SKIP() << machine.message();
  }
  static Running running(const StepOptions& options) { return Running(options, {}, *machine_of("cuda")); }
};

std::vector<float> all_weights(Session& session) {
  std::vector<float> out;
  for (const WeightInfo& w : session.weights()) {
    const std::vector<float> values = *session.weight(w.name);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

TEST_F(Verbs, StepWithTheHyperparametersThatTheyName) {
  const std::pair<const char*, std::map<std::string, double>> kCases[] = {
      {"adamw", {{"beta1", 0.5}, {"beta2", 0.8}, {"eps", 1e-3}, {"weight_decay", 0.3}}},
      {"sgd", {{"momentum", 0.5}, {"weight_decay", 0.3}, {"nesterov", 1}}},
      {"lion", {{"beta1", 0.5}, {"beta2", 0.8}, {"weight_decay", 0.3}}}};
  for (const auto& [optimizer, values] : kCases) {
    for (const bool deferred : {false, true}) {
      SCOPED_TRACE(testing::Message() << optimizer << (deferred ? " deferred" : ""));
      StepOptions options = small_step();
      options.optimizer = optimizer;
      options.deferred_updates = deferred;
      StepOptions same = options;
      same.hyperparameters = values;
      same.clip_norm = 0.25;
      Running named = running(options), planned = running(same), plain = running(options);
      auto asked = values;
      asked["clip_norm"] = 0.25;
      for (int step = 0; step < 3; ++step) {
        const Rows rows(64, step);
        ASSERT_TRUE(named.session.forward_backward(rows.batch()).ok());
        const auto stepped = named.session.optim_step(1e-2, asked);
        ASSERT_TRUE(stepped.ok()) << stepped.message();
        EXPECT_EQ(stepped->loss, planned.session.step(rows.batch(), 1e-2)->loss);
        (void)plain.session.step(rows.batch(), 1e-2);
      }
      EXPECT_EQ(all_weights(named.session), all_weights(planned.session));
      EXPECT_NE(all_weights(named.session), all_weights(plain.session));
    }
  }
}

TEST_F(Verbs, ReadAndWriteGradients) {
  StepOptions options = small_step();
  options.deferred_updates = true;
  Running looked = running(options), plain = running(options);
  for (int step = 0; step < 2; ++step) {
    const Rows rows(64, step);
    ASSERT_TRUE(looked.session.forward_backward(rows.batch()).ok());
    double squares = 0;
    for (const WeightInfo& w : looked.session.weights()) {
      const auto gradient = looked.session.gradient(w.name);
      ASSERT_TRUE(gradient.ok()) << gradient.message();
      for (const float g : *gradient) squares += double{g} * double{g};
    }
    const auto stepped = looked.session.optim_step(1e-2), expected = plain.session.step(rows.batch(), 1e-2);
    ASSERT_TRUE(stepped.ok()) << stepped.message();
    EXPECT_EQ(stepped->loss, expected->loss);
    EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
    EXPECT_NEAR(std::sqrt(squares), stepped->gradient_norm, 1e-6 * stepped->gradient_norm);
  }
  EXPECT_EQ(all_weights(looked.session), all_weights(plain.session));

  ASSERT_TRUE(looked.session.forward_backward(Rows(64, 5).batch()).ok());
  for (const WeightInfo& w : looked.session.weights()) {
    const size_t count = looked.session.weight(w.name)->size();
    ASSERT_TRUE(looked.session.set_gradient(w.name, std::vector<float>(count)).ok());
  }
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const std::vector<float> zeros(looked.session.weight(name)->size());
  ASSERT_TRUE(looked.session.set_state("m", name, zeros).ok());
  const std::vector<float> before = *looked.session.weight(name);
  const auto still = looked.session.optim_step(1e-2, {{"weight_decay", 0}});
  ASSERT_TRUE(still.ok()) << still.message();
  EXPECT_EQ(still->gradient_norm, 0);
  EXPECT_EQ(*looked.session.weight(name), before);
}

// While the step runs, by the log-probabilities that it made: the bits of the same seeds given before.
TEST_F(Verbs, AskLossesRoundByRound) {
  for (const bool deferred : {false, true}) {
    SCOPED_TRACE(deferred ? "deferred" : "within the step");
    StepOptions options = small_step(), weighted = options;
    options.deferred_updates = weighted.deferred_updates = deferred;
    options.round_losses = weighted.weighted = true;
    Running rounds = running(options), given = running(weighted);
    const auto derive = [](std::span<const float> log_probs, std::span<float> seeds) {
      for (size_t t = 0; t < seeds.size(); ++t) seeds[t] = log_probs[t] * 0.125f - 0.125f;
    };
    for (int step = 0; step < 3; ++step) {
      const Rows rows(64, step);
      std::vector<float> seen;
      const auto loss = [&](const RoundRows& round, std::span<float> seeds) {
        seen.insert(seen.end(), round.log_probabilities.begin(), round.log_probabilities.end());
        derive(round.log_probabilities, seeds);
        return Status();
      };
      const auto queued = rounds.session.forward_backward(rows.batch(), loss);
      ASSERT_TRUE(queued.ok()) << queued.message();
      const auto stepped = rounds.session.optim_step(1e-2);
      ASSERT_TRUE(stepped.ok()) << stepped.message();
      EXPECT_EQ(*queued->log_probabilities(), seen);
      std::vector<float> seeds(64);
      derive(seen, seeds);
      Batch batch = rows.batch();
      batch.seeds = seeds;
      const auto expected = given.session.step(batch, 1e-2);
      ASSERT_TRUE(expected.ok()) << expected.message();
      EXPECT_EQ(stepped->loss, expected->loss);
      EXPECT_EQ(stepped->gradient_norm, expected->gradient_norm);
    }
    EXPECT_EQ(all_weights(rounds.session), all_weights(given.session));
    const auto fails = [](const RoundRows&, std::span<float>) {
      return Status(Error{"no loss today", ErrorKind::Invalid, {}});
    };
    ASSERT_TRUE(rounds.session.forward_backward(Rows(64, 9).batch(), fails).ok());
    expect_error(rounds.session.optim_step(1e-2).error(), ErrorKind::Invalid, "no loss today");
    EXPECT_EQ(all_weights(rounds.session), all_weights(given.session));
  }
}

}  // namespace
}  // namespace sluice
