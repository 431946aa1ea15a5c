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

}  // namespace
}  // namespace sluice
