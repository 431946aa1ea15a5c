// SPDX-License-Identifier: Apache-2.0
// What runs the passes: which ran, which were left out, and whether plans hold without them.
#include <gtest/gtest.h>

#include "lowering/build.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

// A tiny model that needs every pass: rounds that can overlap, activations to save, and moments to stream.
BuiltProgram tiny_model() {
  OptimizerConfig optimizer;
  optimizer.part_elements = 1000;
  return build_training(model_of({32, 2, 4, 2, 8, 48, 61}), {16, 32, 1, 2, 16}, {}, optimizer);
}

Profile slow_links() {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(2e9);
  return profile;
}

Result<Plan> plan_with(PassRunner& passes, int64_t device_bytes) {
  PlanRequest request;
  request.caps[kDevice] = device_bytes;
  request.passes = &passes;
  // Some passes run only where a program has too many tasks for a fine search, or shapes are compared.
  request.quick = true;
  if (auto quick = make_plan(tiny_model().program, slow_links(), request); !quick.ok()) return quick;
  request.quick = false;
  return make_plan(tiny_model().program, slow_links(), request);
}

// Little more than the least: few candidates.
int64_t small_cap() {
  static const int64_t least = *minimal_device_bytes(tiny_model().program, slow_links(), {});
  return least + least / 64;
}

TEST(Passes, AllRunAndPassTheirChecks) {
  PassRunner passes;
  passes.check_all();
  const auto plan = plan_with(passes, small_cap());
  ASSERT_TRUE(plan.ok()) << plan.message();
  for (size_t p = 0; p < kPassCount; ++p) {
    const auto& record = passes.record_of(Pass(p));
    EXPECT_GT(record.runs, 0) << facts_of(Pass(p)).name;
    EXPECT_EQ(record.checks, record.runs) << facts_of(Pass(p)).name;
  }
}

TEST(Passes, RunNoMoreWhenSomebodyAskedToStop) {
  std::stop_source stop;
  stop.request_stop();
  PassRunner passes;
  PlanRequest request;
  request.caps[kDevice] = small_cap();
  request.passes = &passes;
  request.stop = stop.get_token();
  for (const bool quick : {false, true}) {
    request.quick = quick;
    const auto plan = make_plan(tiny_model().program, slow_links(), request);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().kind, ErrorKind::Cancelled) << plan.message();
    EXPECT_EQ(passes.record_of(Pass::Gaps).runs, 0);
    EXPECT_EQ(passes.record_of(Pass::Emit).runs, 0);
  }
  // Nothing of it is left: the same request finds what it always does.
  request.stop = {};
  EXPECT_TRUE(make_plan(tiny_model().program, slow_links(), request).ok());
}

// Whether they are slower is not said: a heuristic may lose to none on one program.
TEST(Passes, WithoutThemPlansAreValid) {
  for (const std::string names : {"overlap", "prices", "saves", "drain", "early", "submission",
                                  "overlap,saves,drain,early,submission"}) {
    PassRunner passes;
    passes.check_all();
    ASSERT_TRUE(passes.skip(names).ok());
    const auto plan = plan_with(passes, small_cap());  // make_plan proves what it returns
    ASSERT_TRUE(plan.ok()) << names << ": " << plan.message();
    for (size_t p = 0; p < kPassCount; ++p) {
      const auto& record = passes.record_of(Pass(p));
      const std::string listed = fmt::format(",{},", names),
                        name = fmt::format(",{},", facts_of(Pass(p)).name);
      const bool skipped = listed.find(name) != std::string::npos;
      EXPECT_EQ(record.runs == 0, skipped) << names << ": " << facts_of(Pass(p)).name;
    }
  }
}

TEST(Passes, TheErrorOfAnUnknownNameSaysWhichAreAllowed) {
  PassRunner passes;
  for (const char* name : {"nonsense", "emit", "drain,emit", ",", "drain,,early"}) {
    const Status status = passes.skip(name);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_NE(status.message().find("overlap, prices, saves, relief, drain, early, refine, submission"),
              std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(passes.skip("").ok());
}

TEST(Passes, TheTableNamesEveryPass) {
  PassRunner passes;
  ASSERT_TRUE(passes.skip("drain").ok());
  ASSERT_TRUE(plan_with(passes, small_cap()).ok());
  const std::string table = passes.table();
  for (size_t p = 0; p < kPassCount; ++p) EXPECT_NE(table.find(facts_of(Pass(p)).name), std::string::npos);
  EXPECT_NE(table.find("left out"), std::string::npos);
}

}  // namespace
}  // namespace sluice::core
