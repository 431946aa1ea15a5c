// SPDX-License-Identifier: Apache-2.0
// What a user can get wrong in a configuration, and what the error says about it.
#include "config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "config/aliases.h"
#include "config/devices.h"
#include "config/files/load_config.h"
#include "run/inputs/resolve.h"
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
      "", {"data.exclude=[\"a b\", \"c\\\"d\"]", "sample.prompt=\"x\\n\\\\y\"", "train.learning_rate=3.3e-5",
           "train.steps=12", "data.respect_documents=false", "memory.device=48MiB", "train.state=bf16"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->data.exclude, (std::vector<std::string>{"a b", "c\"d"}));
  EXPECT_EQ(config->sample.prompt, "x\n\\y");
  EXPECT_EQ(config->caps[kDevice], 48 << 20);
  const auto again = load_config(dir.add("run.toml", to_toml(*config)).string(), {});
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->sample.prompt, config->sample.prompt);
  EXPECT_EQ(again->train.learning_rate, 3.3e-5);
  EXPECT_EQ(to_toml(*again), to_toml(*config));
}

TEST(Config, ListsAreTakenWithoutTheQuotesThatAShellTakesAway) {
  const auto config = load_config("", {"data.exclude=[src, my docs,x.txt]", "data.include=[]"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->data.exclude, (std::vector<std::string>{"src", "my docs", "x.txt"}));
  EXPECT_TRUE(config->data.include.empty());
  expect_error({"data.exclude=[src,,docs]"}, {"data.exclude"});
  expect_error({"data.exclude=[src"}, {"data.exclude"});
}

TEST(Config, PathsToReadAreRelativeToTheFileAndThoseOfSettingsToWhereOneStands) {
  const TempDir dir;
  const auto path = dir.add("configs/a.toml", R"([model]
config = "../m/config.json"
[data]
paths = ["src", "/text"]
cache = "cache"
[run]
dir = "runs/a")");
  const auto config = load_config(path.string(), {"model.weights=w"});
  ASSERT_TRUE(config.ok()) << config.message();
  const std::string here = std::filesystem::current_path().string(), src = (dir / "configs/src").string();
  EXPECT_EQ(config->model.config, (dir / "m/config.json").string());
  EXPECT_EQ(config->data.paths, (std::vector<std::string>{src, "/text"}));
  EXPECT_EQ(config->model.weights, here + "/w");
  EXPECT_EQ(config->run.dir, "runs/a");
  EXPECT_EQ(config->data.cache, "cache");
  EXPECT_EQ(config->written_paths.at(src), "'src' in " + path.string());
  EXPECT_EQ(config->written_paths.at(here + "/w"), "'w' in the working directory");

  const std::string toml = to_toml(*config);
  for (const std::string& line :
       {fmt::format("dir = \"{}/runs/a\"", here), fmt::format("cache = \"{}/cache\"", here),
        fmt::format("weights = \"{}/w\"", here), fmt::format("config = \"{}\"", config->model.config)})
    EXPECT_NE(toml.find(line), std::string::npos) << toml << "lacks: " << line;
}

// What is there where one stands comes before what the cache of the hub has.
TEST(Config, NamesOfTheHubAreFoundInItsCache) {
  const TempDir dir;
  ::setenv("HF_HUB_CACHE", (dir / "hub").c_str(), 1);
  dir.add("hub/datasets--org--name/snapshots/abc/a.jsonl", "");
  dir.add("hub/models--org--name/snapshots/def/config.json", "");
  const std::string file =
      dir.add("a.toml", "[model]\npath = \"org/name\"\n[data]\npaths = [\"org/name\", \"org/other\"]\n")
          .string();
  const auto found = load_config(file, {});
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->model.config, dir / "hub/models--org--name/snapshots/def");
  EXPECT_EQ(found->data.paths,
            (std::vector<std::string>{(dir / "hub/datasets--org--name/snapshots/abc").string(),
                                      (dir / "org/other").string()}));
  dir.add("org/readme", "");
  EXPECT_EQ(load_config(file, {})->data.paths[0], (dir / "org/name").string());
  ::unsetenv("HF_HUB_CACHE");
}

TEST(Config, FieldsOfAQuestionAndItsAnswerGoTogether) {
  expect_error({"data.fields.prompt=q"}, {"data.fields.prompt is given, and data.fields.completion is not"});
}

