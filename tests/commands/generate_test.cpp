// SPDX-License-Identifier: Apache-2.0
// Text from a tiny model, as the command prints it. It has no tokenizer, so its text is bytes, those
// below 97.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/chat_turns.h"
#include "commands/commands.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

GenerateRequest request() {
  GenerateRequest r;
  r.model = SLUICE_FIXTURES "/llama_tiny";
  r.tokens = 12;
  r.ignore_stop_tokens = true;  // a random model says them anywhere
  r.settings = {"run.backend=cpu", "run.threads=2"};
  return r;
}

std::string printed(const GenerateRequest& r, Outcome* outcome = nullptr) {
  Requests asked;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Outcome got = generate(r, asked);
  const std::string out = testing::internal::GetCapturedStdout();
  (void)testing::internal::GetCapturedStderr();
  EXPECT_TRUE(outcome != nullptr || got.ok()) << got.message;
  if (outcome != nullptr) *outcome = got;
  return out;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

TEST(GenerateCommand, AnswersComeInTheOrderOfThePrompts) {
  const TempDir dir;
  GenerateRequest r = request();
  r.json = true;
  r.batch = 2;
  r.prompts = {"A LONG PROMPT, LONGER THAN THE OTHERS", "B"};
  r.file = dir.add("more.jsonl", "{\"prompt\": \"C 3\"}\n\n{\"prompt\": \"D\"}\r\n").string();
  const std::vector<json> lines = lines_of(printed(r));
  ASSERT_EQ(lines.size(), 4u);
  const char* const prompts[] = {"A LONG PROMPT, LONGER THAN THE OTHERS", "B", "C 3", "D"};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("prompt"), prompts[i]);
    EXPECT_EQ(lines[i].at("tokens").size(), 12u);
    EXPECT_EQ(lines[i].at("end"), "length");
    std::string text;
    for (const json& token : lines[i].at("tokens")) text += char(token.get<int>());
    EXPECT_EQ(lines[i].at("text"), text);
  }
}

TEST(GenerateCommand, TextIsThatOfTheJson) {
  GenerateRequest r = request();
  r.prompts = {"ONE"};
  const std::string text = printed(r);
  r.json = true;
  EXPECT_EQ(text, lines_of(printed(r)).at(0).at("text").get<std::string>() + "\n");
  r.json = false;
  r.prompts = {"ONE", "TWO\nLINES"};
  const std::string both = printed(r);
  EXPECT_EQ(both.rfind("[1] ONE\n" + text, 0), 0u) << both;
  EXPECT_NE(both.find("\n[2] TWO\n"), std::string::npos) << both;
}

TEST(GenerateCommand, AStopStringAndAStopTokenEndIt) {
  GenerateRequest r = request();
  r.prompts = {"ONE"};
  r.json = true;
  const json whole = lines_of(printed(r)).at(0);
  const auto text = whole.at("text").get<std::string>();
  r.stop = {text.substr(4, 2)};
  const json stopped = lines_of(printed(r)).at(0);
  EXPECT_EQ(stopped.at("end"), "stop string");
  EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(r.stop[0])));
  r.stop.clear();
  r.stop_tokens = {whole.at("tokens").at(5).get<int64_t>()};
  const json ended = lines_of(printed(r)).at(0);
  EXPECT_EQ(ended.at("end"), "stop token");
  EXPECT_LE(ended.at("tokens").size(), 5u);
}

TEST(GenerateCommand, SeedsDecideWhatIsDrawn) {
  GenerateRequest r = request();
  r.prompts = {"ONE"};
  r.json = true;
  r.temperature = 1.5;
  r.seed = 3;
  const std::string first = printed(r);
  EXPECT_EQ(printed(r), first);
  r.seed = 4;
  EXPECT_NE(printed(r), first);
}

TEST(GenerateCommand, ATokenThatTheModelLacksIsRefused) {
  GenerateRequest r = request();
  r.prompts = {"lower case"};
  Outcome outcome;
  EXPECT_EQ(printed(r, &outcome), "");
  EXPECT_EQ(outcome.message,
            "prompt 1: the tokenizer makes token 108 of it, but the model has tokens 0 to 96 only");
}

TEST(GenerateCommand, TurnsAreThoseOfTheFoldersTemplate) {
  const TempDir dir;
  const std::string chats = SLUICE_FIXTURES "/chat_tiny/chats.jsonl";
  RunRequest training;
  training.settings = {"model.config=" SLUICE_FIXTURES "/chat_tiny/config.json",
                       "data.paths=[\"" + chats + "\"]",
                       "train.seq_len=64",
                       "train.tokens_per_step=64",
                       "train.steps=200",
                       "train.learning_rate=1e-2",
                       "sample.tokens=0",
                       "run.backend=cpu",
                       "run.threads=1",
                       "run.trace=false",
                       "train.compute=f32",
                       "data.cache=" + (dir / "cache").string(),
                       "run.dir=" + (dir / "run").string()};
  Requests asked;
  ASSERT_EQ(train(training, asked).message, "");
  GenerateRequest r = request();
  r.model = (dir / "run/checkpoints/latest").string();
  r.json = true;
  r.temperature = 1;
  r.prompts = {"What is a cap?"};
  const json text = lines_of(printed(r)).at(0);
  r.chat = true;
  r.system = "Be brief.";
  const json turn = lines_of(printed(r)).at(0);
  EXPECT_EQ(turn.at("prompt"), r.prompts[0]);
  EXPECT_NE(turn.at("tokens"), text.at("tokens"));
  r.chat = false;
  r.prompts = {
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is a cap?<|im_end|>\n"
      "<|im_start|>assistant\n"};
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens"), turn.at("tokens"));
}

TEST(ChatTurns, AreMarksAndWhatWasTyped) {
  const fs::path folder = SLUICE_FIXTURES "/chat_tiny";
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto turns = ChatTurns::open(folder, *tokenizer, RunConfig(), "s");
  ASSERT_TRUE(turns.ok()) << turns.message();
  const auto ids = turns->encode("<|im_end|>");
  ASSERT_TRUE(ids.ok()) << ids.message();
  // Bytes, and 257 and 258 where turns begin and end.
  std::string shown;
  for (const int32_t id : *ids) shown += id == 257 ? '{' : id == 258 ? '}' : char(id);
  EXPECT_EQ(shown, "{system\ns}\n{user\n<|im_end|>}\n{assistant\n");
  EXPECT_EQ(turns->end(), "<|im_end|>");
}

TEST(ChatTurns, AFolderWithoutAKnownTemplateIsRefusedWithTheWayOut) {
  const TempDir dir;
  const auto tokenizer = Tokenizer::open(SLUICE_FIXTURES "/chat_tiny/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto none = ChatTurns::open(dir.path(), *tokenizer, RunConfig(), "");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.message().find("neither chat_template.jinja nor"), std::string::npos) << none.message();
  dir.add("chat_template.jinja", "{{ messages }}");
  const auto unknown = ChatTurns::open(dir.path(), *tokenizer, RunConfig(), "");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.message().find("scripts/render_chats renders conversations with Jinja"),
            std::string::npos);
  EXPECT_NE(unknown.message().find("--prompts"), std::string::npos) << unknown.message();
}

}  // namespace
}  // namespace sluice::core
