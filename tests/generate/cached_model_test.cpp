// SPDX-License-Identifier: Apache-2.0
// Whole models with a cache: against transformers' texts, against the forward pass without a cache, and under
// caps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/embedding_rows.h"
#include "checkpoint/weights.h"
#include "config/files/load_config.h"
#include "equivalence/rig/rig.h"
#include "io/file.h"
#include "model/families/families.h"
#include "run/inference/cached_model.h"
#include "run/loaded/evaluation.h"

namespace sluice::core {
namespace {

using nlohmann::json;
using rig::must;
using Texts = std::map<size_t, std::vector<int32_t>>;

const char* const kModels[] = {
    "llama_tiny",      "llama_tiny_tied",     "llama_tiny_biases", "qwen2_tiny",     "qwen2_tiny_window",
    "qwen3_tiny",      "qwen3_tiny_tied",     "qwen3_tiny_window", "mistral_tiny",   "mistral_tiny_yarn",
    "smollm3_tiny",    "olmo2_tiny",          "olmo3_tiny",        "granite_tiny",   "gemma_tiny",
    "gemma3_tiny",     "olmo_tiny",           "starcoder2_tiny",   "phi3_tiny",      "glm4_tiny",
    "cohere2_tiny",    "gpt_neox_tiny",       "gpt2_tiny",         "lfm2_tiny",      "gemma2_tiny",
    "ministral3_tiny", "glm4_tiny_yarn",      "mixtral_tiny",      "olmoe_tiny",     "qwen2_moe_tiny",
    "qwen3_moe_tiny",  "lfm2_moe_tiny",       "gpt_oss_tiny",      "qwen3_5_tiny",   "qwen3_5_moe_tiny",
    "qwen3_next_tiny", "gemma4_unified_tiny", "gemma4_tiny",       "gemma4_tiny_moe"};

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(SLUICE_FIXTURES) / name;
}

Machine cpu() {
  const RunConfig config = must(load_config("", {"run.backend=cpu", "run.threads=2", "data.cache="}));
  return must(resolve_machine(config, ""));
}

GenerationSetup setup_of(const std::string& name, int64_t rows, int64_t prompt_tokens,
                         DType compute = DType::F32) {
  GenerationSetup setup;
  setup.model = must(parse_model_config(must(read_file(folder_of(name) / "config.json"))));
  setup.numerics.compute = compute;
  setup.rows = rows;
  setup.capacity = 256;
  setup.prompt_tokens = prompt_tokens;
  return setup;
}

struct Collected : TextSink {
  Result<bool> token(size_t text, const ChosenToken& chosen) override {
    texts[text].push_back(chosen.token);
    log_probs[text].push_back(chosen.log_prob);
    return true;
  }
  Status ended(size_t, TextEnd) override { return {}; }
  Texts texts;
  std::map<size_t, std::vector<double>> log_probs;
};

Texts texts_of(const GenerationPlans& plans, const Machine& machine, const std::string& name,
               std::span<const GenerationTask> tasks, const SamplingRule& rule) {
  const auto model = must(CachedModel::open(plans, machine, folder_of(name), silent_observer()));
  Collected out;
  (void)must(generate(model->texts(), tasks, {rule, {}}, out));
  return std::move(out.texts);
}

class Greedy : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Greedy, testing::ValuesIn(kModels));

// Prompts of 1 to 40 tokens, all of them several at once, with pieces of prompts that cut them anywhere, and
// some alone.
TEST_P(Greedy, TextsAreThoseOfTransformers) {
  const std::string name = GetParam();
  const json recorded = json::parse(must(read_file(SLUICE_GENERATED "/greedy.json"))).at(name);
  ASSERT_GE(recorded.size(), 20u);
  const Machine machine = cpu();
  struct Passes {
    int64_t rows, prompt_tokens;
    size_t texts;  // with and without a penalty, each
    bool draws = false;
  };
  for (const auto& [rows, prompt_tokens, texts, draws] : {Passes{5, 7, 10}, {1, 64, 1}, {11, 64, 10, true}}) {
    GenerationSetup setup = setup_of(name, rows, prompt_tokens);
    setup.draws = draws;
    const GenerationPlans plans = must(plan_generation(setup, machine.profile));
    for (const double penalty : {1.0, 1.3}) {
      if (draws && penalty != 1) continue;
      std::vector<GenerationTask> tasks;
      Texts expected;
      for (const json& text : recorded) {
        if (text.at("repetition_penalty") != penalty || tasks.size() == texts) continue;
        expected[tasks.size()] = text.at("tokens").get<std::vector<int32_t>>();
        tasks.push_back({text.at("prompt"), int64_t(expected[tasks.size()].size())});
      }
      SamplingRule rule;
      rule.repetition_penalty = penalty;
      EXPECT_EQ(texts_of(plans, machine, name, tasks, rule), expected)
          << rows << " rows, penalty " << penalty;
    }
  }
}

