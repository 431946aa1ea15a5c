// SPDX-License-Identifier: Apache-2.0
// What routers are trained for beside the tokens' loss, against transformers and PyTorch. Tolerances are
// those of gradients_test.cpp.
#include <gtest/gtest.h>

#include "ops/experts.h"
#include "reference/fixture.h"

namespace sluice::core {
namespace {

constexpr double kZLoss = 0.02;  // of make_fixtures.py

struct Case {
  const char* name;
  StepShape shape;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}
StepShape replicas_of(StepShape shape) {
  shape.replicas = 2;
  return shape;
}

// Nothing of them is in the loss that is printed.
void expect_gradients(const Fixture& fixture, rig::Rig& run, const StepShape& shape, const char* prefix) {
  const Fixture dense("olmoe_tiny");
  const rig::Losses got = run.measure(dense.tokens("", shape.seq_len));
  EXPECT_NEAR(got.loss, dense.values<float>("loss")[0], 2e-6 * got.loss);
  for_each_tensor(fixture.config, run.training(), "d_", [&](const std::string& tensor, const auto& values) {
    const auto expected = fixture.values<float>(prefix + tensor);
    ASSERT_EQ(values.size(), expected.size()) << tensor;
    const Distance d = distance(values, expected);
    EXPECT_LT(d.relative, 2e-5) << tensor;
    EXPECT_LT(d.largest, 1e-4) << tensor;
  });
}

std::string name_of_case(const testing::TestParamInfo<Case>& test) {
  return test.param.name;
}

// A row of the batch is a round.
class BalanceOfRounds : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cuts, BalanceOfRounds,
                         testing::Values(Case{"one_chunk", {64, 64, 1, 2, 64}},
                                         Case{"four_chunks", {64, 16, 4, 2, 16}},
                                         Case{"replicas", replicas_of({64, 32, 2, 1, 64})}),
                         name_of_case);

TEST_P(BalanceOfRounds, IsInTheMeanOfTheirs) {
  const StepShape& shape = GetParam().shape;
  const Fixture fixture("olmoe_tiny", "routers.safetensors");
  const auto run = open_fixture(fixture, shape, {});
  expect_gradients(fixture, *run, shape, "rounds.grad.");
  // It is told from the balance of both rounds together.
  const Fixture together("olmoe_tiny");
  const std::string router = "model.layers.0.mlp.gate.weight";
  const Distance apart =
      distance(fixture.values<float>("rounds.grad." + router), together.values<float>("grad." + router));
  EXPECT_GT(apart.relative, 1e-2);
}

class ZLoss : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cuts, ZLoss,
                         testing::Values(Case{"one_chunk", {64, 128, 1, 1, 128}},
                                         Case{"eight_chunks", {64, 16, 8, 1, 16}}),
                         name_of_case);

TEST_P(ZLoss, MatchesPyTorch) {
  const StepShape& shape = GetParam().shape;
  Fixture fixture("olmoe_tiny", "routers.safetensors");
  fixture.config.router_z = kZLoss;
  const auto run = open_fixture(fixture, shape, {});
  expect_gradients(fixture, *run, shape, "z.grad.");
  // What is said of it.
  const auto expected = fixture.values<float>("z");
  for (size_t l = 0; l < expected.size(); ++l) {
    const ObjectId object = run->model().router_load[l];
    std::vector<double> sums(size_t(run->training().program().object(object).elements()));
    rig::must(run->training().read(object, std::as_writable_bytes(std::span(sums))));
    const LoadLayout layout{fixture.config.layers[l].experts()->count};
    EXPECT_NEAR(sums[size_t(layout.z())] / double(shape.tokens()), expected[l], 1e-5 * expected[l]) << l;
  }
}

}  // namespace
}  // namespace sluice::core
