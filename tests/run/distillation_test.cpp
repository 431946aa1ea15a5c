// SPDX-License-Identifier: Apache-2.0
// Runs that learn what a teacher recorded: ten steps of several divergences with what TRL's functions make of
// them (tests/fixtures/make_distillation.py), the same bits under every cap, and what records are refused
// for.
#include "objective/distillation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "run/data/data_view.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json& reference() {
  static const json all = json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "distillation.json"));
  return all;
}

std::string lines_of(const json& records) {
  std::string out;
  for (const json& record : records) out += record.dump() + "\n";
  return out;
}

// A folder with llama_tiny, a tokenizer of characters, and what a teacher recorded.
struct Taught {
  Taught() {
    model_with_tokenizer(dir);
    fs::copy_file(fs::path(SLUICE_FIXTURES) / "llama_tiny" / "model.safetensors",
                  dir / "model/model.safetensors");
    dir.add("taught.jsonl", lines_of(reference()["records"]));
  }

  // Of a run whose steps are all of the answers, in f32, by plain gradients.
  std::vector<std::string> settings(std::vector<std::string> more) const {
    std::vector<std::string> all = plain_gradients(dir, "taught.jsonl", "distillation");
    more.insert(more.begin(),
                {"objective.loss_top_k=6", "train.learning_rate=0.5", "train.tokens_per_step=200"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string refusal(std::vector<std::string> more = {}) const {
    auto config = load_config("", small_run(dir, settings(std::move(more))));
    if (!config.ok()) return config.message();
    auto data = open_data(*config, 97);
    return data.ok() ? "" : data.message();
  }
  // Weights after four steps, by a plan for these settings.
  std::string weights_after(std::vector<std::string> more) const {
    const RunConfig config = must(load_config("", small_run(dir, settings(std::move(more)))));
    const Prepared prepared = must(prepare(config, "", true));
    run_session(prepared, 4, dir / "saved");
    std::string out = file_bytes(dir / "saved/model.safetensors");
    fs::remove_all(dir / "saved");
    return out;
  }

  TempDir dir;
};

TEST(Distillation, MakesTheStepsOfTrl) {
  const Taught taught;
  std::map<int64_t, Prepared> plans;  // by loss_top_k
  for (const json& of : reference()["cases"]) {
    SCOPED_TRACE(of["name"]);
    std::vector<std::string> settings{"train.learning_rate=" + of["learning_rate"].dump()};
    for (const auto& [key, value] : of["keys"].items())
      settings.push_back("objective." + key + "=" + value.dump());
    const RunConfig config = must(load_config("", small_run(taught.dir, taught.settings(settings))));
    const int64_t count = config.objective.loss_top_k;
    if (!plans.contains(count)) plans.emplace(count, must(prepare(config, "", true)));
    Prepared prepared = plans.at(count);
    prepared.config = config;
    const auto session = must(Session::open(prepared));
    int step = 0;
    for (const json& expected : of["steps"]) {
      SCOPED_TRACE(++step);
      const StepResult result = must(session->step());
      EXPECT_NEAR(result.loss, expected["loss"], 2e-5 * (1 + expected["loss"].get<double>()));
      EXPECT_NEAR(result.gradient_norm, expected["gradient_norm"],
                  1e-4 * (1e-3 + expected["gradient_norm"].get<double>()));
      EXPECT_NEAR(value_of(result, "nll_loss"), expected["nll_loss"],
                  1e-4 * expected["nll_loss"].get<double>());
      if (HasFailure()) return;
    }
  }
}

TEST(Distillation, DependsOnNoCapNorThread) {
  const Taught taught;
  const std::string chunks = "shape.chunk_tokens=40", rounds = "shape.rounds=5",
                    head = "shape.head_tokens=20";
  const std::string expected = taught.weights_after({chunks, rounds, head});
  EXPECT_TRUE(taught.weights_after({chunks, rounds, head, "run.threads=3", "memory.device=768KiB"}) ==
              expected);
}

// Derivatives are those of the value, also where tokens are missing.
TEST(Distillation, HasTheSlopesOfItsValue) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::vector<float> teacher{-0.9f, kNone, -1.6f, -3.1f}, model{-2.1f, -0.5f, -1.2f, -4.0f};
  for (const double beta : {0.0, 0.25, 1.0}) {
    for (const double temperature : {0.0, 1.0, 3.0}) {  // 0: with the tail
      ObjectiveKeys keys;
      keys.beta = beta;
      keys.loss_add_tail = temperature == 0;
      keys.temperature = temperature == 0 ? 1 : temperature;
      std::vector<float> slopes(4), ignored(4);
      EXPECT_GT(divergence_of(keys, {teacher, model}, slopes).value, 0);
      EXPECT_EQ(slopes[1], 0);
      for (size_t i = 0; i < model.size(); ++i) {
        std::vector<float> up = model, down = model;
        constexpr float kStep = 1.0f / 256;
        up[i] += kStep, down[i] -= kStep;
        const double by_value = (divergence_of(keys, {teacher, up}, ignored).value -
                                 divergence_of(keys, {teacher, down}, ignored).value) /
                                (2.0 * kStep);
        EXPECT_NEAR(slopes[i], by_value, 2e-5) << beta << " " << temperature << " " << i;
      }
      EXPECT_NEAR(divergence_of(keys, {teacher, teacher}, slopes).value, 0, 1e-12);
      for (const float slope : slopes) EXPECT_NEAR(slope, 0, 1e-6);
    }
  }
}

// The same record as other programs write it.
TEST(Distillation, ReadsWhatOthersRecord) {
  const Taught taught;
  const auto content = [&](const std::string& line) {
    taught.dir.add("taught.jsonl", line + "\n");
    const RunConfig config = must(load_config("", small_run(taught.dir, taught.settings({}))));
    const RunData data = must(open_data(config, 97));
    const GradedAnswer answer = data.prompts->group(0).answers.at(0);
    std::string out;
    for (size_t i = 0; i < answer.top_ids.size(); ++i)
      if (answer.top_ids[i] >= 0) out += fmt::format("{}:{:g} ", answer.top_ids[i], answer.top_log_probs[i]);
    return out;
  };
  const std::string expected = "34:-0.5 7:-2 34:-1 ";
  const std::string begin = R"({"prompt": "a", "completion": "BC", "logprobs": )";
  EXPECT_EQ(content(begin + R"([[-2, -0.5], [-1]], "logprob_token_ids": [[7, 34], [34]]})"), expected);
  EXPECT_EQ(content(begin + R"([{"34": -0.5, "7": {"logprob": -2, "rank": 2}}, {"34": -1}]})"), expected);
  const std::string first = R"([{"token": "token_id:34", "logprob": -0.5}, {"token_id": 7, "logprob": -2}])",
                    second = R"([{"id": 34, "logprob": -1}])";
  EXPECT_EQ(content(begin + "[" + first + ", " + second + "]}"), expected);
  EXPECT_EQ(content(begin + R"({"content": [{"top_logprobs": )" + first + R"(}, {"top_logprobs": )" + second +
                    "}]}}"),
            expected);
  EXPECT_EQ(content(R"({"prompt": "a", "completions": ["BC"], "target_logprobs": [[[-2, -0.5], [-1]]], )"
                    R"("target_token_ids": [[[7, 34], [34]]]})"),
            expected);
}

TEST(Distillation, RefusesWhatCannotBeLearntFrom) {
  const Taught taught;
  const auto expect = [&](const std::string& line, const std::string& part,
                          std::vector<std::string> more = {}) {
    taught.dir.add("taught.jsonl", line + "\n");
    const std::string said = taught.refusal(std::move(more));
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const std::string begin = R"({"prompt": "a", "completion": "BC", "logprobs": )",
                    at = "taught.jsonl:1: logprobs: ";
  EXPECT_EQ((taught.dir.add("taught.jsonl", begin + R"([{"34": -0.5}, null]})"), taught.refusal()), "");
  expect(R"({"prompt": "a"})", "taught.jsonl:1: no completion: ");
  expect(R"({"prompt": "a", "completion": "B"})", "taught.jsonl:1: no logprobs: ");
  expect(begin + "[]}", at + "answer 1: a list of 2 is needed, one for each token; 0 are there");
  expect(begin + R"([{"34": -0.5}, {"97": -1}]})", at + "answer 1: token 2: the teacher's token 97 is none");
  expect(begin + R"([[-1], [-1]], "logprob_token_ids": [[1], [1, 2]]})",
         "token 2: logprob_token_ids has another");
  expect(begin + R"([[-1], [-1]]})", "token 1: logprob_token_ids is needed beside numbers");
  expect(begin + R"([{"34": 0.5}, null]})", "token 1: the teacher's probabilities add up to 1.65; natural");
  expect(begin + R"([[{"token": "x", "logprob": -1}], null]})", "token 1: a token is a number");
  expect(begin + R"([null, null], "rewards": [1]})", "rewards: nothing reads it");
  expect("{}", "objective.loss_top_k: train.objective = distillation needs it", {"objective.loss_top_k=0"});
  expect("{}", "objective.beta = 2: with train.objective", {"objective.beta=2"});
  expect("{}", "objective.loss_add_tail = false compares", {"objective.temperature=2"});
  expect("{}", "rollout.samples: train.objective = distillation samples no answers", {"rollout.samples=2"});
}

TEST(Distillation, IsShownWithItsAnswers) {
  const Taught taught;
  const RunConfig config = must(load_config("", small_run(taught.dir, taught.settings({}))));
  const DataView view = must(view_data(config, 97, 1, silent_observer()));
  EXPECT_EQ(view.train.documents, int64_t(reference()["records"].size()));
  ASSERT_FALSE(view.rows.empty());
  EXPECT_GT(view.rows[0].documents[0].learnt, 0);
}

}  // namespace
}  // namespace sluice::core
