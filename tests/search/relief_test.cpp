// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

// Of six_tasks.h: a is on the host during positions 0 to 5, b during 1 to 4, x all step long.
struct Away : SixTasks {
  StepSchedule schedule = step();
  SlotsByDevice slots{split_at(schedule.devices[0], room(100), gaps(schedule.devices[0], "x a b")).slots};
  std::vector<RecomputeUnit> units;

  Away() {
    // b is the cheaper.
    units.push_back({{ObjectId(1)}, 30, kBytes});
    units.push_back({{ObjectId(2)}, 10, kBytes});
  }
  std::string again(int64_t host_objects) {
    Saves saves(program.objects().size(), Save::Host);
    relieve_host(schedule, slots, units, room(100), host_objects * kBytes, saves);
    return named(saves, Save::Again);
  }
};

TEST(Relief, BytesOnTheHostAreThoseOfItsPlaces) {
  Away away;
  Limits limits = SixTasks::room(100);
  limits.boundary_bytes[kHost] = 7;
  const std::vector<int64_t> bytes = bytes_on_host(away.schedule, away.slots, limits);
  ASSERT_EQ(bytes.size(), 7u);
  EXPECT_EQ(*std::ranges::max_element(bytes), 3 * SixTasks::kBytes + 7);
  EXPECT_EQ(bytes[6], SixTasks::kBytes + 7);
}

TEST(Relief, TheCheapestIsComputedAgainUntilTheHostHasRoom) {
  Away away;
  EXPECT_EQ(away.again(3), "");
  EXPECT_EQ(away.again(2), "b");
  EXPECT_EQ(away.again(1), "a b");
}

TEST(Relief, WhatCannotBeComputedAgainStays) {
  Away away;
  away.units.pop_back();
  EXPECT_EQ(away.again(0), "a");
}

}  // namespace
}  // namespace sluice::core
