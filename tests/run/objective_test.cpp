// SPDX-License-Identifier: Apache-2.0
// Runs that compare answers: ten steps of every objective with what TRL's trainers make of them
// (tests/fixtures/make_objectives.py), and the same bits however they are planned and resumed.
#include "objective/objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json& reference() {
  static const json all = json::parse(file_bytes(fs::path(SLUICE_FIXTURES) / "objectives.json"));
  return all;
}

// A folder with llama_tiny, a tokenizer of characters whose answers end with a special token, and answers to
// compare.
struct Answers {
  Answers() {
    model_with_tokenizer(dir);
    json tokenizer = json::parse(file_bytes(dir / "model/tokenizer.json"));
    json end = {{"id", 95}, {"content", "<|end|>"}, {"special", true}};
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) end[flag] = false;
    tokenizer["added_tokens"] = json::array({end});
    dir.add("model/tokenizer.json", tokenizer.dump());
    dir.add("model/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    fs::copy_file(fs::path(SLUICE_FIXTURES) / "llama_tiny" / "model.safetensors",
                  dir / "model/model.safetensors");
    std::string pairs, marks;
    for (const auto& r : reference()["pairs"])
      pairs += json{{"prompt", r[0]}, {"chosen", r[1]}, {"rejected", r[2]}}.dump() + "\n";
    for (const auto& r : reference()["marks"])
      marks += json{{"prompt", r[0]}, {"completion", r[1]}, {"label", r[2]}}.dump() + "\n";
    dir.add("pairs.jsonl", pairs);
    dir.add("marks.jsonl", marks);
  }

  // Settings of a run whose steps are all of the data, in f32, by plain gradients.
  std::vector<std::string> settings(const std::string& objective) const {
    const bool kto = objective == "kto";
    std::vector<std::string> all =
        plain_gradients(dir, kto ? "marks.jsonl" : "pairs.jsonl", objective.c_str());
    all.insert(all.end(), {"data.heldout=0", "train.learning_rate=0.5", "train.steps=10",
                           "train.tokens_per_step=80", kto ? "train.seq_len=16" : "train.seq_len=40"});
    return all;
  }

  TempDir dir;
};

struct Opened {
  std::unique_ptr<Prepared> prepared;
  std::unique_ptr<Session> session;
};
Opened open(const TempDir& dir, std::vector<std::string> settings) {
  RunConfig config = must(load_config("", small_run(dir, std::move(settings))));
  const RunData data = must(open_data(config, 97));
  config.train.tokens_per_step = data.train->epoch_rows() * config.train.seq_len;
  Opened out{std::make_unique<Prepared>(must(prepare(config, "", /*between_steps=*/true))), nullptr};
  out.session = must(Session::open(*out.prepared));
  return out;
}

TEST(Objectives, MakeTheStepsOfTrl) {
  const Answers answers;
  for (const json& of : reference()["cases"]) {
    const std::string name = of["name"];
    SCOPED_TRACE(name);
    std::vector<std::string> settings = answers.settings(name.substr(0, name.find(' ')));
    settings.push_back("train.learning_rate=" + of["learning_rate"].dump());
    for (const auto& [key, value] : of["keys"].items())
      settings.push_back("objective." + key + "=" +
                         (value.is_string() ? value.get<std::string>() : value.dump()));
    Opened run = open(answers.dir, settings);
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

TEST(Objectives, CompareTheTokensOfTrl) {
  const TempDir dir;
  dir.add("chats.jsonl", reference()["chat"].dump() + "\n");
  dir.add("chatml.jinja", reference()["template"].get<std::string>());
  const RunConfig config = must(load_config(
      "",
      small_run(dir, {"model.config=" + (fs::path(SLUICE_FIXTURES) / "chat_tiny").string(),
                      "train.objective=dpo", "data.heldout=0", "train.seq_len=256",
                      "train.tokens_per_step=256", "data.chat_template=" + (dir / "chatml.jinja").string(),
                      "data.paths=[\"" + (dir / "chats.jsonl").string() + "\"]"})));
  const RunData data = must(open_data(config, 259));
  const std::vector<RowSide> sides = data.train->sides(0, 0);
  ASSERT_EQ(sides.size(), 2U);
  const json& expected = reference()["sides"];
  for (const RowSide& s : sides) {
    EXPECT_EQ(s.answer - s.begin, expected["prompt"]);
    EXPECT_EQ(s.end - s.answer, expected[s.which == 0 ? "chosen" : "rejected"]);
  }
}

TEST(Objectives, RefuseAPairThatNoRowHolds) {
  const Answers answers;
  std::vector<std::string> settings = answers.settings("dpo");
  settings.insert(settings.end(), {"train.seq_len=24", "train.tokens_per_step=48"});
  const auto refused = open_data(must(load_config("", small_run(answers.dir, settings))), 97);
  EXPECT_NE(refused.message().find("pairs.jsonl:6: 32 tokens, and a row has train.seq_len = 24"),
            std::string::npos)
      << refused.message();
  settings.push_back("data.long_documents=drop");
  const RunData left = must(open_data(must(load_config("", small_run(answers.dir, settings))), 97));
  EXPECT_EQ(left.train->counts().dropped, 1);
}

// A run's weights after so many steps in all.
std::string weights_after(Opened run, int64_t steps) {
  while (run.session->steps_done() < steps) must(run.session->step());
  const TempDir dir;
  must(run.session->save(dir / "saved"));
  return file_bytes(dir / "saved/model.safetensors");
}

TEST(Objectives, HaveEqualBitsHoweverTheyArePlannedAndResumed) {
  const Answers answers;
  for (const std::string objective : {"kto", "orpo"}) {
    SCOPED_TRACE(objective);
    const auto with = [&](std::initializer_list<std::string> more) {
      std::vector<std::string> settings = answers.settings(objective);
      const char* const chunk = objective == "kto" ? "shape.chunk_tokens=16" : "shape.chunk_tokens=40";
      settings.insert(settings.end(), {chunk, "shape.rounds=2", "train.deferred_update=off"});
      settings.insert(settings.end(), more);
      return open(answers.dir, std::move(settings));
    };
    Opened first = with({});
    const StepShape& shape = first.prepared->shape;
    // Plans may choose other shapes, which have other bits.
    const std::string chunks = fmt::format("shape.first_round_chunks={}", shape.chunks_in(0)),
                      head = fmt::format("shape.head_tokens={}", shape.head_tokens);
    const std::string expected = weights_after(std::move(first), 4);
    if (objective == "orpo") {
      EXPECT_TRUE(weights_after(with({chunks, head, "run.threads=3", "memory.device=640KiB"}), 4) ==
                  expected);
      continue;
    }
    EXPECT_TRUE(weights_after(with({chunks, head, "run.devices=2", "train.deferred_update=on"}), 4) ==
                expected);
    const fs::path saved = answers.dir / "saved";
    {
      Opened half = with({chunks, head});
      for (int i = 0; i < 2; ++i) must(half.session->step());
      must(half.session->save(saved));
    }
    // The reference is what the run began with, also where nothing of it is kept.
    EXPECT_GT(fs::remove_all(answers.dir / "cache/references"), 1U);
    EXPECT_TRUE(weights_after(with({"run.resume=" + saved.string()}), 4) == expected);
  }
}

}  // namespace
}  // namespace sluice::core
