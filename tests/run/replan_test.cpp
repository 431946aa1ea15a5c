// SPDX-License-Identifier: Apache-2.0
// A run that plans again beside its steps: when it does, what it adopts, and that no bit depends on it.
#include "run/training/replan.h"

#include <gtest/gtest.h>

#include "plan/stalls.h"
#include "run/small_session.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

struct Told : Observer {
  std::vector<AdoptionEvent> adopted_;
  std::vector<std::string> warnings;
  void adopted(const AdoptionEvent& e) override { adopted_.push_back(e); }
  void warned(const std::string& message) override { warnings.push_back(message); }
};

// Under a cap that holds half of what the step would take, by costs that no machine measured.
class Replans : public testing::Test {
 protected:
  void SetUp() override {
    prepared_ = must(prepare_small(dir_, {"train.tokens_per_step=32", "shape.chunk_tokens=16"}));
    Profile& profile = prepared_.machine.profile;
    profile.measured_ns.clear();
    profile.set_bytes_per_s(1e12);
    profile.transfer_latency_ns = 10;
    profile.copy_slowdown = 0;
    caps_ = prepared_.config.caps;
    caps_[kDevice] = prepared_.stages.arena_bytes()[kDevice] / 2 + profile.overhead_bytes[kDevice];
    plan_by(profile);
  }
  void plan_by(const Profile& profile) {
    prepared_.stages = must(plan_again(prepared_.stages, caps_, profile, 1));
  }
  // As if every action took what the profile has for it.
  std::vector<Interval> as_predicted() const {
    Plan plan = prepared_.stages.main.plan;
    recost(prepared_.stages.main.model.program, prepared_.machine.profile, plan);
    return predicted_timeline(plan);
  }
  // As if all took so many times as long.
  static std::vector<Interval> later(std::vector<Interval> timeline, double times) {
    for (Interval& t : timeline) t = {times * t.start_ns, times * t.end_ns};
    return timeline;
  }
  // Until costs have learnt that all takes so many times as long.
  void steps_take(double times, double planned_s, StepCosts& costs) const {
    for (int i = 0; i < 12; ++i) costs.add(times * planned_s, later(as_predicted(), times));
    EXPECT_NEAR(costs.simulated_s() / planned_s, times, 0.03 * times);
  }
  std::vector<double> losses_alone() {
    const auto session = must(Session::open(prepared_));
    std::vector<double> out;
    for (int i = 0; i < kSteps; ++i) out.push_back(must(session->step()).loss);
    return out;
  }
  static constexpr int kSteps = 6;

  TempDir dir_;
  Prepared prepared_;
  BytesByTier caps_;
  Told told_;
};

TEST_F(Replans, AdoptAPlanThatGains) {
  Profile slow = prepared_.machine.profile;
  slow.set_bytes_per_s(1e6);  // what is computed again is faster
  plan_by(slow);
  ASSERT_GT(totals(prepared_.stages.main.model.program, prepared_.stages.main.plan).recompute_ns, 0);
  const std::vector<double> expected = losses_alone();
  const std::vector<Interval> timeline = as_predicted();
  const auto session = must(Session::open(prepared_, told_));
  Engine& engine = session->engine();
  Replanner replanner(engine, told_, /*by_itself=*/true);
  StepCosts& costs = engine.learn_costs();
  const double planned_s = costs.predicted_s();
  std::vector<double> losses{must(session->step()).loss};  // a cold one
  must(replanner.after_step(1'000'000));
  costs.add(planned_s * 1.2, {});
  must(replanner.after_step(1'000'000));
  EXPECT_TRUE(costs.wants_timeline());
  EXPECT_FALSE(replanner.searching());
  costs.add(planned_s * 1.2, timeline);
  must(replanner.after_step(1'000'000));
  EXPECT_TRUE(replanner.searching());
  const Profile searched = costs.for_search();
  losses.push_back(must(session->step()).loss);
  costs.add(planned_s, later(timeline, 1.02));  // too little to search anew
  EXPECT_NE(costs.now().measured_ns, searched.measured_ns);
  replanner.wait();
  must(replanner.after_step(1'000'000));
  ASSERT_EQ(told_.adopted_.size(), 1u) << (told_.warnings.empty() ? "" : told_.warnings.back());
  const AdoptionEvent& e = told_.adopted_.front();
  EXPECT_EQ(e.step, 2);
  EXPECT_TRUE(e.why.starts_with("steps take ")) << e.why;
  EXPECT_LT(e.after_seconds, e.before_seconds);
  EXPECT_EQ(e.after_seconds, engine.stages().main.plan.makespan_ns / 1e9);
  EXPECT_EQ(costs.simulated_s(), e.after_seconds);
  EXPECT_EQ(costs.planned().measured_ns, searched.measured_ns);
  EXPECT_NE(costs.now().measured_ns, searched.measured_ns);
  while (losses.size() < expected.size()) losses.push_back(must(session->step()).loss);
  EXPECT_EQ(losses, expected);
}