std::vector<GenerationTask> some_tasks(int64_t vocab) {
  std::vector<GenerationTask> tasks;
  for (int64_t i = 0; i < 5; ++i) {
    GenerationTask task;
    for (int64_t k = 0; k < 3 + 9 * i; ++k) task.prompt.push_back(int32_t((5 * i + 7 * k * k) % vocab));
    task.most_tokens = 12 + i;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

SamplingRule drawn() {
  SamplingRule rule;
  rule.temperature = 1;
  rule.seed = 5;
  return rule;
}

// Logits of every pass, bit for bit.
std::vector<float> all_logits(const GenerationPlans& plans, const Machine& machine, const std::string& name) {
  class Recorder : public CachedTextModel {
   public:
    explicit Recorder(CachedTextModel& inner) : inner_(inner) {}
    int64_t rows() const override { return inner_.rows(); }
    int64_t capacity() const override { return inner_.capacity(); }
    int64_t prompt_rows() const override { return inner_.prompt_rows(); }
    int64_t prompt_tokens() const override { return inner_.prompt_tokens(); }
    bool copies_rows() const override { return inner_.copies_rows(); }
    bool draws() const override { return false; }
    Status pass(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies) override {
      SLUICE_TRY(inner_.pass(prompts, inputs, copies));
      for (size_t i = 0; i < inputs.size(); ++i) {
        const auto logits = inner_.logits(i);
        all.insert(all.end(), logits.begin(), logits.end());
      }
      return {};
    }
    std::span<const float> logits(size_t input) const override { return inner_.logits(input); }
    Result<std::span<const DrawnToken>> pass(bool, std::span<const RowInput>, std::span<const RowCopy>,
                                             std::span<const TokenDraw>) override {
      return error("it draws nothing");
    }
    std::vector<float> all;

   private:
    CachedTextModel& inner_;
  };
  const auto model = must(CachedModel::open(plans, machine, folder_of(name), silent_observer()));
  Recorder recorder(model->texts());
  Collected out;
  (void)must(generate(recorder, some_tasks(plans.setup.model.vocab), {drawn(), {}}, out));
  return std::move(recorder.all);
}

// The smallest cap that works, by the refusal of one that does not.
int64_t least_device_bytes(GenerationSetup setup, const Machine& machine) {
  setup.caps[kDevice] = 1 << 10;
  const auto refused = plan_generation(std::move(setup), machine.profile);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::DoesNotFit);
  return *refused.error().shortage->need_bytes;
}

// Weights and caches that a pass loads.
int64_t loaded_weights(const Stage& stage) {
  return std::ranges::count_if(stage.plan.actions, [&](const Action& a) {
    return a.loads() && stage.model.program.object(a.object).persistent;
  });
}

TEST(CachedModel, EqualBitsUnderEveryCap) {
  const Machine machine = cpu();
  for (const auto& [name, compute] :
       {std::pair{"llama_tiny", DType::F32}, {"qwen3_tiny", DType::BF16}, {"qwen3_moe_tiny", DType::F32}}) {
    GenerationSetup setup = setup_of(name, 3, 8, compute);
    setup.capacity = 64;
    const GenerationPlans free = must(plan_generation(setup, machine.profile));
    const std::vector<float> expected = all_logits(free, machine, name);
    const int64_t least = least_device_bytes(setup, machine), most = free.stages.arena_bytes()[kDevice];
    ASSERT_LT(least, most);
    for (const int64_t cap : {least, least + (most - least) / 8}) {
      setup.caps[kDevice] = cap;
      const GenerationPlans small = must(plan_generation(setup, machine.profile));
      EXPECT_LE(small.stages.arena_bytes()[kDevice], cap);
      EXPECT_GT(loaded_weights(small.stages.main), 0);
      EXPECT_EQ(all_logits(small, machine, name), expected) << name << " under " << cap;
    }
  }
}

// Equal in passes with as many rows, whatever is in the others and however large the cache is; and with up to
// eight rows whose prompts come alike, in passes with others.
TEST(CachedModel, ATextDoesNotDependOnItsNeighbours) {
  const Machine machine = cpu();
  const std::string name = "llama_tiny";
  const std::vector<GenerationTask> tasks = some_tasks(97);
  GenerationSetup setup = setup_of(name, 4, 8);
  const GenerationPlans plans = must(plan_generation(setup, machine.profile));
  setup.capacity = 64;
  const GenerationPlans short_cache = must(plan_generation(setup, machine.profile));
  const Texts together = texts_of(plans, machine, name, tasks, drawn());
  EXPECT_EQ(texts_of(short_cache, machine, name, tasks, drawn()), together);
  // Greedy, so that a text's number plays no part.
  const Texts greedy = texts_of(plans, machine, name, tasks, {});
  for (size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(texts_of(plans, machine, name, std::span(tasks).subspan(i, 1), {}).at(0), greedy.at(i)) << i;
  }
}

// Tolerance as in tests/reference/gradients_test.cpp for the forward half of the chain: 3 layers of 10 ops
// with sums of at most 128 terms, sqrt(30 * 128) u of the norm, on both sides, with a factor of 2 for inputs
// that cancel.
TEST(CachedModel, LogitsAreThoseWithoutACache) {
  const Machine machine = cpu();
  for (const char* name : kModels) {
    const GenerationSetup setup = setup_of(name, 2, 5);
    const GenerationPlans plans = must(plan_generation(setup, machine.profile));
    const auto cached = must(CachedModel::open(plans, machine, folder_of(name), silent_observer()));

    constexpr int64_t kTokens = 23;
    const StepShape one{kTokens, kTokens, 1, 1, kTokens, false};
    Stage whole{build_evaluation(setup.model, one, setup.numerics), {}};
    whole.plan = must(make_plan(whole.model.program, machine.profile, {}));
    const auto backend = must(machine.make());
    const Arenas arenas = must(backend->reserve(whole.plan.arena_bytes()));
    must(backend->prepare(all_ops(whole.model.program)));
    Executor executor(whole.model.program, whole.plan, *backend, arenas);
    must(write_constants(whole.model, executor));
    must(load_weights(whole.model, folder_of(name), executor));

    std::vector<int32_t> text, targets;
    for (int64_t i = 0; i < kTokens; ++i) {
      text.push_back(int32_t((i * i * 5 + 3) % setup.model.vocab));
      targets.push_back(int32_t((i * i * 7 + 1) % setup.model.vocab));
    }
    Rows rows(whole.model.layout, kTokens);
    rows.part(0, kTokens).fill_padding();
    std::ranges::copy(text, rows.column(BatchColumn::Tokens).begin());
    std::ranges::copy(targets, rows.column(BatchColumn::Targets).begin());
    std::vector<std::byte> staging;
    must(feed_rows(rows, whole.model, executor, staging));
    StepArgs args{};
    args.loss_scale = 1;
    must(executor.write(whole.model.args, std::as_bytes(std::span(&args, 1))));
    must(executor.step());
    TokenLosses losses;
    must(read_token_losses(whole.model, executor, losses));
    for (int64_t held = 0; held < kTokens;) {
      // The prompt in pieces of 5, then token by token, in the second row.
      const bool prompt = held < 15;
      const int64_t count = prompt ? 5 : 1;
      const RowInput inputs[] = {{1, held, std::span(text).subspan(size_t(held), size_t(count))}};
      must(cached->texts().pass(prompt, inputs, {}));
      const auto logits = cached->texts().logits(0);
      held += count;
      double norm = 0, sum = 0;
      for (const float l : logits) norm += double(l) * double(l), sum += std::exp(double(l));
      const size_t last = size_t(held - 1);
      const double loss = std::log(sum) - double(logits[size_t(targets[last])]);
      // Of two logits, each of which may be off by that much of the norm of all.
      EXPECT_NEAR(loss, losses.loss[last],
                  2 * 2 * std::sqrt(2.0) * std::sqrt(30 * 128) * 0x1p-24 * std::sqrt(norm))
          << name << " after " << held;
    }
  }
}

// A model that makes nothing of positions has no batch where it makes text.
TEST(CachedModel, LayersThatAreNotRotatedMakeTextToo) {
  const Machine machine = cpu();
  for (const char* name : {"smollm3_tiny", "lfm2_tiny"}) {
    GenerationSetup setup = setup_of(name, 5, 7);
    for (LayerSpec& layer : setup.model.layers) {
      if (Attention* a = layer.attention()) {
        a->rotated = false;
        a->qk_norm = QkNorm::None;
      }
    }
    const auto plans = plan_generation(setup, machine.profile);
    ASSERT_TRUE(plans.ok()) << plans.message();
    const auto model = must(CachedModel::open(*plans, machine, folder_of(name), silent_observer()));
    const std::vector<GenerationTask> tasks = some_tasks(setup.model.vocab);
    Collected out;
    (void)must(generate(model->texts(), tasks, {{}, {}}, out));
    EXPECT_EQ(out.texts.size(), tasks.size()) << name;
    for (const auto& [text, tokens] : out.texts)
      EXPECT_EQ(int64_t(tokens.size()), tasks[text].most_tokens) << name;
  }
}

TEST(CachedModel, ACapThatIsTooSmallNamesTheSmallestThatWorks) {
  const Machine machine = cpu();
  GenerationSetup setup = setup_of("llama_tiny", 2, 16);
  setup.caps[kDevice] = 1 << 10;
  const auto refused = plan_generation(setup, machine.profile);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.message().starts_with("device memory: the smallest cap that works is "))
      << refused.message();
  EXPECT_NE(refused.message().find("1.00 KiB was given. Raise it, or take fewer texts at once (--batch)"),
            std::string::npos)
      << refused.message();
  setup.caps[kDevice] = *refused.error().shortage->need_bytes;
  EXPECT_TRUE(plan_generation(setup, machine.profile).ok());
}

