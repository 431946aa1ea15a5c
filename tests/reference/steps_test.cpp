// Logits and ten AdamW steps against PyTorch.
#include <gtest/gtest.h>

#include "reference/fixture.h"

namespace sluice {
namespace {

// A forward pass is half the chain of gradients_test.cpp, so half its tolerance.
TEST(Logits, MatchPyTorch) {
  const Fixture fixture("llama_tiny");
  constexpr int64_t kWindow = 64;
  const Model model = build_sampling(fixture.config, kWindow, {});
  auto backend = rig::small_backend();
  const Plan plan = rig::must(make_plan(model.program, rig::profile_of(*backend), {}));
  const Arenas arenas = rig::must(backend->reserve(plan.device_bytes, plan.host_bytes));
  rig::must(backend->prepare(distinct_ops(model.program)));
  Executor executor(model.program, plan, *backend, arenas);
  rig::must(initialize(fixture.config, model, 1, executor, [](int64_t, int64_t) {}));
  rig::must(load_weights(fixture.config, model, fixture.dir, executor));

  const rig::Tokens tokens = fixture.tokens("", kWindow);
  const std::vector<float> expected = fixture.values<float>("logits");
  const auto vocab = long(fixture.config.vocab);
  for (int64_t sequence = 0; sequence < 2; ++sequence) {
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + sequence * kWindow, all.begin() + (sequence + 1) * kWindow);
    };
    rig::write_tokens(executor, model, {kWindow, kWindow, 1, 1, 1},
                      {part(tokens.tokens), part(tokens.targets), part(tokens.positions)});
    for (int32_t row = 0; row < kWindow; ++row) {
      StepArgs args{};
      args.row = row;
      rig::write_args(executor, model, args);
      rig::must(executor.step());
      const auto first = expected.begin() + (sequence * kWindow + row) * vocab;
      const Distance d = distance(rig::read_floats(executor, model.logits), {first, first + vocab});
      EXPECT_LT(d.relative, 1e-5) << "sequence " << sequence << " row " << row;
    }
  }
}

// The steps of the fixture: constant learning rate, decay on matrices only, clipping to 1.
class TenSteps : public testing::TestWithParam<bool> {};

// AdamW divides a gradient by its own size, so an element whose gradient is nearly zero turns the gradient's
// rounding errors into an error of its update; ten such steps feed on each other. Most elements are not like
// that: errors stay within 2e-4 of the way the weights went, and losses and norms within ten times the error
// of one step.
TEST_P(TenSteps, MatchPyTorch) {
  const Fixture fixture("llama_tiny");
  const StepShape shape{64, 64, 2, 1, 64};
  const auto run = open_fixture(fixture, shape, {}, GetParam());
  const rig::Tokens tokens = fixture.tokens("", shape.seq_len);
  const auto losses = fixture.values<float>("adamw_losses"), norms = fixture.values<float>("adamw_norms");
  const TensorFiles start = rig::must(TensorFiles::open(fixture.dir));
  for (size_t i = 0; i < losses.size(); ++i) {
    const rig::Losses got = run->step(int64_t(i) + 1, tokens);
    EXPECT_NEAR(got.loss, losses[i], 2e-5 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(got.norm, norms[i], 2e-4 * norms[i]) << "step " << i + 1;
    EXPECT_NEAR(got.scale, 1 / (got.norm + 1e-6), 1e-6) << "step " << i + 1;
  }
  run->flush(int64_t(losses.size()));
  for_each_tensor(fixture.config, run->training(), "",
                  [&](const std::string& tensor, std::vector<float> values) {
                    std::vector<float> expected = fixture.values<float>("final." + tensor);
                    std::vector<float> begun(expected.size());
                    std::memcpy(begun.data(), rig::must(start.get(tensor))->bytes.data(), 4 * begun.size());
                    for (size_t i = 0; i < begun.size(); ++i) values[i] -= begun[i], expected[i] -= begun[i];
                    EXPECT_LT(distance(values, expected).relative, 2e-4) << tensor;
                  });
}

INSTANTIATE_TEST_SUITE_P(Updates, TenSteps, testing::Bool(),
                         [](const auto& test) { return test.param ? "deferred" : "at_the_end"; });

}  // namespace
}  // namespace sluice
