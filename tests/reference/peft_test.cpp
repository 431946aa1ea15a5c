// SPDX-License-Identifier: Apache-2.0
// Adapters against PEFT on transformers: what it saved is loaded, and gives the same logits, the same
// gradients and the same twenty steps; what is exported is what it saved, and merged it gives the same
// logits. With magnitudes (DoRA), too. Families with joint and with turned tensors, convolutions, windows and
// soft caps, experts, a tied head, gates beside queries, tables of all layers, and rows of tokens.
#include <gtest/gtest.h>

#include "checkpoint/embedding_rows.h"
#include "checkpoint/export.h"
#include "io/elements.h"
#include "model/families/adapter_config.h"
#include "reference/fixture.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

class Peft : public testing::TestWithParam<const char*> {
 protected:
  Peft() {
    const AdapterConfig read =
        rig::must(parse_adapter_config(rig::must(read_file(adapter() / "adapter_config.json"))));
    rig::must(adapt(fixture_.config, read.adapters, "adapter"));
  }
  static std::string model() { return fs::path(GetParam()).parent_path().string(); }
  static fs::path base() { return fs::path(SLUICE_FIXTURES) / model(); }
  static fs::path adapter() { return fs::path(SLUICE_FIXTURES) / GetParam(); }
  static rig::Tokens tokens() { return Fixture(model()).tokens("", 64); }

  std::unique_ptr<rig::Rig> open(const StepShape& shape, const OptimizerConfig& optimizer) const {
    Question request;
    request.model = fixture_.config;
    request.shape = shape;
    request.optimizer = optimizer;
    auto run = std::make_unique<rig::Rig>(request);
    run->initialize();
    rig::must(load_model(run->model(), {base(), adapter()}, run->training()));
    return run;
  }
  // After the last tokens of the first row, for as many as the fixture has.
  static std::vector<float> logits_of(const ModelSpec& spec, const WeightsFrom& from,
                                      const rig::Tokens& tokens, int32_t rows) {
    constexpr int32_t kWindow = 64;
    const BuiltProgram model = build_generation(spec, {1, kWindow, kWindow}, {});
    auto backend = rig::small_backend();
    const Plan plan = rig::must(make_plan(model.program, rig::profile_of(*backend), {}));
    const Arenas arenas = rig::must(backend->reserve(plan.arena_bytes()));
    rig::must(backend->prepare(all_ops(model.program)));
    Executor executor(model.program, plan, *backend, arenas);
    rig::must(initialize(model, 1, executor, [](int64_t, int64_t) {}));
    rig::must(load_model(model, from, executor));
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin(), all.begin() + kWindow);
    };
    rig::write_tokens(executor, model, {part(tokens.tokens), part(tokens.targets), part(tokens.positions)});
    EmbeddingRows embedding = rig::must(EmbeddingRows::open(spec, DType::F32, from));
    std::vector<std::byte> embedded;
    rig::must(embedding.read(part(tokens.tokens), embedded));
    rig::must(executor.write(model.embedded, embedded));
    std::vector<float> out;
    for (int32_t row = kWindow - rows; row < kWindow; ++row) {
      const int32_t spans[] = {0, row + 1};
      rig::must(executor.write(model.spans, std::as_bytes(std::span(spans))));
      rig::must(executor.step());
      const std::vector<float> logits = rig::read_floats(executor, model.logits);
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
  }
  std::vector<float> logits_of(const ModelSpec& spec, const WeightsFrom& from) const {
    return logits_of(spec, from, tokens(),
                     int32_t(fixture_.values<float>("logits").size()) / int32_t(spec.vocab));
  }

  Fixture fixture_{model(), (fs::path(GetParam()).filename() / "expected.safetensors").string()};
};

// Tolerances are those of gradients_test.cpp: an adapter makes the chain of a product longer by two.
TEST_P(Peft, HasTheSameGradients) {
  for (const StepShape& shape : {StepShape{64, 128, 1, 1, 128}, StepShape{64, 16, 8, 1, 16}}) {
    const auto run = open(shape, deferred_updates());
    const rig::Losses got = run->measure(tokens());
    EXPECT_NEAR(got.loss, fixture_.values<float>("loss")[0], 2e-6 * got.loss);
    size_t tensors = 0;
    for_each_tensor(fixture_.config, run->training(), "d_", [&](const std::string& tensor, auto values) {
      const auto expected = fixture_.values<float>("grad." + tensor);
      ASSERT_EQ(values.size(), expected.size()) << tensor;
      const Distance d = distance(values, expected);
      EXPECT_LT(d.relative, 2e-5) << tensor;
      EXPECT_LT(d.largest, 1e-4) << tensor;
      ++tensors;
    });
    EXPECT_EQ(tensors, rig::must(TensorFiles::open(adapter())).names().size());
  }
}

