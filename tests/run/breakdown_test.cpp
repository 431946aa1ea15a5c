// SPDX-License-Identifier: Apache-2.0
// Stalls are charged to what compute waited for.
#include "run/session/breakdown.h"

#include <gtest/gtest.h>

#include "support/one_device.h"

namespace sluice::core {
namespace {

// Adds an action that waits for `waits`.
uint32_t add(Plan& plan, Lane lane, std::vector<uint32_t> waits, bool recompute = false) {
  Action a{};
  a.lane = lane;
  a.kind = lane == kCompute ? ActionKind::Run : ActionKind::Copy;
  a.from.tier = plan.lanes[lane].from;
  a.to.tier = plan.lanes[lane].to;
  a.recompute = recompute;
  a.first_wait = uint32_t(plan.waits.size());
  a.wait_count = uint32_t(waits.size());
  plan.waits.insert(plan.waits.end(), waits.begin(), waits.end());
  plan.actions.push_back(a);
  return uint32_t(plan.actions.size() - 1);
}

TEST(Breakdown, ChargesStallsToTheTransferThatEndedLast) {
  Plan plan;
  const uint32_t load = add(plan, kLoad, {});          // 0 to 30
  const uint32_t first = add(plan, kCompute, {load});  // 35 to 50
  const uint32_t store = add(plan, kStore, {first});   // 50 to 90
  const uint32_t second = add(plan, kLoad, {});        // 30 to 60
  add(plan, kCompute, {store, second});                // 90 to 100
  add(plan, kCompute, {load}, true);                   // 104 to 120
  add(plan, kStore, {});                               // 90 to 131
  const std::vector<Interval> timeline{{0, 30},   {35, 50},   {50, 90}, {30, 60},
                                       {90, 100}, {104, 120}, {90, 131}};
  const Breakdown b = breakdown_of(plan, timeline);
  EXPECT_EQ(b.compute_ns, 25);
  EXPECT_EQ(b.recompute_ns, 16);
  EXPECT_EQ(b.stall_loads_ns, 30);
  EXPECT_EQ(b.stall_stores_ns, 40);
  EXPECT_EQ(b.stall_other_ns, 9);  // 5 after the load had ended, 4 for nothing
  EXPECT_EQ(b.tail_ns, 11);
  EXPECT_EQ(b.loading_ns, 60);
  EXPECT_EQ(b.storing_ns, 81);
  EXPECT_EQ(b.step_ns(), 131);
}

TEST(Breakdown, ToleratesTheResolutionOfEvents) {
  Plan plan;
  add(plan, kCompute, {});
  add(plan, kCompute, {});
  const std::vector<Interval> timeline{{0, 10}, {9, 20}};
  const Breakdown b = breakdown_of(plan, timeline);
  EXPECT_EQ(b.compute_ns, 20);
  EXPECT_EQ(b.stall_other_ns, 0);
}

}  // namespace
}  // namespace sluice::core