TEST(Config, AModelsFolderNamesWhatNoKeyOfItsOwnDoes) {
  const TempDir dir;
  const std::string folder = "model.path=" + (dir / "m").string();
  const auto whole = load_config("", {folder});
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ(whole->model.config, (dir / "m").string());
  EXPECT_EQ(whole->model.weights, (dir / "m").string());
  const auto own = load_config("", {folder, "model.weights=" + (dir / "w").string()});
  ASSERT_TRUE(own.ok()) << own.message();
  EXPECT_EQ(own->model.config, (dir / "m").string());
  EXPECT_EQ(own->model.weights, (dir / "w").string());
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
  for (const char* value : {"2", "0.5"}) {
    expect_error({"train.optimizer=sgd", fmt::format("train.nesterov={}", value)},
                 {fmt::format("train.nesterov = {}", value), "0 and 1"});
  }
  // It has no first moment.
  expect_error({"train.optimizer=adafactor", "train.beta1=0.9"},
               {"train.beta1", "adafactor", "train.decay_rate"});
}

TEST(Config, ValuesOfAnOptimizerThatDoNotGoTogetherAreRefused) {
  expect_error({"train.optimizer=adafactor", "train.warmup_init=1"},
               {"train.warmup_init = 1", "train.relative_step = 1"});
  expect_error({"model.preset=small", "model.path=/nonexistent"},
               {"model.preset = small", "leave one of them out"});
  EXPECT_TRUE(
      load_config("", {"train.optimizer=adafactor", "train.warmup_init=1", "train.relative_step=1"}).ok());
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
  const std::pair<const char*, const char*> cases[] = {
      {"train.lr", "train.learning_rate"},
      {"batch_size", "train.tokens_per_step"},
      {"train.max_steps", "train.steps"},
      {"output_dir", "run.dir"},
      {"train.bf16", "train.compute"},
      {"train.gradient_clipping", "train.clip_norm"},
      {"model.seq_len", "train.seq_len"},
      {"memory.devise", "memory.device"},
      {"train.Learning-Rate", "train.learning_rate"},
      {"run.checkpoint_evry", "run.checkpoint_every"},
      {"sample.temprature", "sample.temperature"},
  };
  for (const auto& [typed, meant] : cases) EXPECT_EQ(key_meant_by(typed), meant) << typed;
  // None is near.
  for (const char* far : {"train.loss", "data.images", "model.revision", "run.wandb"})
    EXPECT_EQ(key_meant_by(far), "") << far;
  for (const auto& [typed, meant] : {std::pair{"train.lora_r", "adapter.rank"},
                                     {"lora.alpha", "adapter.alpha"},
                                     {"peft.target_modules", "adapter.targets"},
                                     {"train.dropout", "adapter.dropout"},
                                     {"peft.lora_dropout", "adapter.dropout"},
                                     {"train.trainable_token_indices", "adapter.tokens"},
                                     {"model.adapter", "adapter.rank"}})
    EXPECT_EQ(key_meant_by(typed), meant) << typed;
}

TEST(Config, OtherNamesMeanKeysThatThereAreAndAreNone) {
  std::vector<std::string> names;
  for (const KeyHelp& key : config_keys()) names.push_back(key.name);
  for (const auto& [alias, key] : key_aliases()) {
    EXPECT_NE(std::find(names.begin(), names.end(), key), names.end()) << alias << " means " << key;
    for (const std::string& name : names) EXPECT_FALSE(name.ends_with(fmt::format(".{}", alias))) << name;
  }
}

TEST(Config, KeysSayWhatIsAllowed) {
  std::map<std::string, std::string> allowed;
  for (const KeyHelp& key : config_keys()) {
    EXPECT_FALSE(key.allowed.empty()) << key.name;
    allowed[key.name] = key.allowed;
  }
  EXPECT_EQ(allowed["train.master"], "auto, off, f32, i8");
  EXPECT_EQ(allowed["train.learning_rate"], "auto, numbers from 0 to 10");
  EXPECT_EQ(allowed["train.steps"], "whole numbers from 0 to 1000000000");
  EXPECT_EQ(allowed["train.seq_len"], "whole numbers from 2 to 16777216; 8k is 8192");
  EXPECT_EQ(allowed["train.beta1"], "numbers from 0 to 0.99999");
  EXPECT_EQ(allowed["run.trace"], "true, false");
  EXPECT_EQ(allowed["memory.device"], "a size such as 48MiB, 1.5GiB or 800MB, or none");
  EXPECT_EQ(allowed["model.preset"],
            "tiny, llama3-1b, llama3-8b, llama3-15b, llama3-32b, llama3-70b, small, medium, large, xl, "
            "2.7B, qwen3-14b, olmoe-7b-a1b, qwen3-30b-a3b, qwen3.5-4b, qwen3.5-9b, qwen3.6-27b, "
            "qwen3.6-35b-a3b, gemma3-27b, gemma4-e4b, gemma4-12b, gemma4-26b-a4b, gemma4-31b, gpt-oss-20b");
}

