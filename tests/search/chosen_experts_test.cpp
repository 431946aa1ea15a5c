// SPDX-License-Identifier: Apache-2.0
// Plans of passes whose routers choose what is loaded.
#include <gtest/gtest.h>

#include <algorithm>

#include "lowering/build.h"
#include "ops/op.h"
#include "search/builder.h"
#include "search/planner.h"
#include "search/test_machine.h"

namespace sluice::core {
namespace {

constexpr int64_t kExperts = 32, kTopK = 2;

Program decoding(int64_t rows) {
  ModelSpec spec = model_of({64, 3, 4, 2, 16, 64, 128});
  for (LayerSpec& layer : spec.layers)
    layer.feed_forward = Experts{.each = layer.mlp(), .count = kExperts, .top_k = kTopK, .group = 8};
  return build_generation(spec, {rows, 1, 64}, {}).program;
}

PlanRequest under(double share, const Program& program, ExpertLoads experts) {
  PlanRequest request;
  request.caps[kDevice] = int64_t(share * double(persistent_bytes(program)));
  request.experts = experts;
  request.quick = true;
  return request;
}

int64_t chosen_loads(const Plan& plan) {
  return std::ranges::count_if(plan.actions, [](const Action& a) { return a.chooses(); });
}

Result<Plan> planned(int64_t rows, ExpertLoads experts, double share = 0.6, double bytes_per_s = 1e9) {
  const Program program = decoding(rows);
  return make_plan(program, test_machine(bytes_per_s), under(share, program, experts));
}

// A token chooses a sixteenth of all experts; where so many tokens choose that hardly any is left out, to
// wait for routers is worth nothing.
TEST(ChosenExperts, AreLoadedWhereThatIsFasterAsPredicted) {
  for (const int64_t rows : {1, 4, 16, 64, 512}) {
    const auto whole = planned(rows, ExpertLoads::Whole), chosen = planned(rows, ExpertLoads::Chosen),
               faster = planned(rows, ExpertLoads::Faster);
    ASSERT_TRUE(whole.ok() && chosen.ok() && faster.ok());
    EXPECT_EQ(chosen_loads(*whole), 0);
    EXPECT_GT(chosen_loads(*chosen), 0);
    EXPECT_EQ(faster->makespan_ns, std::min(whole->makespan_ns, chosen->makespan_ns)) << rows;
    EXPECT_LE(faster->lower_bound_ns, faster->makespan_ns * (1 + 1e-9));
    if (rows == 1) {
      EXPECT_GT(chosen_loads(*faster), 0);
      EXPECT_LT(faster->makespan_ns, 0.5 * whole->makespan_ns);
    }
    if (rows == 512) {
      EXPECT_EQ(chosen_loads(*faster), 0);
    }
  }
}

TEST(ChosenExperts, StayWhereThereIsRoom) {
  const auto plan = planned(1, ExpertLoads::Faster, 4);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(chosen_loads(*plan), 0);
}

// No load of a layer's experts is submitted, or predicted to begin, before that layer's routing is made; and
// what is submitted behind it does not begin before it, as who submits waits for the routing.
TEST(ChosenExperts, AreLoadedBehindTheirRouter) {
  const Program program = decoding(2);
  const auto plan = make_plan(program, test_machine(1e9), under(0.5, program, ExpertLoads::Chosen));
  ASSERT_TRUE(plan.ok()) << plan.message();
  std::vector<double> sorted_ns(3, -1);
  double told_ns = 0;
  for (const Action& a : plan->actions) {
    EXPECT_GE(a.start_ns, told_ns);
    if (a.chooses()) {
      const int32_t layer = program.object(a.object).layer;
      ASSERT_GE(sorted_ns[size_t(layer)], 0) << describe(program, a);
      EXPECT_GE(a.start_ns, sorted_ns[size_t(layer)]);
      told_ns = std::max(told_ns, sorted_ns[size_t(layer)]);
    } else if (a.kind == ActionKind::Run && program.task(a.task).name.starts_with("sort")) {
      sorted_ns[size_t(program.task(a.task).layer)] = a.end_ns;
    }
  }
  EXPECT_GT(chosen_loads(*plan), 0);
  EXPECT_NE(describe(program, *plan).find("of the loads wait for a layer's router"), std::string::npos);
}

TEST(ChosenExperts, NoPlanIsFasterThanTheBound) {
  const Program program = decoding(2);
  int plans = 0;
  for (const double rate : {1e8, 1e9, 1e10}) {
    for (const double share : {0.3, 0.6, 0.9}) {
      const PlanRequest request = under(share, program, ExpertLoads::Chosen);
      const Profile machine = test_machine(rate);
      const double bound_ns = PlanBuilder(program, machine, request).lower_bound_ns();
      for (uint64_t seed = 0; seed < 10; ++seed) {
        const auto plan = random_plan(program, machine, request, seed);
        if (!plan) continue;
        ++plans;
        EXPECT_LE(bound_ns, plan->makespan_ns * (1 + 1e-9)) << rate << " bytes/s, " << share;
      }
    }
  }
  EXPECT_GT(plans, 30);
}

}  // namespace
}  // namespace sluice::core
