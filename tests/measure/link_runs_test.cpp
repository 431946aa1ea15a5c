// SPDX-License-Identifier: Apache-2.0
#include "measure/link_runs.h"

#include <gtest/gtest.h>

#include "backend/sim/sim_backend.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

ByLane<std::vector<Interval>> runs_of(std::vector<Interval> compute, std::vector<Interval> loads,
                                      std::vector<Interval> stores) {
  ByLane<std::vector<Interval>> out{LaneTable()};
  out[kCompute] = std::move(compute);
  out[kLoad] = std::move(loads);
  out[kStore] = std::move(stores);
  return out;
}

std::vector<double> starts(const std::vector<Interval>& runs) {
  std::vector<double> out;
  for (const Interval& i : runs) out.push_back(i.start_ns);
  return out;
}

using Starts = std::vector<double>;

// Loads take 10 each from 0 to 50, stores 20 each from 5 to 65: all are at work up to 50, warm from 25 on.
TEST(LinkRuns, WhatCountsRanWhileAllLanesWork) {
  const auto inside = while_all_work(
      runs_of({}, {{0, 10}, {10, 20}, {20, 30}, {30, 40}, {40, 50}}, {{5, 25}, {25, 45}, {45, 65}}));
  EXPECT_EQ(starts(inside[kLoad]), (Starts{30, 40}));
  EXPECT_EQ(starts(inside[kStore]), (Starts{25}));
  EXPECT_TRUE(inside[kCompute].empty());
}

TEST(LinkRuns, LanesThatNeverMeetKeepAll) {
  const auto inside = while_all_work(runs_of({}, {{0, 10}, {10, 20}}, {{30, 40}, {40, 50}}));
  EXPECT_EQ(starts(inside[kLoad]), (Starts{0, 10}));
  EXPECT_EQ(starts(inside[kStore]), (Starts{30, 40}));
}

TEST(LinkRuns, CopiesRunOnTheirLanesBesideLaunches) {
  SimBackend sim;
  const Op op = Cast{};
  const LinkCopy copies[] = {{kLoad, {{kHost, 0}, {kDevice, 0}, 8}}, {kStore, {{kDevice, 0}, {kHost, 0}, 8}}};
  const auto runs = run_copies(sim, copies, 3, Launch{&op, {}, {}}, 2);
  ASSERT_TRUE(runs.ok()) << runs.message();
  EXPECT_EQ((*runs)[kLoad].size(), 3u);
  EXPECT_EQ((*runs)[kStore].size(), 3u);
  EXPECT_EQ((*runs)[kCompute].size(), 2u);
}

}  // namespace
}  // namespace sluice::core
