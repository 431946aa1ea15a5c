// SPDX-License-Identifier: Apache-2.0
// Prices of room and links, the plans made by them, and stores around the boundary.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lowering/build.h"
#include "search/builder.h"

namespace sluice::core {
namespace {

Program tiny_program() {
  OptimizerConfig optimizer;
  optimizer.part_elements = 1000;
  return build_training(model_of({32, 2, 4, 2, 8, 48, 61}), {16, 32, 1, 3, 16}, {}, optimizer).program;
}

Profile slow_links() {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(2e9);
  return profile;
}

class MarketTest : public testing::Test {
 protected:
  PlanBuilder builder(int64_t device_bytes) {
    request_.caps[kDevice] = device_bytes;
    return PlanBuilder(program_, profile_, request_);
  }
  // Prices when this part of what the program needs to stay resident is there.
  Prices prices(double part, int64_t host_bytes = kUnlimited) {
    PlanBuilder plans = builder(kUnlimited);
    plans.limits.bytes[kHost] = std::min(plans.limits.bytes[kHost], host_bytes);
    const auto target = static_cast<int64_t>(part * double(plans.resident_bytes()));
    return find_prices(plans.plain(false).devices.front(), plans.units(), profile_, plans.limits, target);
  }

  const Program program_ = tiny_program();
  const Profile profile_ = slow_links();
  PlanRequest request_;
};

TEST_F(MarketTest, RoomIsTheDearerTheLessThereIs) {
  const double half = prices(0.5).device.back(), most = prices(0.9).device.back(),
               all = prices(1.5).device.back();
  EXPECT_GT(half, most);
  EXPECT_GT(most, all);
  EXPECT_LT(all, 0.02 * half);
}

// So more of it makes no other plan.
TEST_F(MarketTest, MoreOfTheHostThanCouldBeTakenChangesNoPrice) {
  const int64_t all = builder(kUnlimited).resident_bytes();
  const Prices scarce = prices(0.5, all / 2), enough = prices(0.5, 3 * all), more = prices(0.5, 50 * all);
  EXPECT_GT(scarce.host.back(), 2 * enough.host.back());
  EXPECT_EQ(enough.host, more.host);
  EXPECT_EQ(enough.device, more.device);
  EXPECT_EQ(enough.load, more.load);
  EXPECT_EQ(enough.store, more.store);
}

TEST_F(MarketTest, PricesGrowOverTheStepAndATransferCostsNoLessThanNothing) {
  const Prices p = prices(0.6);
  for (size_t i = 1; i < p.device.size(); ++i) {
    EXPECT_GE(p.device[i], p.device[i - 1]) << i;
    EXPECT_GE(p.host[i], p.host[i - 1]) << i;
  }
  for (size_t i = 0; i < p.load.size(); ++i) {
    EXPECT_GT(p.load[i], 0) << i;
    EXPECT_GT(p.store[i], 0) << i;
    EXPECT_LE(p.again[i], 1) << i;
    EXPECT_GE(p.under_way[i], 0) << i;
  }
}

TEST_F(MarketTest, PlansHoldUnderEveryCapTheyAreFoundFor) {
  const int64_t resident = builder(kUnlimited).resident_bytes();
  int found = 0;
  for (const double part : {0.4, 0.55, 0.7, 0.85}) {
    const auto cap = static_cast<int64_t>(part * double(resident));
    PlanBuilder plans = builder(cap);
    for (const bool overlap : {false, true}) {
      plans.find_prices(overlap, {0}, 1);
      for (const double lag : {0.5, 2.}) {
        const auto c =
            plans.build({.rule = SaveRule::Prices, .reserve = 0.05, .overlap = overlap, .lag = lag},
                        plans.limits.bytes[kDevice]);
        if (!c) continue;
        ++found;
        EXPECT_LE(c->plan.arenas[kDevice].bytes, cap) << part;
        const Status valid = verify(program_, c->plan, plans.costs().workspace_bytes);
        EXPECT_TRUE(valid.ok()) << part << ": " << valid.message();
      }
    }
  }
  EXPECT_GE(found, 12);
}

// Four tasks of a microsecond. One value is read by the first and changed by the third; it stays around the
// boundary and leaves between these two.
struct AroundTheBoundary {
  DeviceSchedule schedule;
  Cuts cuts;

  AroundTheBoundary() {
    Value v{};
    v.object = ObjectId(0);
    v.bytes = 1000;
    v.circular = v.given = true;
    v.uses = {{0, false, false}, {2, true, false}};
    schedule.values = {v};
    for (uint32_t p = 0; p < 4; ++p) schedule.runs.push_back({TaskId(p), false, 0});
    schedule.start_ns = {0, 1000, 2000, 3000, 4000};
    schedule.workspace_bytes.assign(5, 0);
    Gap gap{};
    gap.use = 0;
    gap.first = gap.last = 1;
    gap.written = gap.cut = true;
    cuts = {{gap}, {1000, 0, 1000, 1000, 1000}};
  }

  // With a link that takes this long for the value.
  Residency residency(double transfer_ns) const {
    Profile profile;
    profile.transfer_latency_ns = 0;
    profile.set_bytes_per_s(1000 / (transfer_ns * 1e-9));
    Limits limits;
    limits.store_around = true;
    PassRunner passes;
    return decide_residency(schedule, profile, limits, cuts, 1000, passes);
  }
};

const Span& stored(const Residency& r) {
  return *std::find_if(r.spans.begin(), r.spans.end(), [](const Span& s) { return s.store; });
}

TEST(Stores, OfWhatStaysAroundTheBoundaryComeBeforeItWhereTheLinkIsFree) {
  const Residency r = AroundTheBoundary().residency(900);
  EXPECT_EQ(stored(r).store_at, 2u);
  EXPECT_TRUE(r.slots.at(0).home);
}

TEST(Stores, ComeAfterTheBoundaryWhereTheStepEndsTooSoon) {
  const Residency r = AroundTheBoundary().residency(1100);
  EXPECT_EQ(stored(r).store_at, 0u);
  EXPECT_EQ(stored(r).end, 1u);  // the bytes stay until they are stored
  EXPECT_FALSE(r.slots.at(0).home);
}

}  // namespace
}  // namespace sluice::core