TEST_F(Replans, SayThatAPlanStays) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/false);
  StepCosts& costs = session->engine().learn_costs();
  const double planned_s = costs.predicted_s();
  for (int i = 0; i < 9; ++i) {
    costs.add(planned_s * 2, i == 0 ? std::vector<Interval>() : as_predicted());
    must(replanner.after_step(100));
    EXPECT_FALSE(replanner.searching());  // nobody asked
  }
  replanner.ask();
  ASSERT_TRUE(costs.wants_timeline());
  costs.add(planned_s, as_predicted());
  must(replanner.after_step(100));
  replanner.wait();
  must(replanner.after_step(1'000'000));
  EXPECT_TRUE(told_.adopted_.empty());
  ASSERT_EQ(told_.warnings.size(), 1u);
  EXPECT_TRUE(told_.warnings.front().starts_with("asked for: planned again, and the plan stays: "))
      << told_.warnings.front();
}

// One that differs now and then is noise.
TEST_F(Replans, WaitForStepsThatDifferInARow) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/true);
  StepCosts& costs = session->engine().learn_costs();
  const double planned_s = costs.predicted_s();
  for (const double part : {9.0, 1.0, 1.2, 1.0, 1.2, 1.0, 0.97, 1.03}) {
    costs.add(planned_s * part, {});
    must(replanner.after_step(100));
    costs.add(planned_s, as_predicted());
    must(replanner.after_step(100));
    EXPECT_FALSE(replanner.searching()) << part;
  }
}

// What was found for other costs than there are is no plan to move to.
TEST_F(Replans, BeginAgainWhereCostsChangeMeanwhile) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/true);
  StepCosts& costs = session->engine().learn_costs();
  const double planned_s = costs.predicted_s();
  steps_take(2, planned_s, costs);
  must(replanner.after_step(100));
  must(replanner.after_step(100));
  ASSERT_TRUE(replanner.searching());
  for (int i = 1; i < Replanner::kSearches; ++i) {
    steps_take(i % 2 == 1 ? 4 : 2, planned_s, costs);
    replanner.wait();
    must(replanner.after_step(100));
    EXPECT_TRUE(replanner.searching()) << i;
    EXPECT_TRUE(told_.warnings.empty()) << told_.warnings.back();
  }
  steps_take(8, planned_s, costs);
  replanner.wait();
  must(replanner.after_step(100));
  EXPECT_FALSE(replanner.searching()) << "what the last one found is taken";
  EXPECT_EQ(told_.warnings.size() + told_.adopted_.size(), 1u);
}

