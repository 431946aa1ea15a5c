// SPDX-License-Identifier: Apache-2.0
// Which device each part of the host's arena is for.
#include "exec/host_parts.h"

#include <gtest/gtest.h>

#include "exec/two_devices.h"

namespace sluice::core {
namespace {

constexpr int64_t kPage = kHugePage;

// Copies between devices and the host, of which nothing else counts.
class HostParts : public testing::Test {
 protected:
  HostParts() {
    plan_.lanes = two_devices();
    plan_.arenas[kHost].bytes = 8 * kPage - 100;
  }

  void copy(Location from, Location to, int64_t bytes) {
    Action action{.kind = ActionKind::Copy, .lane = plan_.lanes.copy(from.tier, to.tier)};
    action.from = from;
    action.to = to;
    action.bytes = bytes;
    plan_.actions.push_back(action);
  }

  Plan plan_;
};

TEST_F(HostParts, ArePagesOfTheDeviceThatMovesTheMostBytesThere) {
  copy({kHost, 0}, {kDevice, 0}, kPage);
  copy({kHost, 0}, {kSecond, 0}, kPage);
  copy({kSecond, 0}, {kHost, kPage - 1}, kPage);  // one byte more of the first page, all but one of the next
  copy({kHost, 2 * kPage}, {kDevice, 0}, kPage / 2);
  copy({kDevice, 0}, {kHost, 2 * kPage}, kPage / 2);
  copy({kHost, 2 * kPage}, {kSecond, 0}, kPage * 3 / 4);
  copy({kDevice, 0}, {kHost, 7 * kPage}, 5);
  EXPECT_EQ(host_parts(plan_), (std::vector<HostPart>{{0, 2 * kPage, kSecond},
                                                      {2 * kPage, 3 * kPage, kDevice},
                                                      {7 * kPage, 8 * kPage - 100, kDevice}}));
}

TEST_F(HostParts, RunsAndHandOversAreOfNoPart) {
  copy({kDevice, 0}, {kSecond, 0}, kPage);
  plan_.actions.push_back({.kind = ActionKind::Run, .lane = plan_.lanes.compute(), .bytes = kPage});
  EXPECT_TRUE(host_parts(plan_).empty());
}

}  // namespace
}  // namespace sluice::core
