// SPDX-License-Identifier: Apache-2.0
// What a user can get wrong in a configuration, and what the error says about it.
#include "config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/families/families.h"
#include "run/resolve.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

// Passes when setting `settings` fails with a message that has every one of `parts`.
void expect_error(const std::vector<std::string>& settings, const std::vector<std::string>& parts) {
  const auto config = load_config("", settings);
  ASSERT_FALSE(config.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(config.message().find(part), std::string::npos) << config.message() << "\nlacks: " << part;
  }
}

TEST(Config, DefaultsComeBackFromToml) {
  const TempDir dir;
  const auto defaults = load_config("", {});
  ASSERT_TRUE(defaults.ok()) << defaults.message();
  const auto again = load_config(dir.add("run.toml", to_toml(*defaults)).string(), {});
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(to_toml(*again), to_toml(*defaults));
}

TEST(Config, EveryKindOfValueComesBackFromToml) {
  const TempDir dir;
  const auto config = load_config(
      "", {"data.paths=[\"a b\", \"c\\\"d\"]", "sample.prompt=\"x\\n\\\\y\"", "train.learning_rate=3.3e-5",
           "train.steps=12", "data.respect_documents=false", "memory.device=48MiB", "train.state=bf16"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->data.paths, (std::vector<std::string>{"a b", "c\"d"}));
  EXPECT_EQ(config->sample.prompt, "x\n\\y");
  EXPECT_EQ(config->caps[kDevice], 48 << 20);
  const auto again = load_config(dir.add("run.toml", to_toml(*config)).string(), {});
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->sample.prompt, config->sample.prompt);
  EXPECT_EQ(again->train.learning_rate, 3.3e-5);
  EXPECT_EQ(to_toml(*again), to_toml(*config));
}

