// SPDX-License-Identifier: Apache-2.0
// The numbers of a report: what must sum to what, on real plans; and the causes of stalls, on plans made by
// hand.
#include <gtest/gtest.h>

#include <numeric>

#include "report/small_plan.h"
#include "support/one_device.h"

namespace sluice::core {
namespace {

double sum(const std::array<double, kStallCauses>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}
int64_t sum(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

// Times are sums of thousands of numbers.
void expect_near(double got, double expected) {
  EXPECT_NEAR(got, expected, 1e-9 * std::max(1.0, std::abs(expected)));
}

const std::vector<SmallPlan>& plans() {
  static const std::vector<SmallPlan> all = [] {
    std::vector<SmallPlan> out;
    for (const double share : {0.2, 2.0}) out.push_back(small_plan(share));
    for (uint64_t seed = 0; seed < 4; ++seed) out.push_back(random_small_plan(seed));
    return out;
  }();
  return all;
}

TEST(Report, PlansOfTheseTestsHaveEverythingInThem) {
  const PlanSummary tight = small_plan(0.2).report().summary;
  EXPECT_GT(tight.time.again_ns, 0);
  EXPECT_GT(tight.time.slowed_ns, 0);
  EXPECT_GT(tight.time.stalls_ns[size_t(StallCause::Load)], 0);
  EXPECT_GT(sum(tight.lanes[kLoad].bytes), 0);
  EXPECT_GT(sum(tight.lanes[kStore].bytes), 0);
  const BytesByKind loaded = small_plan(2).report().summary.lanes[kLoad].bytes;
  for (const ObjectKind kind :
       {ObjectKind::Param, ObjectKind::Grad, ObjectKind::OptState, ObjectKind::Activation}) {
    EXPECT_EQ(loaded[size_t(kind)], 0) << name_of(kind) << " need not move without a cap";
  }
}

TEST(Report, LanesAndTimeSumToTheStep) {
  for (const SmallPlan& p : plans()) {
    const PlanSummary s = p.report().summary;
    expect_near(s.step_ns, p.plan.makespan_ns);
    ByLane<double> idle(p.plan.lanes), end(p.plan.lanes);
    for (const Action& a : p.plan.actions) {
      idle[a.lane] += a.start_ns - end[a.lane];
      end[a.lane] = a.end_ns;
    }
    for (const Lane lane : p.plan.lanes) {
      expect_near(s.lanes[lane].idle_ns, idle[lane] + s.step_ns - end[lane]);
      expect_near(s.lanes[lane].busy_ns + s.lanes[lane].idle_ns, s.step_ns);
    }
    expect_near(s.time.once_ns + s.time.again_ns + s.time.slowed_ns + sum(s.time.stalls_ns) + s.time.tail_ns,
                s.step_ns);
  }
}

TEST(Report, StallsSumToThePlansOwn) {
  for (const SmallPlan& p : plans()) {
    const PlanReport r = p.report();
    expect_near(sum(r.summary.time.stalls_ns), totals(p.program, p.plan).stall_ns);
    for (const Stall& stall : r.stalls) {
      expect_near(sum(stall.ns), stall.end_ns - stall.begin_ns);
      for (const double ns : stall.ns) EXPECT_GE(ns, 0);
    }
    EXPECT_EQ(r.summary.stall_count, int64_t(r.stalls.size()));
    for (size_t i = 1; i < r.summary.longest_stalls.size(); ++i) {
      EXPECT_GE(sum(r.summary.longest_stalls[i - 1].ns), sum(r.summary.longest_stalls[i].ns));
    }
  }
}

TEST(Report, BytesByKindSumToWhatThePlanMoves) {
  for (const SmallPlan& p : plans()) {
    const PlanTotals t = totals(p.program, p.plan);
    const PlanSummary s = p.report().summary;
    EXPECT_EQ(sum(s.lanes[kCompute].bytes), 0);
    EXPECT_EQ(sum(s.lanes[kLoad].bytes), t.loads.bytes);
    EXPECT_EQ(sum(s.lanes[kStore].bytes), t.stores.bytes);
    EXPECT_EQ(s.lanes[kLoad].actions, t.loads.actions);
    EXPECT_EQ(s.lanes[kStore].actions, t.stores.actions);
  }
}

// What holds something never exceeds the arena, which it would if a place were counted for two contents at
// once.
TEST(Report, MemoryStaysInTheArenas) {
  for (const SmallPlan& p : plans()) {
    const PlanReport r = p.report();
    for (const Tier t : {kDevice, kHost}) {
      const TierReport* tier = &r.summary.tiers[t];
      int64_t peak = 0;
      for (const MemoryPoint& point : r.memory[t]) {
        for (const int64_t bytes : point.bytes) EXPECT_GE(bytes, 0);
        peak = std::max(peak, point.total());
      }
      EXPECT_EQ(tier->peak_bytes, peak);
      EXPECT_LE(peak, tier->arena_bytes);
      EXPECT_GE(peak, sum(tier->homes)) << "what has a home is there all the time";
    }
    // A task's operands are there together.
    int64_t largest = 0;
    for (const Action& a : p.plan.actions) {
      if (a.kind == ActionKind::Copy) continue;
      int64_t bytes = a.bytes;
      std::vector<uint32_t> seen;
      for (const Use& use : p.program.task(a.task).uses) {
        if (std::find(seen.begin(), seen.end(), use.object.value) != seen.end()) continue;
        seen.push_back(use.object.value);
        bytes += p.program.object(use.object).bytes;
      }
      largest = std::max(largest, bytes);
    }
    EXPECT_GE(r.summary.tiers[kDevice].peak_bytes, largest);
  }
}

TEST(Report, TheMapAgreesWithTheTable) {
  for (const SmallPlan& p : plans()) {
    const PlanReport r = p.report();
    ASSERT_EQ(r.map.roles.size(), r.summary.saved.size());
    EXPECT_EQ(r.map.columns.size(), 8u);  // 2 rounds of 4 chunks
    EXPECT_EQ(r.map.cells.size(), 4u);    // 3 layers, and embedding and head
    for (size_t role = 0; role < r.map.roles.size(); ++role) {
      std::array<int64_t, kSavings> bytes{};
      for (const std::string& row : r.map.cells) {
        for (size_t i = role; i < row.size(); i += r.map.roles.size()) {
          const size_t state = std::string_view("dha").find(row[i]);
          if (state < kSavings) bytes[state] += r.map.role_bytes[role];
        }
      }
      EXPECT_EQ(r.map.roles[role], r.summary.saved[role].role);
      EXPECT_EQ(bytes, r.summary.saved[role].saved_bytes) << r.map.roles[role];
    }
  }
  // Every activation that a cap does not concern stays.
  for (const RoleReport& role : small_plan(2).report().summary.saved) {
    EXPECT_EQ(role.saved_bytes[size_t(Saving::Device)], role.bytes) << role.role;
  }
}

// A plan of lanes, waits and times only.
struct HandMade {
  Plan plan;
  std::vector<Interval> times;

  void add(Lane lane, double start_ns, double end_ns, std::vector<uint32_t> waits = {}) {
    Action a{plan.lanes[lane].computes() ? ActionKind::Run : ActionKind::Copy, lane};
    a.from.tier = plan.lanes[lane].from;
    a.to.tier = plan.lanes[lane].to;
    a.first_wait = uint32_t(plan.waits.size());
    a.wait_count = uint32_t(waits.size());
    plan.waits.insert(plan.waits.end(), waits.begin(), waits.end());
    plan.actions.push_back(a);
    times.push_back({start_ns, end_ns});
  }
};

using Parts = std::array<double, kStallCauses>;  // load, store, device, nothing

TEST(Stalls, EachPieceOfAGapGoesToWhatWasAtWork) {
  HandMade h;
  h.add(kCompute, 0, 10);
  h.add(kStore, 8, 14);
  h.add(kLoad, 15, 20, {1});     // needed the room of the store, began late
  h.add(kCompute, 22, 30, {2});  // needed the load, began late
  const std::vector<Stall> stalls = stalls_of(h.plan, h.times);
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].action, 3u);
  EXPECT_EQ(stalls[0].last, 2u);
  EXPECT_EQ(stalls[0].ns, (Parts{5, 4, 0, 3}));
  EXPECT_EQ(stalls[0].cause(), StallCause::Load);
}

TEST(Stalls, ABusyLinkIsTheCauseToo) {
  HandMade h;
  h.add(kCompute, 0, 4);
  h.add(kLoad, 0, 6);
  h.add(kLoad, 6, 9);  // waits for nothing but its turn
  h.add(kCompute, 9, 12, {2});
  h.add(kCompute, 12, 14, {1});  // no gap
  const std::vector<Stall> stalls = stalls_of(h.plan, h.times);
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].ns, (Parts{5, 0, 0}));
}

