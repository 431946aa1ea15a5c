// SPDX-License-Identifier: Apache-2.0
// Several devices compute the bits of one, whatever runs where, however they hand over and however late.
#include <gtest/gtest.h>

#include "backend/testing/delaying_backend.h"
#include "equivalence/many_plans.h"

namespace sluice::core {
namespace {

const NamedDevices kDevices[] = {
    {"two", 2, true}, {"two_by_the_host", 2, false}, {"three", 3, true}, {"four_by_the_host", 4, false}};

std::string names(const auto& test) {
  return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name + "_" +
         name_of(std::get<2>(test.param));
}

class SeveralDevices : public testing::TestWithParam<std::tuple<NamedDevices, NamedNumerics, Updates>> {
 protected:
  std::unique_ptr<Backend> backend() const {
    return rig::small_devices(std::get<0>(GetParam()).count, std::get<0>(GetParam()).joined);
  }
};

TEST_P(SeveralDevices, ComputeTheSame) {
  const auto& [devices, numerics, updates] = GetParam();
  ManyPlans one(numerics, updates, rig::small_backend());
  const rig::History expected = one.run(rig::must(make_plan(one.program(), one.profile(), {})));
  ManyPlans runs(numerics, updates, backend());
  ASSERT_EQ(runs.program().hash(), one.program().hash());
  // A ring with all the memory it wants, and in as little as it takes.
  PlanRequest request;
  request.caps = runs.room();
  request.quick = true;
  const Plan roomy = rig::must(make_plan(runs.program(), runs.profile(), request));
  expect_same(runs.run(roomy), expected);
  request.least = true;
  const Plan tight = rig::must(make_plan(runs.program(), runs.profile(), request));
  EXPECT_LT(tight.arenas[kDevice].bytes, roomy.arenas[kDevice].bytes);
  expect_same(runs.run(tight), expected);
  // Anything anywhere, with lanes that run ahead and fall behind.
  const uint64_t seeds = random_cases(24);
  uint64_t tried = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    request = {};
    request.caps = runs.room();
    request.placement = random_placement(runs.program(), size_t(devices.count), seed);
    const std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), request, seed);
    if (!plan) continue;
    const Status valid = runs.check(*plan);
    ASSERT_TRUE(valid.ok()) << valid.message();
    Delays delays;
    delays.seed = seed;
    delays.window = size_t{1} << (seed % 9);
    DelayingBackend delayed(runs.backend(), delays);
    expect_same(runs.run(*plan, delayed), expected);
    ++tried;
    if (HasFailure()) return;
  }
  EXPECT_GE(tried, seeds / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Rings, SeveralDevices,
    testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(numerics_under_test()),
                     testing::Values(Updates::AtTheEnd, Updates::Deferred, Updates::LateMoments)),
    [](const auto& test) { return names(test); });

INSTANTIATE_TEST_SUITE_P(Narrow, SeveralDevices,
                         testing::Combine(testing::Values(kDevices[0]), testing::ValuesIn(fp8_under_test()),
                                          testing::Values(Updates::AtTheEnd, Updates::LateMoments)),
                         [](const auto& test) { return names(test); });

// More of them than cores wait for one another, so one case stands for all.
INSTANTIATE_TEST_SUITE_P(EightInARing, SeveralDevices,
                         testing::Combine(testing::Values(NamedDevices{"eight", 8, true}),
                                          testing::Values(numerics_under_test().back()),
                                          testing::Values(Updates::LateMoments)),
                         [](const auto& test) { return names(test); });

}  // namespace
}  // namespace sluice::core