// Who asks while a search that it began by itself is under way is answered, also where that begins again.
TEST_F(Replans, AnswerWhoAsked) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/true);
  StepCosts& costs = session->engine().learn_costs();
  const double planned_s = costs.predicted_s();
  steps_take(2, planned_s, costs);
  must(replanner.after_step(100));
  must(replanner.after_step(100));
  ASSERT_TRUE(replanner.searching());
  replanner.ask();
  for (const double times : {4, 2}) {
    steps_take(times, planned_s, costs);
    replanner.wait();
    must(replanner.after_step(100));
    ASSERT_TRUE(replanner.searching()) << times;
  }
  replanner.wait();
  must(replanner.after_step(100));
  ASSERT_EQ(told_.warnings.size() + told_.adopted_.size(), 1u);
  const std::string answer = told_.adopted_.empty() ? told_.warnings.front() : told_.adopted_.front().why;
  EXPECT_TRUE(answer.starts_with("asked for")) << answer;
}

// Whoever ends while a search is under way waits for little of it.
TEST_F(Replans, EndWhileTheySearch) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/false);
  replanner.ask();
  must(session->step());
  must(session->step());
  must(replanner.after_step(100));
  EXPECT_TRUE(replanner.searching());
}

// A step by a plan with copies, all tests the same.
class Learns : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempDir dir;
    const Prepared prepared = must(prepare_small(dir, {"train.tokens_per_step=32", "shape.chunk_tokens=16"}));
    planned_ = std::make_unique<Stage>(prepared.stages.main);
    costs_ = std::make_unique<Profile>(prepared.machine.profile);
    costs_->set_bytes_per_s(1e12);
    costs_->copy_slowdown = 0;
  }
  void SetUp() override { take(1); }
  // Copies that are so many times as large.
  void take(int64_t larger) {
    stage_ = *planned_;
    profile_ = *costs_;
    for (Action& a : stage_.plan.actions) {
      if (a.kind == ActionKind::Copy) a.bytes *= larger;
    }
    recost(stage_.model.program, profile_, stage_.plan);
  }
  // When all takes `ops` times as long, and links are `links` times as fast.
  std::vector<Interval> timeline(double ops, double links) const {
    Profile other = profile_;
    for (const Task& task : stage_.model.program.tasks())
      other.measured_ns[cost_key(task.op)] = ops * profile_.cost(task.op).ns;
    other.set_bytes_per_s(links * profile_.bytes_per_s(kHost, kDevice));
    Plan plan = stage_.plan;
    recost(stage_.model.program, other, plan);
    return predicted_timeline(plan);
  }
  static double end_s(const std::vector<Interval>& timeline) {
    double end_ns = 0;
    for (const Interval& t : timeline) end_ns = std::max(end_ns, t.end_ns);
    return end_ns / 1e9;
  }
  Stage stage_;
  Profile profile_;

 private:
  static std::unique_ptr<Stage> planned_;
  static std::unique_ptr<Profile> costs_;
};
std::unique_ptr<Stage> Learns::planned_;
std::unique_ptr<Profile> Learns::costs_;

TEST_F(Learns, WhatOpsTake) {
  StepCosts costs(/*shares_cores=*/true);
  costs.follow(stage_, profile_);
  const double planned_s = costs.predicted_s();
  EXPECT_EQ(planned_s, stage_.plan.makespan_ns / 1e9);
  EXPECT_FALSE(costs.wants_timeline()) << "the first step is cold";
  costs.add(9 * planned_s, {});
  const std::vector<Interval> longer = timeline(1.2, 1);
  const double takes_s = end_s(longer);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(i > 1 || costs.wants_timeline());
    costs.add(takes_s * (i % 2 == 0 ? 1.02 : 0.98), longer);
  }
  EXPECT_NEAR(costs.predicted_s() / takes_s, 1, 0.02);
  EXPECT_EQ(costs.differs(), "ops +20 %");
  EXPECT_TRUE(costs.changed(profile_, planned_s).ends_with(" % longer than planned"))
      << costs.changed(profile_, planned_s);
  // One that is far off says nothing of those that come.
  const double before_s = costs.predicted_s();
  costs.add(9 * takes_s, {});
  EXPECT_EQ(costs.predicted_s(), before_s);
  EXPECT_TRUE(costs.fresh() || costs.off() > 7);
}

