// SPDX-License-Identifier: Apache-2.0
// What keeps a step from being faster: the memories that are named are those that more of would help.
#include <gtest/gtest.h>

#include "plan/stalls.h"

namespace sluice::core {
namespace {

// A step of which a fifth is computed again, by how many times as fast it would be with more of each memory.
std::string_view binds(double more_device, double more_host) {
  Plan plan;
  plan.makespan_ns = 100;
  plan.speedup_with_more[kDevice] = more_device;
  plan.speedup_with_more[kHost] = more_host;
  PlanTotals sums;
  sums.runs.ns = 100;
  sums.recompute_ns = 20;
  return what_binds(plan, sums, {});
}

TEST(WhatBinds, NamesTheMemoriesThatMoreOfWouldHelp) {
  EXPECT_EQ(binds(1.01, 1), "device memory, through recomputation");
  EXPECT_EQ(binds(1.01, 1.002), "device memory, through recomputation");
  EXPECT_EQ(binds(1.01, 1.004), "device and host memory, through recomputation");
  EXPECT_EQ(binds(1.002, 1.01), "host memory, through recomputation");
}

TEST(WhatBinds, NamesTheDevicesWhereNothingIsKnown) {
  EXPECT_EQ(binds(0, 0), "device memory, through recomputation");
  EXPECT_EQ(binds(1, 1), "device memory, through recomputation");
  EXPECT_EQ(binds(0, 1.01), "host memory, through recomputation");  // the device has no cap
}

// Of the time that links load, how much is of what tasks choose.
TEST(WhatBinds, SaysWhetherLoadsWaitForRouters) {
  const auto loading = [](double chosen_ns) {
    Plan plan;
    plan.makespan_ns = 100;
    PlanTotals sums;
    sums.runs.ns = 40, sums.loads.ns = 60, sums.chosen.ns = chosen_ns;
    std::array<double, kStallCauses> stalls{};
    stalls[size_t(StallCause::Load)] = 60;
    return what_binds(plan, sums, stalls);
  };
  EXPECT_EQ(loading(0), "device memory, through loads that cannot start earlier");
  EXPECT_EQ(loading(20), "device memory, through loads that cannot start earlier");
  EXPECT_EQ(loading(50), "device memory, through loads of experts that wait for their router");
}

}  // namespace
}  // namespace sluice::core