// As TenSteps of steps_test.cpp has it.
TEST_P(Peft, MakesTheSameTwentySteps) {
  OptimizerConfig optimizer = deferred_updates();
  optimizer.values = OptimizerConfig::defaults_of(*optimizer.optimizer);
  for (size_t i = 0; i < optimizer.values.size(); ++i) {
    if (optimizer.optimizer->hyperparameters[i].name == "weight_decay") optimizer.values[i] = 0;
  }
  const auto run = open({64, 64, 2, 1, 64}, optimizer);
  const std::vector<float> losses = fixture_.values<float>("losses");
  std::map<std::string, std::vector<float>> start;
  for_each_tensor(fixture_.config, run->training(), "",
                  [&](const std::string& tensor, auto values) { start[tensor] = std::move(values); });
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(run->step(int64_t(i) + 1, tokens()).loss, losses[i], 2e-5 * losses[i]) << "step " << i + 1;
  run->flush(int64_t(losses.size()));
  for_each_tensor(fixture_.config, run->training(), "", [&](const std::string& tensor, auto values) {
    const auto expected = fixture_.values<float>("final." + tensor);
    const double rounding = 2 * double(losses.size()) * 0x1p-24 * length(expected);
    EXPECT_LT(length(values, expected), 4e-4 * length(expected, start[tensor]) + rounding) << tensor;
  });
}

TEST_P(Peft, HasTheSameLogits) {
  const std::vector<float> expected = fixture_.values<float>("logits");
  const Distance beside = distance(logits_of(fixture_.config, {base(), adapter()}), expected);
  EXPECT_LT(beside.relative, 1e-5);
  const TempDir dir;
  ExportOptions options;
  options.base = base();
  options.merged = true;
  options.type = TensorType::F32;
  const auto progress = [](std::string_view, int64_t, int64_t) { return Status(); };
  const Exported merged = rig::must(export_model(adapter(), dir / "merged", options, progress));
  ASSERT_TRUE(merged.merge);
  EXPECT_EQ(merged.merge->lost, 0);
  EXPECT_LT(merged.merge->median, 1e-5);
  const ModelSpec whole = rig::must(parse_model_config(rig::must(read_file(dir / "merged/config.json"))));
  EXPECT_LT(distance(logits_of(whole, dir / "merged"), expected).relative, 1e-5);
}

TEST_P(Peft, IsWrittenAsItIsRead) {
  const TempDir dir;
  ExportOptions options;
  options.base = base();
  const auto progress = [](std::string_view, int64_t, int64_t) { return Status(); };
  (void)rig::must(export_model(adapter(), dir / "out", options, progress));
  const TensorFiles theirs = rig::must(TensorFiles::open(adapter())),
                    ours = rig::must(TensorFiles::open(dir / "out"));
  ASSERT_EQ(ours.names(), theirs.names());
  for (const std::string_view name : ours.names()) {
    const SafeTensor &a = *ours.find(name), &b = *theirs.find(name);
    EXPECT_EQ(a.info.shape, b.info.shape) << name;
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << name;
  }
  const std::string text = rig::must(read_file(dir / "out/adapter_config.json"));
  ModelSpec again = Fixture(model()).config;
  rig::must(adapt(again, rig::must(parse_adapter_config(text)).adapters, "adapter"));
  const std::vector<Weight> weights = weights_of(fixture_.config), read = weights_of(again);
  ASSERT_EQ(weights.size(), read.size()) << text;
  for (size_t w = 0; w < weights.size(); ++w) {
    EXPECT_EQ(weights[w].elements(), read[w].elements()) << weights[w].object;
    EXPECT_EQ(weights[w].adds ? weights[w].adds->scale : 0, read[w].adds ? read[w].adds->scale : 0);
  }
}

// By folders: of a model, then of an adapter.
INSTANTIATE_TEST_SUITE_P(Models, Peft,
                         testing::Values("llama_tiny/adapter", "llama_tiny_tied/adapter",
                                         "gemma2_tiny/adapter", "lfm2_tiny/adapter", "phi3_tiny/adapter",
                                         "gpt2_tiny/adapter", "gpt_neox_tiny/adapter", "olmoe_tiny/adapter",
                                         "qwen3_tiny/adapter", "qwen3_tiny_tied/adapter",
                                         "qwen3_5_tiny/adapter", "gemma4_tiny/adapter", "llama_tiny/dora",
                                         "gemma2_tiny/dora", "phi3_tiny/dora", "gpt2_tiny/dora",
                                         "olmoe_tiny/dora"),
                         [](const auto& test) {
                           const fs::path folder = test.param;
                           const std::string model = folder.parent_path().string();
                           return folder.filename() == "dora" ? model + "_dora" : model;
                         });

}  // namespace
}  // namespace sluice::core