TEST(Config, ValuesAsPeopleTypeThem) {
  const auto config =
      load_config("", {"train.seq_len=8k", "train.tokens_per_step=128K", "shape.chunk_tokens=2k",
                       "memory.device=16 gib", "memory.host=24GB", "train.compute=BF16", "train.master=true",
                       "train.stochastic=off", "run.trace=Off", "train.optimizer=SGD"});
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->train.seq_len, 8192);
  EXPECT_EQ(config->train.tokens_per_step, 131072);
  EXPECT_EQ(config->shape.chunk_tokens, 2048);
  EXPECT_EQ(config->caps[kDevice], 16 * kGiB);
  EXPECT_EQ(config->caps[kHost], 24'000'000'000);
  EXPECT_TRUE(config->train.compute == DType::BF16);
  EXPECT_EQ(config->train.master, MasterWeights::F32);
  EXPECT_TRUE(config->train.stochastic == false);
  EXPECT_FALSE(config->run.trace);
  EXPECT_EQ(config->train.optimizer, "sgd");
}

TEST(Config, ASizeWithoutUnitIsRefusedWithTheLikelyOne) {
  const auto message = [](const char* setting) { return load_config("", {setting}).message(); };
  EXPECT_EQ(message("memory.device=24"), "memory.device = 24: a size needs a unit; did you mean 24GiB?");
  EXPECT_EQ(message("memory.host=4096"), "memory.host = 4096: a size needs a unit; did you mean 4096MiB?");
  EXPECT_EQ(message("memory.host=17179869184"),
            "memory.host = 17179869184: a size needs a unit; did you mean 16GiB?");
  expect_error({"memory.device=0"}, {"memory.device = 0", "none, which is no limit"});
  const TempDir dir;
  const auto path = dir.add("run.toml", "[memory]\ndevice = 24\n");
  EXPECT_EQ(load_config(path.string(), {}).message(),
            path.string() + ":2: memory.device = 24: a size needs a unit; did you mean 24GiB?");
}

TEST(Config, StepsAreCountedOneByOne) {
  expect_error({"train.steps=10k"}, {"train.steps = 10k", "did you mean 10000?"});
}

TEST(Config, APresetGoesByItsOwnName) {
  for (const char* typed : {"8", "8b", "8B"}) {
    const auto config = load_config("", {fmt::format("model.preset={}", typed)});
    ASSERT_TRUE(config.ok()) << config.message();
    EXPECT_EQ(config->model.preset, "llama3-8b");
    EXPECT_EQ(config->notices, std::vector<std::string>{fmt::format(
                                   "model.preset = {}: this preset is called llama3-8b now", typed)});
  }
  for (const char* typed : {"llama3-8b", "Llama3-8B", "llama 3 8b"}) {
    const auto config = load_config("", {fmt::format("model.preset={}", typed)});
    ASSERT_TRUE(config.ok()) << config.message();
    EXPECT_EQ(config->model.preset, "llama3-8b");
    EXPECT_TRUE(config->notices.empty()) << config->notices.front();
  }
  expect_error({"model.preset=70b"}, {"model.preset = 70b", "llama3-8b"});
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

TEST(Config, TheSmallestRateIsNotAboveTheLargest) {
  expect_error({"train.learning_rate=2e-5", "train.min_learning_rate=1e-4"},
               {"train.min_learning_rate = 0.0001", "at most train.learning_rate = 2e-05", "auto"});
  expect_error({"train.min_learning_rate=low"},
               {"train.min_learning_rate = low", "auto, numbers from 0 to 10"});
  const auto open = load_config("", {"train.learning_rate=2e-5", "train.min_learning_rate=auto"});
  ASSERT_TRUE(open.ok()) << open.message();
  EXPECT_FALSE(open->train.min_learning_rate.has_value());
  const auto equal = load_config("", {"train.learning_rate=2e-5", "train.min_learning_rate=2e-5"});
  ASSERT_TRUE(equal.ok()) << equal.message();
  EXPECT_EQ(equal->train.min_learning_rate, 2e-5);
}

TEST(Config, StepIsWholeSequences) {
  expect_error({"train.seq_len=256", "train.tokens_per_step=1000"}, {"train.tokens_per_step", "1000", "256"});
}

TEST(Config, MissingFileIsNamed) {
  const auto config = load_config("/nonexistent/run.toml", {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.message().find("/nonexistent/run.toml"), std::string::npos) << config.message();
}

TEST(ModelConfig, AFileThatNeverEndsIsNamed) {
  RunConfig config;
  config.model.config = "/dev/zero";
  const auto model = resolve_model(config);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.message(), "cannot read /dev/zero: not a regular file");
}
TEST(ModelConfig, MissingFileIsNamed) {
  RunConfig config;
  config.model.config = (TempDir().path() / "none.json").string();
  const auto model = resolve_model(config);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.message().find("none.json"), std::string::npos) << model.message();
}

TEST(DeviceCounts, AreNoDevicesOfAStep) {
  EXPECT_EQ(check_one_step(*parse_devices("1..8")).message(),
            "run.devices = 1..8: a range of devices is compared by sluice simulate, a step takes one number");
}

TEST(DeviceCounts, DoubleUpToTheLast) {
  const auto counts = [](std::string_view text) -> Result<std::vector<int>> {
    SLUICE_ASSIGN(const DeviceChoice devices, parse_devices(text));
    return devices.counts;
  };
  EXPECT_EQ(*counts("1..8"), (std::vector{1, 2, 4, 8}));
  EXPECT_EQ(*counts("2..6"), (std::vector{2, 4, 6}));
  EXPECT_EQ(*counts("3..3"), (std::vector{3}));
  EXPECT_TRUE(counts("2")->empty());
  EXPECT_TRUE(counts("0,2")->empty());
  for (const char* wrong : {"0..2", "4..2", "1..", "..8", "a..b", "1..4..8"}) {
    ASSERT_FALSE(counts(wrong).ok()) << wrong;
    EXPECT_NE(counts(wrong).message().find(std::string("run.devices = ") + wrong), std::string::npos);
  }
  EXPECT_EQ(
      counts("1..128").message(),
      "run.devices = 1..128: a step is planned for the devices of one host, which share its memory: 64 at "
      "most");
}

// What is filled field by field is held to what text is held to, in the same words.
TEST(Config, OfFieldsIsCheckedAsOneOfText) {
  EXPECT_TRUE(check_config({}).ok());
  const auto message = [](auto&& change) {
    RunConfig config;
    change(config);
    return check_config(config).message();
  };
  const auto of_text = [](std::vector<std::string> settings) { return load_config("", settings).message(); };
  EXPECT_EQ(message([](RunConfig& c) { c.train.seq_len = 1; }), of_text({"train.seq_len=1"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.seq_len = 0; }), of_text({"train.seq_len=0"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.tokens_per_step = 1000; }),
            of_text({"train.tokens_per_step=1000"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.clip_norm = -1; }), of_text({"train.clip_norm=-1"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.learning_rate = 11; }), of_text({"train.learning_rate=11"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.optimizer = "adam"; }), of_text({"train.optimizer=adam"}));
  EXPECT_EQ(message([](RunConfig& c) { c.train.hyperparameters["beta3"] = 0; }),
            "train.beta3: adamw has no such setting; it has train.beta1, train.beta2, train.eps, "
            "train.weight_decay");
  EXPECT_NE(message([](RunConfig& c) { c.train.clip_norm = std::nan(""); }).find("train.clip_norm = nan"),
            std::string::npos);
}

TEST(Config, SettingsGoOnFromWhatIsThere) {
  RunConfig before;
  before.train.steps = 7, before.train.seq_len = 64, before.train.master = MasterWeights::I8;
  const auto after = load_config("", {"train.seq_len=128", "train.freeze=[lm_head, *.mlp]"}, before);
  ASSERT_TRUE(after.ok()) << after.message();
  EXPECT_EQ(after->train.steps, 7);
  EXPECT_EQ(after->train.seq_len, 128);
  EXPECT_EQ(after->train.master, MasterWeights::I8);
  EXPECT_EQ(after->train.freeze, (std::vector<std::string>{"lm_head", "*.mlp"}));
}

}  // namespace
}  // namespace sluice::core
