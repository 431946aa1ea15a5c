// SPDX-License-Identifier: Apache-2.0
// The order of tasks: as in the program, or with rounds that overlap.
#include <gtest/gtest.h>

#include "lowering/build.h"
#include "search/six_tasks.h"
#include "search/test_machine.h"

namespace sluice::core {
namespace {

// Two rounds of a forward task and two backward tasks in the first, two forward tasks and one backward task
// in the second. With `flow` the second round reads what the first one's backward pass makes.
struct TwoRounds : SixTasks {
  explicit TwoRounds(bool flow) {
    program = {};
    const ObjectId x = object("x", ObjectKind::Param), a = object("a", ObjectKind::Activation),
                   ga = object("ga", ObjectKind::ActGrad), gx = object("gx", ObjectKind::ActGrad),
                   b = object("b", ObjectKind::Activation), c = object("c", ObjectKind::Activation);
    task("fa", x, a, Phase::Forward, 0, 0);
    task("b1", a, ga, Phase::Backward, 1, 0);
    task("b0", ga, gx, Phase::Backward, 0, 0);
    task("fb", flow ? gx : x, b, Phase::Forward, 0, 1);
    task("fc", b, c, Phase::Forward, 1, 1);
    task("bc", c, object("gc", ObjectKind::ActGrad), Phase::Backward, 1, 1);
  }
  std::string order(bool overlap) const {
    std::string out;
    for (const TaskId t : task_order(program, costs, overlap)) {
      out += (out.empty() ? "" : " ") + program.task(t).name;
    }
    return out;
  }
};

TEST(Order, IsTheProgramsUnlessRoundsOverlap) {
  EXPECT_EQ(TwoRounds(false).order(false), "fa b1 b0 fb fc bc");
}

TEST(Order, SpreadsAForwardPassOverTheBackwardPassBeforeIt) {
  EXPECT_EQ(TwoRounds(false).order(true), "fa b1 fb b0 fc bc");
}

TEST(Order, KeepsBothPassesAtTheSamePartOfTheirTime) {
  TwoRounds two(false);
  two.costs.ns = {10, 30, 10, 10, 30, 10};  // b1 is three quarters of its pass, fb a quarter
  EXPECT_EQ(two.order(true), "fa b1 fb fc b0 bc");
}

TEST(Order, StaysWhereDataFlowsFromOneToTheOther) {
  EXPECT_EQ(TwoRounds(true).order(true), "fa b1 b0 fb fc bc");
}

// A rotation goes on with what its product wrote; no other task of a step does.
TEST(Turns, AreNotTakenByWhatGoesOnInPlace) {
  const ModelSpec model = model_of({32, 2, 4, 2, 8, 48, 61});
  const Program program = build_training(model, {32, 16, 2, 2, 16}, Numerics{}, {.deferred = true}).program;
  const Profile profile = test_machine(1e9);
  const TaskCosts costs = cost_of(program, profile);
  const StepSchedule step = unroll(program, {}, task_order(program, costs, false), costs, profile,
                                   Saves(program.objects().size(), Save::Again), {});
  const DeviceSchedule& s = step.devices.front();
  ASSERT_EQ(step.turns.size(), s.size() + 1u);
  int rotations = 0, again = 0;
  for (uint32_t p = 1; p <= s.size(); ++p) {
    const bool rotates = p < s.size() && std::holds_alternative<Rope>(*program.task(s.runs[p].task).op);
    rotations += rotates;
    again += rotates && s.runs[p].recompute;
    EXPECT_EQ(step.turns[p], step.turns[p - 1] + !rotates) << p;
  }
  EXPECT_GT(rotations, again);
  EXPECT_GT(again, 0);
}

}  // namespace
}  // namespace sluice::core
