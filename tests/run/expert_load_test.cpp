// SPDX-License-Identifier: Apache-2.0
// What is said of routers, from the sums that a step leaves.
#include "run/session/expert_load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::core {
namespace {

// Two layers of four experts, of which a token chooses two; eight tokens.
TEST(ExpertLoad, IsOfTheSumsOfAStep) {
  const LayerLoad equal{1, {4, 4, 4, 4, 2, 2, 2, 2, 8 * std::log(4.0), 8 * 0.5}};
  const LayerLoad skewed{3, {8, 8, 0, 0, 4, 4, 0, 0, 8 * std::log(2.0), 8 * 1.5}};
  const auto balanced = expert_load_of(std::vector{equal}, 8);
  ASSERT_TRUE(balanced);
  EXPECT_EQ(balanced->variation, 0);
  EXPECT_EQ(balanced->busiest, 1);
  EXPECT_NEAR(balanced->entropy, std::log(4.0), 1e-12);
  EXPECT_NEAR(balanced->balance, 2, 1e-12);  // as many as a token chooses

  const auto both = expert_load_of(std::vector{equal, skewed}, 8);
  ASSERT_TRUE(both);
  EXPECT_NEAR(both->variation, 0.5, 1e-12);
  EXPECT_NEAR(both->worst_variation, 1, 1e-12);
  EXPECT_EQ(both->worst_layer, 3);
  EXPECT_NEAR(both->busiest, 2, 1e-12);
  EXPECT_NEAR(both->entropy, (std::log(4.0) + std::log(2.0)) / 2, 1e-12);
  EXPECT_NEAR(both->z, 1, 1e-12);
  ASSERT_EQ(both->layers.size(), 2);
  EXPECT_EQ(both->layers[1].layer, 3);
  EXPECT_NEAR(both->layers[1].variation, 1, 1e-12);
  EXPECT_NEAR(both->layers[1].entropy, std::log(2.0), 1e-12);
  EXPECT_EQ(both->layers[0].loads, (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(both->layers[1].loads, (std::vector<double>{2, 2, 0, 0}));
  // Shares of choices (0.75, 0.75, 0.25, 0.25), mean scores (0.375, 0.375, 0.125, 0.125).
  EXPECT_NEAR(both->balance, 4 * (2 * 0.75 * 0.375 + 2 * 0.25 * 0.125), 1e-12);
}

TEST(ExpertLoad, IsNoneWithoutExperts) {
  EXPECT_FALSE(expert_load_of({}, 8));
}

}  // namespace
}  // namespace sluice::core
