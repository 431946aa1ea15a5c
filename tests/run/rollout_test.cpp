// SPDX-License-Identifier: Apache-2.0
// Runs that learn from answers by their rewards: ten steps of every loss with what TRL's GRPOTrainer makes of
// them (tests/fixtures/make_policies.py), and answers that are sampled and rewarded in between.
#include "run/session/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "run/prepare/prepare.h"
#include "run/small_session.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A folder with llama_tiny and a tokenizer of characters, whose answers end with a special token.
struct Graded {
  Graded() {
    model_with_tokenizer(dir);
    json tokenizer = json::parse(file_bytes(dir / "model/tokenizer.json"));
    json end = {{"id", 95}, {"content", "<|end|>"}, {"special", true}};
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) end[flag] = false;
    tokenizer["added_tokens"] = json::array({end});
    dir.add("model/tokenizer.json", tokenizer.dump());
    dir.add("model/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    fs::copy_file(fs::path(SLUICE_FIXTURES) / "llama_tiny" / "model.safetensors",
                  dir / "model/model.safetensors");
  }

  // Settings of a run in f32, by plain gradients.
  std::vector<std::string> settings(std::vector<std::string> more) const {
    std::vector<std::string> all = plain_gradients(dir, "groups.jsonl", "grpo");
    more.insert(more.begin(), {"train.learning_rate=0.1", "train.tokens_per_step=200"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  struct Opened {
    std::unique_ptr<Prepared> prepared;
    std::unique_ptr<Session> session;
  };
  // `like`: has plans for it, too; null: they are searched for.
  Opened open(std::vector<std::string> more, const Prepared* like = nullptr) const {
    const RunConfig config = must(load_config("", small_run(dir, settings(std::move(more)))));
    Opened out{std::make_unique<Prepared>(like != nullptr ? *like : must(prepare(config, "", true))),
               nullptr};
    out.prepared->config = config;
    out.session = must(Session::open(*out.prepared));
    return out;
  }
  std::string refusal(std::vector<std::string> more) const {
    auto config = load_config("", small_run(dir, settings(std::move(more))));
    if (!config.ok()) return config.message();
    auto data = open_data(*config, 97);
    return data.ok() ? "" : data.message();
  }

  TempDir dir;
};

TEST(Rollouts, MakeTheStepsOfTrl) {
  const json reference = json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "policies.json"));
  const Graded graded;
  std::unique_ptr<Prepared> plans;
  for (const json& of : reference["cases"]) {
    const std::string name = of["name"];
    SCOPED_TRACE(name);
    std::string lines;
    for (size_t g = 0; g < reference["groups"].size(); ++g) {
      const json& group = reference["groups"][g];
      json line{{"prompt", group[0]}, {"completions", group[1]}, {"rewards", group[2]}};
      for (const json& answer : group[1]) line["finished"].push_back(answer != reference["cut"]);
      if (name == "recorded") line["logps"] = reference["sampled"][g];
      lines += line.dump() + "\n";
    }
    graded.dir.add("groups.jsonl", lines);
    std::vector<std::string> settings{"train.learning_rate=" + of["learning_rate"].dump()};
    for (const auto& [key, value] : of["keys"].items()) {
      const std::string full = key == "num_iterations"          ? "rollout.num_iterations"
                               : key == "max_completion_length" ? "rollout.max_tokens"
                                                                : "objective." + key;
      settings.push_back(full + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    }
    if (!plans) {
      std::vector<std::string> any = settings;
      any.push_back("objective.beta=1");
      plans = std::move(graded.open(any).prepared);
    }
    Graded::Opened run = graded.open(settings, plans.get());
    int step = 0;
    for (const json& expected : of["steps"]) {
      SCOPED_TRACE(++step);
      const StepResult result = must(run.session->step());
      EXPECT_NEAR(result.loss, expected["loss"], 1e-5 * (1 + std::abs(expected["loss"].get<double>())));
      EXPECT_NEAR(result.gradient_norm, expected["gradient_norm"],
                  1e-4 * (1e-3 + expected["gradient_norm"].get<double>()));
      for (const auto& [key, value] : expected["values"].items())
        EXPECT_NEAR(value_of(result, key), value, 1e-4 * (0.1 + std::abs(value.get<double>()))) << key;
      if (HasFailure()) return;
    }
  }
}

// A run's weights after so many steps in all.
std::string weights_after(Graded::Opened run, int64_t steps, const fs::path& to) {
  while (run.session->steps_done() < steps) must(run.session->step());
  must(run.session->save(to));
  return file_bytes(to / "model.safetensors");
}

constexpr const char* kFunction = R"(
def letters(completions, goal, **rest):
    return [sum(c in "aeiou" for c in text) - abs(len(text) - g) for text, g in zip(completions, goal)]
def kinds(prompts, completions, **rest):
    return [c.isdigit() if p == "A" else c in "abcdefghij" for p, c in zip(prompts, completions)]
def dies(completions, **rest):
    print("looking")
    raise KeyError("answer")
def says_nan(completions, **rest):
    return [float("nan")] * len(completions)
def too_few(completions, **rest):
    return [1]
def hangs(completions, **rest):
    while True:
        pass
)";

