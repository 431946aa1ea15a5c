// SPDX-License-Identifier: Apache-2.0
// A run that plans again beside its steps: when it does, what it adopts, and that no bit depends on it.
#include "run/training/replan.h"

#include <gtest/gtest.h>

#include "plan/stalls.h"
#include "planner/planner.h"
#include "run/small_session.h"

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
  const double predicted_ns = engine.stages().main.plan.makespan_ns;
  for (int i = 0; i < 2 + Replanner::kSteps; ++i) {
    EXPECT_FALSE(replanner.wants_timeline());
    must(replanner.after_step(predicted_ns * 1.2, {}, 1'000'000));
  }
  EXPECT_TRUE(replanner.wants_timeline());
  std::vector<double> losses{must(session->step()).loss};
  must(replanner.after_step(predicted_ns * 1.2, timeline, 1'000'000));
  EXPECT_TRUE(replanner.searching());
  losses.push_back(must(session->step()).loss);
  replanner.wait();
  must(replanner.after_step(predicted_ns, {}, 1'000'000));
  ASSERT_EQ(told_.adopted_.size(), 1u) << (told_.warnings.empty() ? "" : told_.warnings.back());
  const AdoptionEvent& e = told_.adopted_.front();
  EXPECT_EQ(e.step, 2);
  EXPECT_EQ(e.why, "steps took 20.0 % longer than predicted");
  EXPECT_LT(e.after_seconds, e.before_seconds);
  EXPECT_EQ(e.after_seconds, engine.stages().main.plan.makespan_ns / 1e9);
  while (losses.size() < expected.size()) losses.push_back(must(session->step()).loss);
  EXPECT_EQ(losses, expected);
}

TEST_F(Replans, SayThatAPlanStays) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/false);
  const double predicted_ns = session->engine().stages().main.plan.makespan_ns;
  for (int i = 0; i < 20; ++i) must(replanner.after_step(predicted_ns * 2, {}, 100));
  EXPECT_FALSE(replanner.wants_timeline());  // nobody asked
  replanner.ask();
  ASSERT_TRUE(replanner.wants_timeline());
  must(replanner.after_step(predicted_ns, as_predicted(), 100));
  replanner.wait();
  must(replanner.after_step(predicted_ns, {}, 1'000'000));
  EXPECT_TRUE(told_.adopted_.empty());
  ASSERT_EQ(told_.warnings.size(), 1u);
  EXPECT_TRUE(told_.warnings.front().starts_with("asked for: planned again, and the plan stays: "))
      << told_.warnings.front();
}

// One that differs now and then, or one way and the other, is noise.
TEST_F(Replans, WaitForStepsThatDifferInOneWay) {
  const auto session = must(Session::open(prepared_, told_));
  Replanner replanner(session->engine(), told_, /*by_itself=*/true);
  const double predicted_ns = session->engine().stages().main.plan.makespan_ns;
  for (const double part : {9.0, 9.0, 1.2, 1.2, 1.2, 1.0, 1.2, 1.2, 1.2, 0.8, 0.8, 0.8, 1.2, 0.97, 1.03}) {
    must(replanner.after_step(predicted_ns * part, {}, 100));
    EXPECT_FALSE(replanner.wants_timeline()) << part;
  }
  for (int i = 0; i < Replanner::kSteps; ++i) must(replanner.after_step(predicted_ns * 0.8, {}, 100));
  EXPECT_TRUE(replanner.wants_timeline());
}

}  // namespace
}  // namespace sluice::core
