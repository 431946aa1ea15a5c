// Logits and ten steps of every optimizer against PyTorch.
#include <gtest/gtest.h>

#include "reference/fixture.h"

namespace sluice {
namespace {

// A forward pass is half the chain of gradients_test.cpp, so half its tolerance.
class LogitsOf : public testing::TestWithParam<const char*> {};

TEST_P(LogitsOf, MatchPyTorch) {
  const Fixture fixture(GetParam());
  constexpr int64_t kWindow = 64;
  const Model model = build_sampling(fixture.config, kWindow, {});
  auto backend = rig::small_backend();
  const Plan plan = rig::must(make_plan(model.program, rig::profile_of(*backend), {}));
  const Arenas arenas = rig::must(backend->reserve(plan.arena_bytes()));
  rig::must(backend->prepare(distinct_ops(model.program)));
  Executor executor(model.program, plan, *backend, arenas);
  rig::must(initialize(model, 1, executor, [](int64_t, int64_t) {}));
  rig::must(load_weights(model, fixture.dir, executor));

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

INSTANTIATE_TEST_SUITE_P(Models, LogitsOf, testing::Values("llama_tiny"),
                         [](const auto& test) { return std::string(test.param); });

// Ten steps of a fixture: constant learning rate, decay on matrices only, clipping to 1.
struct Steps {
  const char* name;
  const char* fixture;
  const char* file;   // of the fixture
  const char* steps;  // prefix of losses and norms
  const char* final;  // prefix of the weights at the end
  bool deferred;
};
void PrintTo(const Steps& s, std::ostream* out) {
  *out << s.name;
}

const Steps kSteps[] = {
    {"at_the_end", "llama_tiny", "expected.safetensors", "adamw", "final.", false},
    {"deferred", "llama_tiny", "expected.safetensors", "adamw", "final.", true},
};

class TenSteps : public testing::TestWithParam<Steps> {};

// AdamW divides a gradient by its own size, so an element whose gradient is nearly zero turns the gradient's
// rounding errors into an error of its update; ten such steps feed on each other. Most elements are not like
// that: errors stay within 2e-4 of the way the weights went, and losses and norms within ten times the error
// of one step. Where the way is short, as SGD's is, ten roundings of the weights themselves count as well, on
// both sides.
TEST_P(TenSteps, MatchPyTorch) {
  const Steps& c = GetParam();
  const Fixture fixture(c.fixture, c.file);
  const Fixture data(c.fixture);
  const StepShape shape{64, 64, 2, 1, 64};
  OptimizerConfig optimizer;
  optimizer.deferred = c.deferred;
  const auto run = open_fixture(fixture, shape, {}, optimizer);
  const rig::Tokens tokens = data.tokens("", shape.seq_len);
  const std::string steps = c.steps;
  const auto losses = fixture.values<float>(steps + "_losses"),
             norms = fixture.values<float>(steps + "_norms");
  const TensorFiles start = rig::must(TensorFiles::open(fixture.dir));
  for (size_t i = 0; i < losses.size(); ++i) {
    const rig::Losses got = run->step(int64_t(i) + 1, tokens);
    EXPECT_NEAR(got.loss, losses[i], 2e-5 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(got.norm, norms[i], 2e-4 * norms[i]) << "step " << i + 1;
    EXPECT_NEAR(got.scale, 1 / (got.norm + 1e-6), 1e-6) << "step " << i + 1;
  }
  run->flush(int64_t(losses.size()));
  for_each_tensor(fixture.config, run->training(), "", [&](const std::string& tensor, const auto& values) {
    const auto expected = fixture.values<float>(c.final + tensor);
    std::vector<float> begun(expected.size());
    std::memcpy(begun.data(), rig::must(start.get(tensor))->bytes.data(), 4 * begun.size());
    const double rounding = 2 * 10 * 0x1p-24 * length(expected);
    EXPECT_LT(length(values, expected), 2e-4 * length(expected, begun) + rounding) << tensor;
  });
}

INSTANTIATE_TEST_SUITE_P(Updates, TenSteps, testing::ValuesIn(kSteps),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice
