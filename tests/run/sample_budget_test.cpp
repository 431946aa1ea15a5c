// SPDX-License-Identifier: Apache-2.0
// How many texts a run samples.
#include "run/training/sample_budget.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

// Texts that are asked for after each of so many steps of a second, and what they take in all.
struct Drawn {
  int before_end = 0, at_end = 0;
  double seconds = 0;
};
Drawn draw(int steps, double expected_s, double text_s) {
  SampleBudget budget;
  Drawn drawn;
  for (int step = 1; step <= steps; ++step) {
    budget.expect(expected_s);
    if (!budget.allows(steps, step == steps)) continue;
    budget.drew(text_s);
    drawn.seconds += text_s;
    ++(step == steps ? drawn.at_end : drawn.before_end);
  }
  return drawn;
}

TEST(SampleBudget, DrawsEveryTextThatThereIsTimeFor) {
  const Drawn quick = draw(100, 0.05, 0.05);
  EXPECT_EQ(quick.before_end, 99);
  EXPECT_EQ(quick.at_end, 1);
}

TEST(SampleBudget, KeepsToTenSecondsOrTwoPerCentAndLeavesOneForTheEnd) {
  const Drawn small = draw(100, 3, 3);
  EXPECT_EQ(small.before_end, 2);
  EXPECT_EQ(small.at_end, 1);
  EXPECT_LE(small.seconds, 10);
  const Drawn large = draw(10'000, 3, 3);
  EXPECT_GT(large.before_end, 60);
  EXPECT_EQ(large.at_end, 1);
  EXPECT_LE(large.seconds, 200);
}

TEST(SampleBudget, DrawsNoneThatTakesLonger) {
  const Drawn none = draw(100, 11, 11);
  EXPECT_EQ(none.before_end + none.at_end, 0);
}

// What texts took tells more than the plan.
TEST(SampleBudget, LearnsWhatATextTakes) {
  EXPECT_EQ(draw(100, 0.1, 4).before_end, 1);
  EXPECT_EQ(draw(100, 4, 0.1).before_end, 99);
}

}  // namespace
}  // namespace sluice::core
