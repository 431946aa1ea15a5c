// SPDX-License-Identifier: Apache-2.0
// The lower bound of training steps of several rounds: no plan is below it, and traffic counts.
#include "search/lower_bound.h"

#include <gtest/gtest.h>

#include <numeric>

#include "search/builder.h"
#include "search/test_machine.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

constexpr int64_t kChunk = 128;

Program step_of(int64_t rounds, int64_t first, int64_t layers = 2) {
  OptimizerConfig optimizer;
  optimizer.deferred = true;
  StepShape shape{kChunk, kChunk, 1, 1, kChunk};
  spread(shape, first + rounds - 1, rounds, first);
  const ModelSpec model = model_of({64, layers, 4, 2, 16, 128, 512});
  return subject_of(model, {}, optimizer).program(shape, false);
}

TEST(LowerBound, NoPlanOfAStepOfRoundsIsBelowIt) {
  int plans = 0, above_compute = 0;
  for (const auto& [rounds, first] : {std::pair(1, 3), {3, 1}, {4, 2}}) {
    const Program program = step_of(rounds, first, 1);
    const int64_t state = persistent_bytes(program);
    for (const double rate : {1e8, 1e9, 1e10}) {
      const Profile machine = test_machine(rate);
      const std::vector<double> ns = cost_of(program, machine).ns;
      const double once_ns = std::accumulate(ns.begin(), ns.end(), 0.0);
      for (const double device : {0.3, 0.6, 1.0}) {
        for (const double host : {0.7, 1.0, 4.0}) {
          PlanRequest request;
          request.quick = true;
          request.explain = false;
          request.caps[kDevice] = int64_t(device * double(state));
          request.caps[kHost] = int64_t(host * double(state));
          const double bound_ns = PlanBuilder(program, machine, request).lower_bound_ns();
          EXPECT_GE(bound_ns, once_ns * (1 - 1e-9));
          above_compute += bound_ns > 1.01 * once_ns;
          const auto check = [&](const Plan& plan) {
            ++plans;
            EXPECT_LE(bound_ns, plan.makespan_ns * (1 + 1e-9))
                << rounds << " rounds, " << rate << " bytes/s, caps of " << device << " and " << host;
          };
          if (const auto plan = make_plan(program, machine, request); plan.ok()) check(*plan);
          for (uint64_t seed = 1; seed <= 6; ++seed) {
            if (const auto plan = random_plan(program, machine, request, seed)) check(*plan);
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 100);
  EXPECT_GT(above_compute, 20);
}

// Weights are used in both passes of every round, gradients in the backward pass: with a device that holds
// little, and links that do nothing else, a step takes at least as long as they take to come.
TEST(LowerBound, WeightsAndGradientsThatCannotStayTravelInEveryRound) {
  const Program program = step_of(4, 1);
  int64_t weights = 0, gradients = 0;
  for (const Object& o : program.objects()) {
    if (o.kind == ObjectKind::Param) weights += o.bytes;
    if (o.kind == ObjectKind::Grad) gradients += o.bytes;
  }
  const Profile machine = test_machine(1e6);
  PlanRequest request;
  request.caps[kDevice] = weights / 2;
  const double bound_ns = PlanBuilder(program, machine, request).lower_bound_ns();
  // Of a stretch's bytes the device has at most its own: in each forward pass half the weights come, in each
  // backward pass but the first, which overwrites them, the gradients as well.
  const double device = double(request.caps[kDevice]);
  const double loads = 4 * (double(weights) - device) + 3 * (double(weights + gradients) - device);
  EXPECT_GE(bound_ns, machine.load_ns(int64_t(loads)));
}

}  // namespace
}  // namespace sluice::core
