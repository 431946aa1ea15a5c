// SPDX-License-Identifier: Apache-2.0
// The order of tasks: as in the program, or with rounds that overlap.
#include <gtest/gtest.h>

#include "planner/six_tasks.h"

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

}  // namespace
}  // namespace sluice::core