TEST(Stalls, WhatEndedBeforeTheGapIsNotItsCause) {
  HandMade h;
  h.add(kLoad, 0, 3);
  h.add(kCompute, 3, 5, {0});
  h.add(kStore, 1, 4);
  h.add(kCompute, 7, 9, {2});
  const std::vector<Stall> stalls = stalls_of(h.plan, h.times);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[0].ns, (Parts{3, 0, 0}));
  EXPECT_EQ(stalls[1].ns, (Parts{0, 0, 0, 2})) << "a launch that came late";
  EXPECT_EQ(stalls[1].last, stalls[1].action);
  EXPECT_EQ(sum_by_cause(stalls), (Parts{3, 0, 0, 2}));
}

TEST(Stalls, QuietGapsAreSummedByWhatCameBeforeAndAfter) {
  HandMade h;
  h.add(kCompute, 0, 4);
  h.add(kCompute, 5, 7);
  h.add(kCompute, 9, 10);
  h.add(kLoad, 8, 12);
  h.add(kCompute, 16, 20, {3});  // four after the load it waits for
  const auto kind = [&](const Action& a) { return std::string(a.kind == ActionKind::Run ? "run" : "load"); };
  const std::vector<QuietGaps> gaps = quiet_gaps(h.plan, stalls_of(h.plan, h.times), kind);
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].before + gaps[0].after, "loadrun");
  EXPECT_EQ(gaps[0].ns, 4);
  EXPECT_EQ(gaps[1].before + gaps[1].after, "runrun");
  EXPECT_EQ(gaps[1].count, 2);
  EXPECT_EQ(gaps[1].ns, 3);
  EXPECT_EQ(gaps[1].longest_ns, 2);
  EXPECT_EQ(nothing_at_work_ns(h.times), 1 + 1 + 4);
}

