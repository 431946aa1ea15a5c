// SPDX-License-Identifier: Apache-2.0
// Searching a step of many rounds by a few of them.
#include "search/few_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "search/builder.h"
#include "search/planner.h"
#include "search/test_machine.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

constexpr int64_t kChunk = 512;

Profile machine() {
  return test_machine(2e8);
}

// One chunk a round, but `first` in the first.
Program step_of(const ModelSpec& model, int64_t rounds, int64_t first = 1) {
  OptimizerConfig optimizer;
  optimizer.deferred = true;
  StepShape shape{kChunk, kChunk, 1, 1, kChunk};
  spread(shape, first + rounds - 1, rounds, first);
  return subject_of(model, {}, optimizer).program(shape, false);
}

std::optional<FewRounds> few_of(const Program& program) {
  return few_rounds(program, cost_of(program, machine()));
}

const ModelSpec kSmall = model_of({64, 2, 4, 2, 16, 128, 512});

// Whatever is done once, as sums over gradients beside the last round, is done where it was.
TEST(FewRounds, AreTheStepOfThatManyRounds) {
  const auto few = few_of(step_of(kSmall, 12, 3));
  ASSERT_TRUE(few);
  const int64_t stay = 12 - few->left_out.rounds;
  const Program alike = step_of(kSmall, stay, 3);
  EXPECT_TRUE(verify(few->program).ok());
  ASSERT_EQ(few->program.tasks().size(), alike.tasks().size());
  ASSERT_EQ(few->program.objects().size(), alike.objects().size());
  const TaskCosts costs = cost_of(few->program, machine()), expected = cost_of(alike, machine());
  EXPECT_EQ(costs.ns, expected.ns);
  EXPECT_EQ(costs.workspace_bytes, expected.workspace_bytes);
  for (size_t t = 0; t < alike.tasks().size(); ++t) {
    const Task &a = few->program.tasks()[t], &b = alike.tasks()[t];
    EXPECT_EQ(a.round, b.round) << a.name;
    EXPECT_EQ(a.phase, b.phase) << a.name;
    ASSERT_EQ(a.uses.size(), b.uses.size()) << a.name;
    for (size_t u = 0; u < a.uses.size(); ++u) {
      const Object &x = few->program.object(a.uses[u].object), &y = alike.object(b.uses[u].object);
      EXPECT_EQ(x.role, y.role) << a.name;
      EXPECT_EQ(x.layer, y.layer) << a.name;
      EXPECT_EQ(x.round, y.round) << a.name;
      EXPECT_EQ(a.uses[u].access, b.uses[u].access) << a.name;
    }
  }
}

TEST(FewRounds, AreNotLookedForWhereRoundsDiffer) {
  EXPECT_FALSE(few_of(step_of(kSmall, 4)));
  StepShape shape{kChunk, kChunk, 1, 1, kChunk};
  spread(shape, 11, 4, 3);  // 3 + 3 + 3 + 2
  EXPECT_FALSE(few_of(subject_of(kSmall, {}, {}).program(shape, false)));
}

TEST(FewRounds, StandForAllOfThem) {
  const Program program = step_of(kSmall, 12, 3);
  const auto few = few_of(program);
  ASSERT_TRUE(few);
  const auto whole = make_plan(program, machine(), {}), short_one = make_plan(few->program, machine(), {});
  ASSERT_TRUE(whole.ok() && short_one.ok());
  // Nothing moves.
  EXPECT_NEAR(whole_step_ns(few->program, *short_one, few->left_out), whole->makespan_ns,
              1e-6 * whole->makespan_ns);
  EXPECT_EQ(runs_in_whole_step(few->program, *short_one, few->left_out), int64_t(program.tasks().size()));
  EXPECT_EQ(whole_step_ns(program, *whole, {}), whole->makespan_ns);
}