std::vector<std::string> sampled(const Graded& graded, const std::string& function) {
  graded.dir.add("groups.jsonl", "{\"prompt\": \"ab\", \"goal\": 4}\n{\"prompt\": \"Say: \", \"goal\": 6}\n");
  graded.dir.add("rewards.py", kFunction);
  return {"rollout.rewards=" + (graded.dir / "rewards.py").string() + ":" + function, "rollout.samples=3",
          "rollout.max_tokens=9"};
}

TEST(Rollouts, GoOnWithEqualBitsAlsoBetweenIterations) {
  const Graded graded;
  std::vector<std::string> settings = sampled(graded, "letters");
  settings.push_back("rollout.num_iterations=3");
  const std::string expected = weights_after(graded.open(settings), 5, graded.dir / "whole");
  Graded::Opened half = graded.open(settings);
  for (const bool fresh : {true, false}) {
    const StepResult r = must(half.session->step());
    EXPECT_GT(value_of(r, "completions/mean_length"), 0);
    if (!fresh) continue;
    EXPECT_LT(value_of(r, "sampling/sampling_logp_difference/max"), 1e-4);
  }
  must(half.session->save(graded.dir / "half"));
  half.session.reset();
  settings.push_back("run.resume=" + (graded.dir / "half").string());
  EXPECT_TRUE(weights_after(graded.open(settings), 5, graded.dir / "resumed") == expected);
  // What a run samples is what others read.
  const std::string lines = file_bytes(graded.dir / "run/rollout.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2) << lines;
  graded.dir.add("groups.jsonl", lines);
  Graded::Opened recorded = graded.open({});
  EXPECT_TRUE(std::isfinite(must(recorded.session->step()).loss));
}

// Steps on sampled answers are those on the same answers where they are recorded, whose reference is made
// before the first; MakeTheStepsOfTrl compares these. A run that goes on makes it again.
TEST(Rollouts, StayNearTheBeginning) {
  for (const char* trained : {"adapter.rank=0", "adapter.rank=4"}) {
    SCOPED_TRACE(trained);
    const Graded graded;
    std::vector<std::string> settings = sampled(graded, "letters");
    const std::vector<std::string> own{"rollout.num_iterations=2", "objective.beta=0.2", trained};
    settings.insert(settings.end(), own.begin(), own.end());
    Graded::Opened run = graded.open(settings);
    std::vector<StepResult> of_sampled{must(run.session->step()), must(run.session->step())};
    const std::string answers = file_bytes(graded.dir / "run/rollout.jsonl");
    must(run.session->save(graded.dir / "two"));
    const double next = value_of(must(run.session->step()), "kl");
    EXPECT_GT(next, 1e-6);  // of other answers than the first
    run.session.reset();
    settings.push_back("run.resume=" + (graded.dir / "two").string());
    EXPECT_EQ(value_of(must(graded.open(settings).session->step()), "kl"), next);
    for (const char* file : {"trained.bin", "reference.bin"})
      EXPECT_FALSE(fs::exists(graded.dir / "run" / file));

    graded.dir.add("groups.jsonl", answers);
    Graded::Opened recorded = graded.open(own);
    for (const StepResult& expected : of_sampled) {
      const StepResult result = must(recorded.session->step());
      EXPECT_NEAR(result.loss, expected.loss, 1e-6);
      EXPECT_NEAR(value_of(result, "kl"), value_of(expected, "kl"), 1e-6);
    }
    EXPECT_GT(value_of(of_sampled[1], "kl"), 1e-6);
  }
}

TEST(Rollouts, SampleByTheLogProbabilitiesOfTraining) {
  const Graded graded;
  for (const char* compute : {"f32", "bf16"}) {
    SCOPED_TRACE(compute);
    std::vector<std::string> settings = sampled(graded, "letters");
    settings.insert(settings.end(),
                    {"run.exact=true", "shape.chunk_tokens=40", fmt::format("train.compute={}", compute)});
    Graded::Opened run = graded.open(settings);
    for (int step = 0; step < 2; ++step)
      EXPECT_EQ(value_of(must(run.session->step()), "sampling/sampling_logp_difference/max"), 0) << step;
  }
}

// bench/rollouts/learns has a task that is harder.
TEST(Rollouts, LearnWhatIsRewarded) {
  const Graded graded;
  std::vector<std::string> settings = sampled(graded, "kinds");
  graded.dir.add("groups.jsonl", "{\"prompt\": \"A\"}\n{\"prompt\": \"B\"}\n");
  settings.insert(settings.end(), {"rollout.samples=16", "rollout.prompts=2", "rollout.max_tokens=1",
                                   "train.learning_rate=0.5", "train.tokens_per_step=40"});
  Graded::Opened run = graded.open(settings);
  EXPECT_LT(value_of(must(run.session->step()), "reward"), 0.3);
  double last = 0;
  for (int step = 2; step <= 25; ++step) last = value_of(must(run.session->step()), "reward");
  EXPECT_GT(last, 0.9);
}

TEST(Rollouts, SampleTheAnswersOfAStepTogether) {
  const Graded graded;
  const auto at_once = [&](const std::vector<std::string>& more) {
    std::vector<std::string> settings = sampled(graded, "letters");
    settings.insert(settings.end(), more.begin(), more.end());
    const RunConfig config = must(load_config("", small_run(graded.dir, graded.settings(settings))));
    return must(step_of(config, true)).wants(kSampling)->rows;
  };
  EXPECT_EQ(at_once({"rollout.samples=4", "rollout.prompts=5"}), 20);
  EXPECT_EQ(at_once({"rollout.samples=4", "rollout.prompts=0", "train.tokens_per_step=400"}), 8);
  EXPECT_EQ(at_once({"rollout.samples=4", "rollout.prompts=5", "rollout.at_once=3"}), 3);
  // No more than have caches half as large as the weights, or some hundred MiB.
  const int64_t most = at_once({"rollout.samples=4", "rollout.prompts=1000000"});
  EXPECT_GT(most, 5'000);
  EXPECT_LT(most, 500'000);
}

TEST(Rollouts, EndWithTheLastWordsOfWhoeverRewards) {
  const Graded graded;
  const auto ended = [&](const std::string& function) {
    std::vector<std::string> settings = sampled(graded, function);
    settings.push_back("rollout.timeout=0.2");
    if (function != "hangs") settings.back() = "rollout.timeout=60";
    return graded.open(settings).session->step().message();
  };
  const auto expect = [&](const std::string& function, const std::string& part) {
    const std::string said = ended(function);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect("dies", "its process ended: KeyError: 'answer'; ");
  expect("says_nan", "reward 1 is nan; allowed are finite numbers, and None");
  expect("too_few", "it returned 1 rewards for 6 answers");
  expect("hangs", "it took longer than rollout.timeout = 0.2 s");
}

TEST(Rollouts, RefuseWhatCannotBeLearntFrom) {
  const Graded graded;
  const auto expect = [&](const std::string& line, std::vector<std::string> more, const std::string& part) {
    graded.dir.add("groups.jsonl", line + "\n");
    const std::string said = graded.refusal(std::move(more));
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const std::string group = R"({"prompt": "a", "completions": ["b", "c"], "rewards": [1, 0]})";
  EXPECT_EQ((graded.dir.add("groups.jsonl", group + "\n"), graded.refusal({})), "");
  graded.dir.add("groups.jsonl", group + "\n{}\n");
  const auto skipping = small_run(graded.dir, graded.settings({"data.malformed=skip"}));
  EXPECT_EQ(must(open_data(must(load_config("", skipping)), 97)).notices,
            std::vector<std::string>{"data.paths: 1 record is left out by data.malformed = skip"});
  expect(R"({"prompt": "a"})", {}, "groups.jsonl:1: no completions: ");
  expect(R"({"prompt": "a", "completions": ["b"], "rewards": [1, 0]})", {}, "rewards: a list of 1 is needed");
  expect(R"({"prompt": "a", "completions": ["b"], "rewards": [1], "logps": [[-1]]})", {},
         "answer 1 has 2 tokens and 1 of these");
  expect(R"({"prompt": "a", "completions": ["b"], "rewards": [1], "mood": 3})", {}, "mood: nothing reads it");
  expect(group, {"train.tokens_per_step=40", "rollout.prompts=30"}, "need 3 rows of train.seq_len = 40");
  expect(group, {"objective.simpo_gamma=1"}, "objective.simpo_gamma: train.objective = grpo");
  expect(group, {"objective.loss_type=cispo"}, "it needs objective.epsilon_high");
  expect(group, {"rollout.rewards=rewards.py"}, "a file and a function are needed");
  expect(group, {"rollout.rewards=/none.py:f"}, "there is no file /none.py");
  expect(group, {"train.objective=dpo", "rollout.samples=2"}, "train.objective = dpo samples no answers");
}

}  // namespace
}  // namespace sluice::core
