// SPDX-License-Identifier: Apache-2.0
#include "sluice/schedule.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// 10 steps to a peak of 1, then up to step 110 in one way or another.
Schedule of(Decay decay, int64_t decay_steps = 0) {
  Schedule s;
  s.steps = 110;
  s.learning_rate = 1;
  s.min_learning_rate = 0.2;
  s.warmup_steps = 10;
  s.decay = decay;
  s.decay_steps = decay_steps;
  return s;
}

TEST(Schedule, WarmsUpLinearly) {
  for (const Decay decay : {Decay::Cosine, Decay::Linear, Decay::Constant, Decay::Wsd}) {
    EXPECT_DOUBLE_EQ(of(decay).rate_at(1), 0.1);
    EXPECT_DOUBLE_EQ(of(decay).rate_at(10), 1);
  }
}

TEST(Schedule, Decays) {
  EXPECT_DOUBLE_EQ(of(Decay::Cosine).rate_at(60), 0.6);
  EXPECT_DOUBLE_EQ(of(Decay::Linear).rate_at(35), 0.8);
  EXPECT_DOUBLE_EQ(of(Decay::Linear).rate_at(60), 0.6);
  EXPECT_DOUBLE_EQ(of(Decay::Constant).rate_at(110), 1);
  // A tenth of 110 steps.
  EXPECT_DOUBLE_EQ(of(Decay::Wsd).rate_at(99), 1);
  EXPECT_LT(of(Decay::Wsd).rate_at(100), 1);
  EXPECT_DOUBLE_EQ(of(Decay::Wsd, 40).rate_at(90), 0.6);
  for (const Decay decay : {Decay::Cosine, Decay::Linear, Decay::Wsd}) {
    EXPECT_DOUBLE_EQ(of(decay).rate_at(110), 0.2);
    EXPECT_DOUBLE_EQ(of(decay).rate_at(500), 0.2) << "steps past the end";
  }
  EXPECT_DOUBLE_EQ(of(Decay::Wsd, 500).rate_at(60), 0.6) << "more decay than steps after warm-up";
}

TEST(Schedule, EndsAtATenthWhereNothingIsSaid) {
  Schedule s = of(Decay::Cosine);
  s.min_learning_rate.reset();
  EXPECT_DOUBLE_EQ(s.rate_at(110), 0.1);
}

}  // namespace
}  // namespace sluice