// Of programs that are searched so, about half of which has room on the device. What a link is behind in a
// round must not add up over all of them. One that is neither quick nor brief is of all rounds.
TEST(FewRounds, EstimateWhatThePlanTakes) {
  for (const auto& [rounds, brief] : {std::pair(9, false), {14, true}, {20, true}}) {
    const Program program = step_of(model_of({64, 16, 4, 2, 16, 128, 512}), rounds, 3);
    const auto few = few_of(program);
    ASSERT_TRUE(few && few->program.tasks().size() > kLargeProgram) << "all rounds are searched anyway";
    PlanRequest request;
    request.threads = 2;
    request.caps[kDevice] = persistent_bytes(program) * 6 / 5;
    const auto plan = make_plan(program, machine(), request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    PlanRequest estimated = request;
    estimated.brief = brief;
    const auto estimate = estimate_step(program, machine(), estimated);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    EXPECT_NEAR(estimate->ns, plan->makespan_ns, (brief ? 0.02 : 0) * plan->makespan_ns) << rounds;
    EXPECT_FALSE(estimate->last_resort);
    PlanRequest alone = request;
    alone.threads = 1;
    alone.known = estimate->settings;
    const auto again = make_plan(program, machine(), alone);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->makespan_ns, plan->makespan_ns);
    EXPECT_EQ(again->addresses, plan->addresses);
  }
}

// A ring is filled and emptied once a step, and as many rounds stay as it takes for others to end at an even
// pace.
TEST(FewRounds, OfARingAreMore) {
  const Program program = step_of(kSmall, 24, 3);
  const auto few = few_rounds(program, cost_of(program, machine()), 2);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->left_out.last - few->left_out.first + 1, 7) << "and one behind those that are left out";
  ASSERT_EQ(few->tasks.size(), few->program.tasks().size());
  for (size_t t = 0; t < few->tasks.size(); ++t) {
    const Task &here = few->program.tasks()[t], &there = program.task(few->tasks[t]);
    EXPECT_EQ(here.name, there.name);
    EXPECT_EQ(here.layer, there.layer) << here.name;
  }
}

// What an estimate found of settings makes a search shorter, and its plan no other.
TEST(KnownSettings, AreThoseThatASearchWouldFind) {
  const Program program = step_of(model_of({64, 16, 4, 2, 16, 128, 512}), 5, 3);
  ASSERT_GT(program.tasks().size(), kLargeProgram);
  PlanRequest request;
  request.threads = 2;
  request.caps[kDevice] = persistent_bytes(program) / 2;
  request.caps[kHost] = persistent_bytes(program) * 3 / 2;
  PassRunner without, with;
  request.passes = &without;
  const auto plan = make_plan(program, machine(), request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  request.passes = nullptr;
  request.brief = true;
  const auto estimate = estimate_step(program, machine(), request);
  ASSERT_TRUE(estimate.ok() && estimate->settings);
  request.brief = false;
  request.passes = &with;
  request.known = estimate->settings;
  const auto again = make_plan(program, machine(), request);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->makespan_ns, plan->makespan_ns);
  EXPECT_EQ(again->addresses, plan->addresses);
  EXPECT_LT(with.record_of(Pass::Emit).runs, without.record_of(Pass::Emit).runs);
}

// A quick search tries a part of what a full one does, however many tasks there are.
TEST(KnownSettings, OfAQuickSearchMakeNoFasterPlan) {
  for (const int64_t chunks : {1, 3}) {
    const Program program = step_of(model_of({64, 16, 4, 2, 16, 128, 512}), 1, chunks);
    ASSERT_GT(program.tasks().size(), 400u);
    for (const int64_t parts : {2, 4}) {
      PlanRequest request;
      request.caps[kDevice] = persistent_bytes(program) * parts / 5;
      const auto plan = make_plan(program, machine(), request);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      request.quick = true;
      const auto quick = make_plan(program, machine(), request);
      ASSERT_TRUE(quick.ok()) << quick.error().message;
      EXPECT_LE(plan->makespan_ns, 1.001 * quick->makespan_ns)
          << program.tasks().size() << " tasks, " << parts << " fifths of the state";
    }
  }
}

// Rounds that are left out count in the bound, so that shapes are compared by it.
TEST(FewRounds, HaveTheBoundOfTheWholeStep) {
  const Program program = step_of(kSmall, 24, 3);
  const auto few = few_of(program);
  ASSERT_TRUE(few);
  PlanRequest request;
  request.caps[kHost] = 3 * kMiB;
  double before = 0;
  for (const int64_t device : {64, 32, 16, 8, 4, 2}) {
    request.caps[kDevice] = device * kMiB;
    const double whole = PlanBuilder(program, machine(), request).lower_bound_ns();
    EXPECT_NEAR(PlanBuilder(few->program, machine(), request, few->left_out).lower_bound_ns() / whole, 1,
                1e-6)
        << device;
    EXPECT_GE(whole, before) << "less memory, and a lower bound";
    before = whole;
  }
}

}  // namespace
}  // namespace sluice::core