// Three samples of each prompt, drawn by the model: the same tokens for any number of rows and under every
// cap, also where texts are more than a pass over prompts takes, and their states are copied.
// Log-probabilities are those that the host computes of logits.
TEST(CachedModel, SamplesAreEqualForAllRowsAndCaps) {
  const Machine machine = cpu();
  SamplingRule rule = drawn();
  for (const char* name :
       {"llama_tiny", "qwen2_tiny_window", "lfm2_tiny", "qwen3_5_tiny", "gemma4_tiny", "olmoe_tiny"}) {
    GenerationSetup setup = setup_of(name, 1, 8);
    setup.capacity = 64;
    std::vector<GenerationTask> tasks = some_tasks(setup.model.vocab);
    for (GenerationTask& task : tasks) task.samples = 3;
    const auto run = [&](const GenerationSetup& s) {
      const GenerationPlans plans = must(plan_generation(s, machine.profile));
      const auto model = must(CachedModel::open(plans, machine, folder_of(name), silent_observer()));
      Collected out;
      (void)must(generate(model->texts(), tasks, {rule, {}, /*log_probs=*/true}, out));
      return out;
    };
    const Collected expected = run(setup);
    ASSERT_EQ(expected.texts.size(), 15u) << name;
    if (name == std::string("llama_tiny")) EXPECT_NE(expected.texts.at(0), expected.texts.at(1));
    setup.copies = setup.draws = true;
    for (const int64_t rows : {3, 11}) {
      setup.rows = rows;
      setup.caps = BytesByTier(kUnlimited);
      if (rows == 11) setup.caps[kDevice] = least_device_bytes(setup, machine);
      const Collected got = run(setup);
      EXPECT_EQ(got.texts, expected.texts) << name << ", " << rows << " rows";
      for (const auto& [text, log_probs] : got.log_probs) {
        for (size_t i = 0; i < log_probs.size(); ++i)
          EXPECT_NEAR(log_probs[i], expected.log_probs.at(text).at(i), 1e-4) << name;
      }
    }
  }
}

// A scale, a table of layers beside the embedding, and neither.
TEST(RandomEmbedding, RowsThatAreKeptAreThoseThatAreMadeOnTheWay) {
  for (const char* name : {"llama_tiny", "gemma3_tiny", "gemma4_tiny"}) {
    const ModelSpec spec = setup_of(name, 1, 1).model;
    auto made = must(EmbeddingRows::open(spec, DType::BF16, WeightsFrom("", "", 7)));
    auto kept = must(EmbeddingRows::open(spec, DType::BF16, WeightsFrom("", "", 7)));
    kept.keep_random();
    const std::vector<int32_t> tokens = {5, 0, 5, int32_t(spec.vocab) - 1};
    std::vector<std::byte> on_the_way, once;
    must(made.read(tokens, on_the_way));
    must(kept.read(tokens, once));
    EXPECT_EQ(on_the_way, once) << name;
  }
}

}  // namespace
}  // namespace sluice::core