TEST(Config, ListsAreTakenWithoutTheQuotesThatAShellTakesAway) {
  const auto config = load_config("", {"data.paths=[src, my docs,x.txt]", "data.include=[]"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->data.paths, (std::vector<std::string>{"src", "my docs", "x.txt"}));
  EXPECT_TRUE(config->data.include.empty());
  expect_error({"data.paths=[src,,docs]"}, {"data.paths"});
  expect_error({"data.paths=[src"}, {"data.paths"});
}

TEST(Config, LaterSettingsWin) {
  const TempDir dir;
  const auto path = dir.add("run.toml", "[train]\nsteps = 5\nseed = 9\n");
  const auto config = load_config(path.string(), {"train.steps=6", "train.steps=7"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->train.steps, 7);
  EXPECT_EQ(config->train.seed, 9);
}

// Keys of an optimizer together with one that has them.
TEST(Config, EveryKeyCanBeSetToItsDefault) {
  for (const KeyHelp& key : config_keys()) {
    std::string refusals;
    const bool taken = std::any_of(optimizers().begin(), optimizers().end(), [&](const Optimizer* optimizer) {
      const auto config = load_config("", {fmt::format("train.optimizer={}", optimizer->name),
                                           fmt::format("{}={}", key.name, key.value)});
      if (!config.ok()) refusals += config.message() + "\n";
      return config.ok();
    });
    EXPECT_TRUE(taken) << refusals;
  }
}

TEST(Config, AKeyOfAnotherOptimizerIsRefusedWithThoseThatThisOneHas) {
  expect_error({"train.optimizer=lion", "train.eps=1e-8"},
               {"train.eps", "lion", "train.beta1, train.beta2, train.weight_decay"});
  expect_error({"train.optimizer=sgd", "train.nesterov=2"}, {"train.nesterov = 2", "from 0 to 1"});
}

TEST(Config, TheResolvedCopyHasTheOptimizersOwnKeys) {
  const auto config = load_config("", {"train.beta1=0.8", "train.optimizer=lion"});
  ASSERT_TRUE(config.ok()) << config.message();
  const std::string toml = to_toml(*config);
  for (const char* line : {"optimizer = \"lion\"", "beta1 = 0.8", "beta2 = 0.99", "weight_decay = 0.1"})
    EXPECT_NE(toml.find(line), std::string::npos) << toml << "lacks: " << line;
  EXPECT_EQ(toml.find("momentum ="), std::string::npos) << toml;
}

TEST(Config, UnknownKeyNamesTheNearest) {
  expect_error({"train.learning_rte=1"}, {"train.learning_rte", "'train.learning_rate'"});
  expect_error({"steps=1"}, {"'steps'", "train.steps"});
}

TEST(Config, UnknownKeyInAFileNamesTheLine) {
  const TempDir dir;
  const auto path = dir.add("run.toml", "[train]\nsteps = 5\n\n[memory]\ndevise = \"1GiB\"\n");
  const auto config = load_config(path.string(), {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.message().find("run.toml:5"), std::string::npos) << config.message();
  EXPECT_NE(config.message().find("memory.device"), std::string::npos) << config.message();
}

TEST(Config, WrongTypes) {
  expect_error({"train.steps=many"}, {"train.steps", "many", "whole number"});
  expect_error({"train.steps=1.5"}, {"train.steps", "1.5", "whole number"});
  expect_error({"train.steps="}, {"train.steps"});
  expect_error({"train.steps=[1, 2]"}, {"train.steps", "one value"});
  expect_error({"run.trace=maybe"}, {"run.trace", "maybe", "true, false"});
  expect_error({"train.compute=f16"}, {"train.compute", "f16", "auto, f32, bf16"});
  expect_error({"memory.device=lots"}, {"memory.device", "lots"});
  expect_error({"memory.device=-1GiB"}, {"memory.device", "-1GiB"});
  expect_error({"train.steps"}, {"train.steps", "key=value"});
}

TEST(Config, NumbersOutOfRange) {
  expect_error({"train.learning_rate=nan"}, {"train.learning_rate", "nan", "0 to 10"});
  expect_error({"train.learning_rate=inf"}, {"train.learning_rate", "inf"});
  expect_error({"train.learning_rate=-1"}, {"train.learning_rate", "-1", "0 to 10"});
  expect_error({"train.beta1=1"}, {"train.beta1", "1"});
  expect_error({"train.seq_len=1"}, {"train.seq_len", "2"});
  expect_error({"train.steps=99999999999999999999"}, {"train.steps", "99999999999999999999"});
}

TEST(Config, StepIsWholeSequences) {
  expect_error({"train.seq_len=256", "train.tokens_per_step=1000"}, {"train.tokens_per_step", "1000", "256"});
}

TEST(Config, MissingFileIsNamed) {
  const auto config = load_config("/nonexistent/run.toml", {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.message().find("/nonexistent/run.toml"), std::string::npos) << config.message();
}

// The model's own file.
class ModelConfig : public testing::Test {
 protected:
  void expect_model_error(const std::string& json, const std::vector<std::string>& parts) {
    RunConfig config;
    config.model.config = dir_.add("config.json", json).string();
    const auto model = resolve_model(config);
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.message().find(config.model.config), std::string::npos) << model.message();
    for (const std::string& part : parts) {
      EXPECT_NE(model.message().find(part), std::string::npos) << model.message() << "\nlacks: " << part;
    }
  }
  // A valid configuration with `changes` (which come first and so win over what follows).
  static std::string with(std::string_view heads, std::string_view kv, std::string_view head_dim) {
    return fmt::format(
        R"({{"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 97,
        "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}}})",
        heads, kv, head_dim);
  }
  TempDir dir_;
};

TEST_F(ModelConfig, HeadsThatDoNotDivide) {
  expect_model_error(with("4", "3", "8"), {"num_attention_heads 4", "num_key_value_heads 3"});
  expect_model_error(with("5", "5", "null"), {"hidden_size 32", "num_attention_heads 5"});
}
TEST_F(ModelConfig, OddHeadSize) {
  expect_model_error(with("4", "2", "7"), {"head_dim is 7", "even"});
}
TEST_F(ModelConfig, SizesThatAreNotPositive) {
  expect_model_error(with("0", "2", "8"), {"num_attention_heads is 0"});
  expect_model_error(with("4", "-2", "8"), {"num_key_value_heads is -2"});
  expect_model_error(with("4", "0", "8"), {"num_key_value_heads is 0"});
  expect_model_error("{}", {"hidden_size is 0"});
}
TEST_F(ModelConfig, WrongTypes) {
  expect_model_error(with("\"four\"", "2", "8"), {"num_attention_heads", "four"});
  expect_model_error("[1, 2", {"not a JSON object"});
}
TEST_F(ModelConfig, ArchitecturesThatAreNotLlama) {
  expect_model_error(R"({"model_type": "gpt2"})", {"gpt2", "llama"});
  expect_model_error(R"({"model_type": "qwen2", "mlp_bias": true})", {"mlp_bias", "qwen2"});
  expect_model_error(R"({"model_type": "qwen2", "use_sliding_window": true})", {"use_sliding_window"});
  expect_model_error(R"({"hidden_act": "gelu"})", {"gelu", "silu"});
  expect_model_error(R"({"rope_scaling": {"rope_type": "yarn"}})", {"yarn", "llama3"});
}
TEST_F(ModelConfig, MissingFileIsNamed) {
  RunConfig config;
  config.model.config = (dir_ / "none.json").string();
  const auto model = resolve_model(config);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.message().find("none.json"), std::string::npos) << model.message();
}
TEST_F(ModelConfig, PresetsAreValidAndComeBackFromJson) {
  for (const std::string& name : model_presets()) {
    const auto model = model_preset(name);
    ASSERT_TRUE(model.ok()) << model.message();
    const auto again = parse_model_config(to_json(*model));
    ASSERT_TRUE(again.ok()) << again.message();
    EXPECT_EQ(to_json(*again), to_json(*model));
    EXPECT_EQ(again->params(), model->params());
  }
}

}  // namespace
}  // namespace sluice::core
