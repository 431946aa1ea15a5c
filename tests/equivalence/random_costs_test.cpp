// SPDX-License-Identifier: Apache-2.0
// Plans are proved valid whatever the machine's op times and link rates are: measured costs must not decide
// whether planning works.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "equivalence/small_runs.h"

namespace sluice::core {
namespace {

class RandomCosts : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomCosts, GiveAPlan) {
  const auto backend = rig::small_backend();
  const BuiltProgram model =
      build_training(model_of({32, 2, 4, 2, 8, 48, 256}), {16, 64, 1, 1, 64, true}, {}, {});
  std::mt19937_64 random(GetParam());
  const auto uniform = [&] { return double(random() % 1000) / 1000; };
  Profile profile = rig::profile_of(*backend);
  profile.set_bytes_per_s(kHost, kDevice, 1e9 * std::pow(100, uniform()));
  profile.set_bytes_per_s(kDevice, kHost, 1e9 * std::pow(100, uniform()));
  profile.transfer_latency_ns = 100 + 4000 * uniform();
  for (const Op& op : distinct_ops(model.program))
    profile.measured_ns[cost_key(op)] = 500 * std::pow(100, uniform());
  PlanRequest request;
  request.caps[kDevice] = (150 + int64_t(random() % 300)) << 10;
  request.boundary_bytes[kDevice] = 60000;
  const auto plan = make_plan(model.program, profile, request);  // proves what it returns
  EXPECT_TRUE(plan.ok()) << plan.message();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomCosts, testing::Values(1, 4, 11, 12, 40, 116));

}  // namespace
}  // namespace sluice::core