// The second device waits for a copy, and that for what the first one had still to do.
TEST(Stalls, AnotherDeviceIsTheCauseWithWhatItHandsOver) {
  HandMade h;
  h.plan.lanes = LaneTable::of_devices(2, true);
  const Tier second = Tier::device(1);
  const Lane one = h.plan.lanes.compute(), two = h.plan.lanes.compute(second);
  h.add(two, 0, 2);
  h.add(one, 0, 6);
  h.add(h.plan.lanes.copy(kDevice, second), 6, 8, {1});
  h.add(two, 9, 12, {2});
  const std::vector<Stall> stalls = stalls_of(h.plan, h.times);
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].action, 3u);
  EXPECT_EQ(stalls[0].ns, (Parts{0, 0, 6, 1}));
  EXPECT_EQ(stalls[0].cause(), StallCause::Device);
}

TEST(Report, AMeasuredTimelineIsReportedLikeAPredictedOne) {
  const SmallPlan p = small_plan(0.2);
  std::vector<Interval> late = predicted_timeline(p.plan);
  for (Interval& t : late) {
    t.start_ns += 1000;
    t.end_ns += 1000;
  }
  const PlanSummary predicted = p.report().summary,
                    measured = make_report(p.program, p.plan, late, p.context).summary;
  expect_near(measured.step_ns, predicted.step_ns + 1000);
  expect_near(sum(measured.time.stalls_ns), sum(predicted.time.stalls_ns) + 1000);
  EXPECT_NEAR(measured.time.stalls_ns[size_t(StallCause::Load)],
              predicted.time.stalls_ns[size_t(StallCause::Load)], 1);
  EXPECT_NE(describe_stalls(measured.time.stalls_ns, measured.step_ns).find("nothing under way"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::core
