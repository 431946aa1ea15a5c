// SPDX-License-Identifier: Apache-2.0
// A mixture of experts computes the same under every plan, on any number of devices and threads, however its
// routers choose.
#include <gtest/gtest.h>

#include "backend/testing/delaying_backend.h"
#include "equivalence/many_plans.h"
#include "ops/experts.h"

namespace sluice::core {
namespace {

// Experts in groups, with both losses of routers, and one that every token has.
Question mixture(const Numerics& numerics, Updates updates) {
  Question request = small_request(kShape, numerics, updates);
  request.model = model_of({32, 4, 4, 2, 8, 24, 61});
  request.model.router_balance = 0.3;
  request.model.router_z = 0.01;
  for (LayerSpec& layer : request.model.layers)
    layer.feed_forward = Experts{
        .each = layer.mlp(), .count = 6, .top_k = 2, .score = RouterScore::Chosen, .shared = 16, .group = 2};
  // And a layer without.
  request.model.layers[2].feed_forward = Mlp(request.model.layers[2].mlp());
  return request;
}

struct Loads {
  const char* name;
  bool equal_tokens;  // all of a step, so that a layer's first choice is one expert
};

class Experts : public testing::TestWithParam<std::tuple<int, Loads, NamedNumerics>> {};

TEST_P(Experts, ComputeTheSameUnderEveryPlan) {
  const auto& [devices, loads, numerics] = GetParam();
  const Question request = mixture(numerics.numerics, Updates::Deferred);
  ManyPlans one(request, rig::small_backend());
  ManyPlans runs(request,
                 devices == 1 ? rig::small_backend() : rig::small_devices(devices, devices % 2 == 0));
  ASSERT_EQ(runs.program().hash(), one.program().hash());
  if (loads.equal_tokens) {
    for (ManyPlans* some : {&one, &runs}) std::ranges::fill(some->tokens().tokens, 7);
  }
  const rig::History expected = one.run(rig::must(make_plan(one.program(), one.profile(), {})));
  PlanRequest tight;
  tight.caps = runs.room();
  tight.quick = tight.least = true;
  expect_same(runs.run(rig::must(make_plan(runs.program(), runs.profile(), tight))), expected);
  const uint64_t seeds = random_cases(16);
  uint64_t tried = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PlanRequest any;
    any.caps = runs.room();
    any.placement = random_placement(runs.program(), size_t(devices), seed);
    const std::optional<Plan> plan = random_plan(runs.program(), runs.profile(), any, seed);
    if (!plan || !runs.fits(*plan)) continue;
    const Status valid = runs.check(*plan);
    ASSERT_TRUE(valid.ok()) << valid.message();
    DelayingBackend delayed(runs.backend(), {.seed = seed, .window = size_t{1} << (seed % 9)});
    expect_same(runs.run(*plan, delayed), expected);
    ++tried;
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, seeds / 2);
}

// Rounding that depends on where an element is; all where SLUICE_SWEEP is set.
std::vector<NamedNumerics> numerics() {
  std::vector<NamedNumerics> out = numerics_under_test();
  if (std::getenv("SLUICE_SWEEP") == nullptr) out.erase(out.begin(), out.end() - 1);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Experts,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Loads{"balanced", false}, Loads{"skewed", true}),
                                          testing::ValuesIn(numerics())),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param).name + "_" + std::get<2>(test.param).name;
                         });

// Both losses of routers are in what is learnt.
TEST(RouterLosses, AreLearnt) {
  const auto losses = [](double balance, double z) {
    Question request = mixture({}, Updates::AtTheEnd);
    request.model.router_balance = balance;
    request.model.router_z = z;
    ManyPlans runs(request, rig::small_backend());
    return runs.run(rig::must(make_plan(runs.program(), runs.profile(), {}))).norms;
  };
  const auto plain = losses(0, 0);
  EXPECT_NE(losses(0.3, 0), plain);
  EXPECT_NE(losses(0, 0.01), plain);
}

}  // namespace
}  // namespace sluice::core
