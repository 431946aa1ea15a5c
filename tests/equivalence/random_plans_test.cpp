// SPDX-License-Identifier: Apache-2.0
// Any legal plan, not only a good one, computes the same bits.
#include <gtest/gtest.h>

#include "backend/testing/delaying_backend.h"
#include "equivalence/many_plans.h"

namespace sluice::core {
namespace {

class RandomPlans : public testing::TestWithParam<std::tuple<NamedNumerics, Updates>> {};

TEST_P(RandomPlans, AreValidAndComputeTheSame) {
  ManyPlans runs(std::get<0>(GetParam()), std::get<1>(GetParam()), rig::small_backend());
  const rig::History expected = runs.run(rig::must(make_plan(runs.program(), runs.profile(), {})));
  if (std::get<1>(GetParam()) == Updates::LateMoments) {
    ManyPlans early(std::get<0>(GetParam()), Updates::Deferred, rig::small_backend());
    expect_same(early.run(rig::must(make_plan(early.program(), early.profile(), {}))), expected);
  }
  const uint64_t seeds = random_cases(100);  // in each of the variants
  int tried = 0, streaming = 0, recomputing = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), {}, seed);
    if (!plan || !runs.fits(*plan)) continue;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Status valid = runs.check(*plan);
    ASSERT_TRUE(valid.ok()) << valid.message();
    expect_same(runs.run(*plan), expected);
    const PlanTotals sums = totals(runs.program(), *plan);
    ++tried, streaming += sums.stores.actions > 1 ? 1 : 0, recomputing += sums.recompute_ns > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, seeds / 2);
  EXPECT_GT(streaming, tried / 4);
  EXPECT_GT(recomputing, tried / 4);
}

INSTANTIATE_TEST_SUITE_P(Variants, RandomPlans,
                         testing::Combine(testing::ValuesIn(numerics_under_test()),
                                          testing::Values(Updates::AtTheEnd, Updates::Deferred,
                                                          Updates::LateMoments)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" +
                                  name_of(std::get<1>(test.param));
                         });

INSTANTIATE_TEST_SUITE_P(Narrow, RandomPlans,
                         testing::Combine(testing::ValuesIn(fp8_under_test()),
                                          testing::Values(Updates::Deferred)),
                         [](const auto& test) { return std::string(std::get<0>(test.param).name); });

// Lanes that run ahead and fall behind as far as the waits allow.
TEST(DelayedLanes, DoNotChangeResults) {
  ManyPlans runs(numerics_under_test().front().numerics, Updates::AtTheEnd);
  const rig::History expected = runs.run(rig::must(make_plan(runs.program(), runs.profile(), {})));
  int tried = 0;
  for (uint64_t seed = 0; tried < 25 && seed < 100; ++seed) {
    const std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), {}, seed);
    if (!plan || !runs.fits(*plan)) continue;
    Delays delays;
    delays.seed = seed;
    delays.window = size_t{1} << (seed % 9);
    delays.longest = std::chrono::microseconds(seed % 3 == 0 ? 20 : 0);
    DelayingBackend backend(runs.backend(), delays);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_same(runs.run(*plan, backend), expected);
    ++tried;
  }
  EXPECT_EQ(tried, 25);
}

// Without its waits a plan is only safe by luck; the delaying backend must be able to show it, or the test
// above means nothing. The race is real, so this is not for ThreadSanitizer.
#ifndef __SANITIZE_THREAD__
TEST(DelayedLanes, ShowMissingWaits) {
  ManyPlans runs(numerics_under_test().front().numerics, Updates::AtTheEnd);
  const rig::History expected = runs.run(rig::must(make_plan(runs.program(), runs.profile(), {})));
  const auto computes_the_same = [&](const Plan& plan, uint64_t seed) {
    DelayingBackend backend(runs.backend(), {seed, 64, {}});
    try {
      return runs.run(plan, backend) == expected;
    } catch (const std::runtime_error&) {
      return false;  // such as a token id that was not there yet
    }
  };
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), {}, seed);
    if (!plan || !runs.fits(*plan) || totals(runs.program(), *plan).loads.actions < 20) continue;
    for (Action& a : plan->actions) a.wait_count = 0;
    EXPECT_FALSE(runs.check(*plan).ok());
    if (!computes_the_same(*plan, seed)) return;
  }
  FAIL() << "plans without waits computed the right thing";
}
#endif

}  // namespace
}  // namespace sluice::core
