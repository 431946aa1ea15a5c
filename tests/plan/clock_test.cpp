// SPDX-License-Identifier: Apache-2.0
// Clocks of tables with any number of lanes.
#include "plan/clock.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

// One device after the other: compute, load and store of each.
LaneTable lanes_of(size_t devices) {
  LaneTable lanes;
  for (size_t d = 1; d < devices; ++d) {
    lanes.add_compute(Tier::device(d));
    lanes.add(kHost, Tier::device(d));
    lanes.add(Tier::device(d), kHost);
  }
  return lanes;
}

TEST(Clock, KnowsNothingWhenItIsMade) {
  for (size_t devices = 1; devices <= Tier::kMostDevices; ++devices) {
    const LaneTable lanes = lanes_of(devices);
    const Clock clock(lanes);
    for (const Lane lane : lanes) {
      EXPECT_FALSE(clock.has(lane, 0)) << name_of(lanes[lane]);
      EXPECT_EQ(clock.newest(lane), std::nullopt) << name_of(lanes[lane]);
    }
  }
}

TEST(Clock, HasAllBeforeTheNewestOfALane) {
  const LaneTable lanes = lanes_of(3);
  for (const Lane lane : lanes) {
    Clock clock(lanes);
    clock.add(lane, 5);
    clock.add(lane, 3);
    EXPECT_EQ(clock.newest(lane), 5u);
    EXPECT_TRUE(clock.has(lane, 0));
    EXPECT_TRUE(clock.has(lane, 5));
    EXPECT_FALSE(clock.has(lane, 6));
    for (const Lane other : lanes) EXPECT_EQ(clock.has(other, 0), other == lane);
  }
}

TEST(Clock, JoinsTheNewestOfEveryLane) {
  const LaneTable lanes = lanes_of(3);
  Clock a(lanes), b(lanes);
  for (const Lane lane : lanes) {
    a.add(lane, uint32_t(10 + lane.index() % 2));
    b.add(lane, uint32_t(10 + lane.index() % 3));
  }
  a.join(b);
  for (const Lane lane : lanes)
    EXPECT_EQ(a.newest(lane), uint32_t(10 + std::max(lane.index() % 2, lane.index() % 3)));
}

}  // namespace
}  // namespace sluice::core
