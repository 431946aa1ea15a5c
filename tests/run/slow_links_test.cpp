// SPDX-License-Identifier: Apache-2.0
#include "run/session/slow_links.h"

#include <gtest/gtest.h>

#include "equivalence/rig/rig.h"

namespace sluice::core {
namespace {

const Tier kOther = Tier::device(1);

// Two devices, and copies of a GiB at 50 GB/s over every link, one after the other.
class SlowLinks : public testing::Test {
 protected:
  SlowLinks() {
    plan_.lanes = backend_->lanes();
    for (const Lane lane : plan_.lanes) {
      const LaneEnds& ends = plan_.lanes[lane];
      if (ends.computes()) continue;
      Action a{ActionKind::Copy, lane};
      a.from.tier = ends.from, a.to.tier = ends.to;
      a.bytes = kGiB;
      a.start_ns = now_ns_;
      now_ns_ = a.end_ns = a.start_ns + kLatencyNs + double(kGiB) / 50;
      plan_.actions.push_back(a);
    }
  }

  // The planned times, with a link's copies stretched to so much of its rate.
  std::vector<Interval> timeline(Tier from, Tier to, double share) const {
    std::vector<Interval> out;
    for (const Action& a : plan_.actions) {
      out.push_back({a.start_ns, a.end_ns});
      if (a.from.tier == from && a.to.tier == to)
        out.back().end_ns = a.start_ns + kLatencyNs + double(kGiB) / 50 / share;
    }
    return out;
  }
  std::string said(Tier from, Tier to, double share) const {
    return slow_links(plan_, timeline(from, to, share), kLatencyNs, *backend_);
  }

  static constexpr double kLatencyNs = 1e4;
  const std::unique_ptr<Backend> backend_ = rig::small_devices(2, true);
  Plan plan_;
  double now_ns_ = 0;
};

TEST_F(SlowLinks, AreNamedWithBothRates) {
  EXPECT_TRUE(said(kHost, kOther, 0.5)
                  .starts_with("links carry less than the plan was made with: host to device 1 25.0 of 50.0 "
                               "GB/s; something else"))
      << said(kHost, kOther, 0.5);
  EXPECT_NE(said(kDevice, kOther, 0.5).find("device 0 to device 1 25.0"), std::string::npos);
}

TEST_F(SlowLinks, WithinTheMarginNothingIsSaid) {
  EXPECT_EQ(said(kOther, kHost, kLeastShareOfLink * 1.01), "");
  EXPECT_NE(said(kOther, kHost, kLeastShareOfLink * 0.99), "");
  EXPECT_EQ(said(kOther, kHost, 2), "");
}

TEST_F(SlowLinks, ALittleCopiedTellsNothing) {
  for (Action& a : plan_.actions) a.bytes = kMiB;
  EXPECT_EQ(said(kHost, kOther, 0.1), "");
}

}  // namespace
}  // namespace sluice::core
