// SPDX-License-Identifier: Apache-2.0
// Logits and ten steps of every optimizer against PyTorch.
#include <gtest/gtest.h>

#include "checkpoint/embedding_rows.h"
#include "reference/fixture.h"

namespace sluice::core {
namespace {

// A forward pass is half the chain of gradients_test.cpp, so half its tolerance.
class LogitsOf : public testing::TestWithParam<const char*> {};

TEST_P(LogitsOf, MatchPyTorch) {
  const Fixture fixture(GetParam());
  constexpr int64_t kWindow = 64;
  const BuiltProgram model = build_generation(fixture.config, {1, kWindow, kWindow}, {});
  auto backend = rig::small_backend();
  const Plan plan = rig::must(make_plan(model.program, rig::profile_of(*backend), {}));
  const Arenas arenas = rig::must(backend->reserve(plan.arena_bytes()));
  rig::must(backend->prepare(all_ops(model.program)));
  Executor executor(model.program, plan, *backend, arenas);
  rig::must(initialize(model, 1, executor, [](int64_t, int64_t) {}));
  rig::must(load_weights(model, fixture.dir, executor));

  EmbeddingRows embedding = rig::must(EmbeddingRows::open(fixture.config, DType::F32, fixture.dir));
  std::vector<std::byte> embedded;
  const rig::Tokens tokens = fixture.tokens("", kWindow);
  const std::vector<float> expected = fixture.values<float>("logits");
  const auto vocab = long(fixture.config.vocab);
  for (int64_t sequence = 0; sequence < 2; ++sequence) {
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + sequence * kWindow, all.begin() + (sequence + 1) * kWindow);
    };
    rig::write_tokens(executor, model, {part(tokens.tokens), part(tokens.targets), part(tokens.positions)});
    rig::must(embedding.read(part(tokens.tokens), embedded));
    rig::must(executor.write(model.embedded, embedded));
    for (int32_t row = 0; row < kWindow; ++row) {
      const int32_t spans[] = {0, row + 1};
      rig::must(executor.write(model.spans, std::as_bytes(std::span(spans))));
      rig::must(executor.step());
      const auto first = expected.begin() + (sequence * kWindow + row) * vocab;
      const Distance d = distance(rig::read_floats(executor, model.logits), {first, first + vocab});
      EXPECT_LT(d.relative, 1e-5) << "sequence " << sequence << " row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, LogitsOf,
    testing::Values("llama_tiny", "llama_tiny_biases", "qwen3_tiny", "llama_tiny_dynamic", "llama_tiny_gelu",
                    "mistral_tiny", "mistral_tiny_yarn", "qwen2_tiny_window", "smollm3_tiny", "olmo2_tiny",
                    "olmo3_tiny", "granite_tiny", "gemma_tiny", "gemma3_tiny", "olmo_tiny", "starcoder2_tiny",
                    "phi3_tiny", "phi3_tiny_long", "phi3_tiny_partial", "glm4_tiny", "cohere2_tiny",
                    "gpt_neox_tiny", "gpt_neox_tiny_serial", "gpt2_tiny", "cohere2_tiny_biases", "lfm2_tiny",
                    "gemma2_tiny", "ministral3_tiny", "glm4_tiny_yarn", "qwen3_5_tiny", "gemma4_unified_tiny",
                    "gemma4_tiny"),
    [](const auto& test) { return std::string(test.param); });

constexpr float kLearningRate = 1e-2f;  // of the fixtures and of rig::args_for

enum class Updates { AtTheEnd, Deferred, Late };

// Ten steps of a fixture: constant learning rate, decay on matrices only, clipping to 1.
struct Steps {
  const char* name;
  const char* fixture;
  const char* file;   // of the fixture
  const char* steps;  // prefix of losses and norms
  const char* final;  // prefix of the weights at the end
  Updates updates;
  const char* optimizer = "adamw";
  std::vector<std::pair<std::string_view, float>> values{
      {"beta1", 0.9f}, {"beta2", 0.95f}, {"eps", 1e-8f}, {"weight_decay", 0.1f}};
  bool by_sign = false;
  float learning_rate = kLearningRate;
};
void PrintTo(const Steps& s, std::ostream* out) {
  *out << s.name;
}

constexpr const char* kExpected = "expected.safetensors";
constexpr const char* kOptimizers = "optimizers.safetensors";

Steps sgd(const char* name, Updates updates, bool nesterov, const char* fixture = "llama_tiny") {
  return {name,
          fixture,
          kOptimizers,
          nesterov ? "sgd_nesterov" : "sgd",
          nesterov ? "sgd_nesterov.final." : "sgd.final.",
          updates,
          "sgd",
          {{"momentum", 0.9f}, {"weight_decay", 0.1f}, {"nesterov", nesterov ? 1.0f : 0.0f}}};
}
Steps lion(const char* name, Updates updates) {
  return {
      name,          "llama_tiny", kOptimizers, "lion",
      "lion.final.", updates,      "lion",      {{"beta1", 0.9f}, {"beta2", 0.99f}, {"weight_decay", 0.1f}},
      true};
}
Steps adafactor(const char* name, const char* fixture, Updates updates, float clip_threshold = 1,
                bool scaled = false, bool relative = false) {
  return {name,
          fixture,
          kOptimizers,
          relative ? "adafactor_relative"
          : scaled ? "adafactor_scaled"
                   : "adafactor",
          relative ? "adafactor_relative.final."
          : scaled ? "adafactor_scaled.final."
                   : "adafactor.final.",
          updates,
          "adafactor",
          {{"decay_rate", -0.8f},
           {"eps", 1e-30f},
           {"eps_scale", 1e-3f},
           {"clip_threshold", clip_threshold},
           {"weight_decay", 0.1f},
           {"scale_parameter", float(scaled)},
           {"relative_step", float(relative)},
           {"warmup_init", 0}},
          false,
          relative ? 1 : kLearningRate};
}

Steps muon(const char* name, const char* fixture, Updates updates, bool original = false) {
  return {name,
          fixture,
          kOptimizers,
          original ? "muon_original" : "muon",
          original ? "muon_original.final." : "muon.final.",
          updates,
          "muon",
          {{"momentum", original ? 0.9f : 0.95f},
           {"nesterov", original ? 0.0f : 1.0f},
           {"match_rms", original ? 0.0f : 1.0f},
           {"beta1", 0.9f},
           {"beta2", 0.95f},
           {"eps", 1e-8f},
           {"weight_decay", 0.1f}}};
}

const Steps kSteps[] = {
    {"at_the_end", "llama_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"deferred", "llama_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    {"late", "llama_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"biases", "llama_tiny_biases", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"biases_late", "llama_tiny_biases", kExpected, "adamw", "final.", Updates::Late},
    {"qwen2", "qwen2_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    {"qwen3", "qwen3_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"qwen3_late", "qwen3_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"dynamic", "llama_tiny_dynamic", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"mistral", "mistral_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"mistral_late", "mistral_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"mistral_yarn", "mistral_tiny_yarn", kExpected, "adamw", "final.", Updates::Deferred},
    {"mixtral", "mixtral_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"olmoe", "olmoe_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    {"qwen2_moe", "qwen2_moe_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"qwen3_moe", "qwen3_moe_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"lfm2_moe", "lfm2_moe_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"gpt_oss", "gpt_oss_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"qwen2_window", "qwen2_tiny_window", kExpected, "adamw", "final.", Updates::Deferred},
    {"qwen3_window", "qwen3_tiny_window", kExpected, "adamw", "final.", Updates::Late},
    {"smollm3", "smollm3_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"smollm3_late", "smollm3_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"olmo2", "olmo2_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    {"olmo3", "olmo3_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"olmo", "olmo_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"starcoder2", "starcoder2_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"phi3", "phi3_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    {"glm4", "glm4_tiny_plain", kExpected, "adamw", "final.", Updates::Deferred},
    {"cohere2", "cohere2_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"gpt_neox", "gpt_neox_tiny_serial", kExpected, "adamw", "final.", Updates::Late},
    {"granite", "granite_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"gemma", "gemma_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"gemma3", "gemma3_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"cohere2_biases", "cohere2_tiny_biases", kExpected, "adamw", "final.", Updates::AtTheEnd},
    // qwen3_5 is not among them: from its seventh step on rounding errors feed on each other beyond these
    // bounds.
    {"gemma4_unified", "gemma4_unified_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"gemma4", "gemma4_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"gemma4_moe", "gemma4_tiny_moe", kExpected, "adamw", "final.", Updates::Deferred},
    {"lfm2", "lfm2_tiny", kExpected, "adamw", "final.", Updates::Late},
    {"gemma2", "gemma2_tiny", kExpected, "adamw", "final.", Updates::AtTheEnd},
    {"ministral3", "ministral3_tiny", kExpected, "adamw", "final.", Updates::Deferred},
    // Biases of keys that are not rotated, of which AdamW makes steps: their gradient is rounding alone.
    sgd("gpt2", Updates::AtTheEnd, false, "gpt2_tiny"),
    sgd("glm4_biases", Updates::Deferred, false, "glm4_tiny"),
    sgd("gpt_neox_biases", Updates::Late, false, "gpt_neox_tiny"),
    sgd("sgd", Updates::AtTheEnd, false),
    sgd("sgd_deferred", Updates::Deferred, false),
    sgd("sgd_late", Updates::Late, false),
    sgd("sgd_nesterov", Updates::AtTheEnd, true),
    sgd("sgd_nesterov_deferred", Updates::Deferred, true),
    lion("lion", Updates::AtTheEnd),
    lion("lion_deferred", Updates::Deferred),
    lion("lion_late", Updates::Late),
    muon("muon", "qwen2_tiny", Updates::AtTheEnd),
    muon("muon_late", "qwen2_tiny", Updates::Late),
    muon("muon_original", "lfm2_tiny", Updates::Deferred, true),
    muon("muon_of_experts", "gpt_oss_tiny", Updates::AtTheEnd),
    muon("muon_of_parts", "phi3_tiny_partial", Updates::Late),
    adafactor("adafactor", "qwen2_tiny", Updates::AtTheEnd),
    adafactor("adafactor_late", "qwen2_tiny", Updates::Late),
    adafactor("adafactor_scaled", "lfm2_tiny", Updates::Deferred, 0.5f, true),
    adafactor("adafactor_relative", "lfm2_tiny", Updates::AtTheEnd, 1, true, true),
};

OptimizerConfig optimizer_of(const Steps& c) {
  OptimizerConfig out;
  out.optimizer = find_optimizer(c.optimizer);
  if (out.optimizer == nullptr) throw std::runtime_error("no optimizer " + std::string(c.optimizer));
  const auto& own = out.optimizer->hyperparameters;
  for (const Hyperparameter& h : own) {
    const auto it =
        std::find_if(c.values.begin(), c.values.end(), [&](const auto& v) { return v.first == h.name; });
    if (it == c.values.end()) throw std::runtime_error("no value for " + std::string(h.name));
    out.values.resize(own.size());
    out.values[size_t(&h - own.data())] = it->second;
  }
  out.deferred = c.updates != Updates::AtTheEnd;
  out.late_moments = c.updates == Updates::Late;
  return out;
}

class TenSteps : public testing::TestWithParam<Steps> {};

// AdamW divides a gradient by its own size, so an element whose gradient is nearly zero turns the gradient's
// rounding errors into an error of its update; ten such steps feed on each other. Most elements are not like
// that: errors stay within 2e-4 of the way the weights went, and losses and norms within ten times the error
// of one step. Where the way is short, as SGD's is, ten roundings of the weights themselves count as well, on
// both sides.
//
// Lion takes the sign of a mean of gradients. Where that is as small as its error, about 1e-6 of its size,
// the sign may turn, and the element is off by two learning rates: one element in ten thousand, with what its
// error does to others in the steps behind it. Elements that are off by half a learning rate are counted, and
// left out of the rest.
TEST_P(TenSteps, MatchPyTorch) {
  const Steps& c = GetParam();
  const Fixture fixture(c.fixture, c.file);
  const Fixture data(c.fixture);
  const StepShape shape{64, 64, 2, 1, 64};
  const auto run = open_fixture(fixture, shape, {}, optimizer_of(c));
  run->learning_rate = c.learning_rate;
  const rig::Tokens tokens = data.tokens("", shape.seq_len);
  const std::string steps = c.steps;
  const auto losses = fixture.values<float>(steps + "_losses"),
             norms = fixture.values<float>(steps + "_norms");
  std::map<std::string, std::vector<float>> start;
  for_each_tensor(fixture.config, run->training(), "",
                  [&](const std::string& tensor, auto values) { start[tensor] = std::move(values); });
  for (size_t i = 0; i < losses.size(); ++i) {
    const rig::Losses got = run->step(int64_t(i) + 1, tokens);
    EXPECT_NEAR(got.loss, losses[i], 2e-5 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(got.norm, norms[i], 2e-4 * norms[i]) << "step " << i + 1;
    EXPECT_NEAR(got.scale, std::min(1.0, 1 / (got.norm + 1e-6)), 1e-6) << "step " << i + 1;
  }
  run->flush(int64_t(losses.size()));
  size_t turned = 0, elements = 0;
  for_each_tensor(fixture.config, run->training(), "", [&](const std::string& tensor, auto values) {
    const auto expected = fixture.values<float>(c.final + tensor);
    ASSERT_EQ(values.size(), expected.size()) << tensor;
    const std::vector<float>& begun = start[tensor];
    for (size_t i = 0; c.by_sign && i < values.size(); ++i) {
      if (std::abs(values[i] - expected[i]) < 0.5f * kLearningRate) continue;
      values[i] = expected[i];
      ++turned;
    }
    elements += values.size();
    const double rounding = 2 * 10 * 0x1p-24 * length(expected);
    EXPECT_LT(length(values, expected), 2e-4 * length(expected, begun) + rounding) << tensor;
  });
  EXPECT_LE(turned, elements / 10000);
}

INSTANTIATE_TEST_SUITE_P(Updates, TenSteps, testing::ValuesIn(kSteps),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::core
