// SPDX-License-Identifier: Apache-2.0
// Emission: addresses, order and waits, from given spans. What a plan must be is said by verify(); here is
// what it is.
#include <gtest/gtest.h>

#include "search/six_tasks.h"

namespace sluice::core {
namespace {

// With the values named away in their gaps.
std::optional<Plan> emitted(const SixTasks& six, std::string_view cut, const Limits& limits,
                            MissingRoom& missing_room) {
  const StepSchedule step = six.step("", limits);
  const DeviceSchedule& s = step.devices.front();
  return emit(six.program, step, {split_at(s, limits, six.gaps(s, cut))}, SixTasks::link(5), limits,
              missing_room);
}

struct Case {
  const char* name;
  const char* cut;
  int64_t device, host;  // room, in objects
  const char* actions;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// c comes to lie where a was, so it waits for a's store; a comes back to where gb was. Waits that follow from
// others are left out: that a is stored before it is loaded follows from bb, which comes after fc.
const Case kCases[] = {
    {"on_one_lane_nothing_waits", "", 5, 0, "fa; fb; fc; bc; bb; ba"},
    {"uses_wait_for_loads_and_copies_for_who_had_the_bytes", "a", 4, 1,
     "fa; fb; store a (fa); fc (store a); bc; bb; load a (bb); ba (load a)"},
    {"a_weight_is_loaded_before_its_first_use", "x", 5, 1, "load x; fa (load x); fb; fc; bc; bb; ba"},
    {"where_bytes_are_few_all_wait_for_each_other", "x a b", 2, 3,
     "load x; fa (load x); fb; store a (fa); fc (store a); store b (fb); bc (store b); load b (bc); bb (load "
     "b); "
     "load a (bb); ba (load a)"},
};

class Emitted : public testing::TestWithParam<Case> {};

TEST_P(Emitted, InOrderWithItsWaits) {
  const Case& c = GetParam();
  const SixTasks six;
  MissingRoom missing_room;
  const auto plan = emitted(six, c.cut, SixTasks::room(c.device, c.host), missing_room);
  ASSERT_TRUE(plan);
  EXPECT_EQ(six.words(*plan), c.actions);
  const Status proof = verify(six.program, *plan, six.costs.workspace_bytes);
  EXPECT_TRUE(proof.ok()) << proof.message();
}

INSTANTIATE_TEST_SUITE_P(Spans, Emitted, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Emit, NamesTheTierThatIsTooSmallAndByHowMuch) {
  const SixTasks six;
  MissingRoom missing_room;
  EXPECT_FALSE(emitted(six, "", SixTasks::room(4, 0), missing_room));
  EXPECT_EQ(missing_room.tier, kDevice);
  EXPECT_FALSE(emitted(six, "a", SixTasks::room(5, 0), missing_room));
  EXPECT_EQ(missing_room.tier, kHost);
  EXPECT_EQ(missing_room.bytes, SixTasks::kBytes);
}

TEST(Emit, KeepsAWorkspaceFreeWhileItsTaskRuns) {
  SixTasks six;
  six.costs.workspace_bytes[3] = 2 * SixTasks::kBytes;  // of the task for which most is there
  MissingRoom missing_room;
  EXPECT_FALSE(emitted(six, "", SixTasks::room(6), missing_room));
  const auto plan = emitted(six, "", SixTasks::room(7), missing_room);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(verify(six.program, *plan, six.costs.workspace_bytes).ok());
}

// The weight is loaded for the next step from position 5 on, to where b was.
TEST(Submission, IsInTheOrderOfPredictedStarts) {
  const SixTasks six;
  const StepSchedule step = six.step();
  const DeviceSchedule& s = step.devices.front();
  const Limits limits = SixTasks::room(5, 1);
  Residency r = split_at(s, limits, six.gaps(s, "x"));
  r.spans.front().begin = 5;
  MissingRoom missing_room;
  auto plan = emit(six.program, step, {r}, SixTasks::link(5), limits, missing_room);
  ASSERT_TRUE(plan);
  EXPECT_EQ(six.words(*plan), "fa; fb; fc; bc; bb; load x (bb); ba");
  double now = 0;
  for (Action& action : plan->actions) {
    action.start_ns = describe(six.program, action) == "load x" ? 55 : now;
    now = action.start_ns == now ? now + 10 : now;
    action.end_ns = action.start_ns;
  }
  plan->makespan_ns = now;
  submit_by_start(*plan);
  EXPECT_EQ(six.words(*plan), "fa; fb; fc; bc; bb; ba; load x (bb)");
  EXPECT_TRUE(verify(six.program, *plan, six.costs.workspace_bytes).ok());
}

}  // namespace
}  // namespace sluice::core