// One that waits for its links has power to spare for a higher clock. A plan that keeps it busy has not.
TEST_F(Learns, WhatOpsTakeOnABusyDevice) {
  for (const bool waits : {false, true}) {
    take(waits ? kGiB : 1);
    const std::vector<SharedOp> ops = distinct_ops(stage_.model.program);
    for (const Op& op : ops) profile_.measured_ns[cost_key(op)] = profile_.cost(op).ns;
    const std::vector<Interval> faster = timeline(0.5, 1);
    for (const bool shares_cores : {false, true}) {
      StepCosts costs(shares_cores);
      costs.follow(stage_, profile_);
      costs.add(costs.predicted_s(), {});
      costs.add(end_s(faster), faster);
      const Profile search = costs.for_search();
      const bool as_planned = waits && !shares_cores;
      for (const Op& op : ops) {
        const double planned_ns = profile_.cost(op).ns;
        EXPECT_NEAR(costs.now().cost(op).ns / planned_ns, 0.5, 1e-6);
        EXPECT_NEAR(search.cost(op).ns / planned_ns, as_planned ? 1 : 0.5, as_planned ? 1e-9 : 0.1);
      }
    }
  }
}

TEST_F(Learns, HowFastLinksAre) {
  take(kGiB);  // too little tells nothing
  StepCosts costs(/*shares_cores=*/false);
  costs.follow(stage_, profile_);
  const double planned_s = costs.predicted_s();
  costs.add(planned_s, {});
  const std::vector<Interval> faster = timeline(1, 2);
  costs.add(end_s(faster), faster);
  EXPECT_NEAR(costs.now().bytes_per_s(kHost, kDevice) / 2e12, 1, 1e-6);
  EXPECT_EQ(costs.differs(), "loads 2e+03 of 1e+03 GB/s, stores 2e+03 of 1e+03 GB/s");
  EXPECT_EQ(costs.changed(profile_, costs.simulated_s()),
            "2e+03 instead of 1e+03 GB/s go from host to device");
  EXPECT_EQ(costs.changed(costs.now(), costs.simulated_s()), "");
}

// Two steps after each change predictions are right, however many changes there were before.
TEST_F(Learns, FromOneChangeAfterAnother) {
  take(kGiB);
  StepCosts costs(/*shares_cores=*/false);
  costs.follow(stage_, profile_);
  costs.add(costs.predicted_s(), {});
  const auto step = [&](double links) {
    const std::vector<Interval> takes = timeline(1, links);
    const bool wanted = costs.wants_timeline();
    costs.add(1.015 * end_s(takes), wanted ? takes : std::vector<Interval>());
    return costs.predicted_s() / end_s(takes);
  };
  for (int i = 0; i < 9; ++i) step(1);
  for (const double links : {0.85, 0.7, 0.55, 1.0, 0.5, 1.0}) {
    step(links);
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(step(links), 1.015, 0.005) << links;
  }
}

// What costs do not explain is learnt from steps that were not timed, and few are.
TEST_F(Learns, WithoutSlowingSteps) {
  StepCosts costs(/*shares_cores=*/false);
  costs.follow(stage_, profile_);
  const std::vector<Interval> as_planned = timeline(1, 1);
  constexpr double kStepS = 1e5;  // learning takes next to nothing of it
  int timed = 0;
  for (int i = 0; i < 200; ++i) {
    const bool wanted = costs.wants_timeline();
    timed += wanted;
    costs.add(kStepS * (wanted ? 1.02 : 1), wanted ? as_planned : std::vector<Interval>());
  }
  EXPECT_NEAR(costs.predicted_s() / kStepS, 1, 1e-9);
  EXPECT_LE(timed, 30);
  EXPECT_GE(timed, 15);
  costs.add(kStepS * 1.1, {});
  EXPECT_TRUE(costs.wants_timeline()) << "something differs";
}

}  // namespace
}  // namespace sluice::core
