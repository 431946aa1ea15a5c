// SPDX-License-Identifier: Apache-2.0
// Text from a tiny model, as the command prints it. It has no tokenizer, so its text is bytes, those
// below 97.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/chat_turns.h"
#include "commands/commands.h"
#include "io/safetensors.h"
#include "run/loaded/folder_defaults.h"
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

std::string printed(const GenerateRequest& r, Outcome* outcome = nullptr, std::string* warned = nullptr) {
  Requests asked;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Outcome got = generate(r, asked);
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  if (warned != nullptr) *warned = err;
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

TEST(GenerateCommand, WhatAFileOfPromptsSaysBesideIsNamed) {
  const TempDir dir;
  GenerateRequest r = request();
  const auto warned = [&](const char* name, const char* text) {
    std::string out;
    Outcome ignored;  // the model has no token of a brace
    r.file = dir.add(name, text).string();
    printed(r, &ignored, &out);
    return out;
  };
  EXPECT_NE(warned("a.jsonl", R"({"prompt": "A", "system": "S", "id": 3})")
                .find("a.jsonl: \"prompt\" alone is taken of its lines, and not id, system"),
            std::string::npos);
  EXPECT_NE(warned("a.JSONL", R"({"prompt": "A"})").find("a.JSONL: its first line is JSON, all of which is"),
            std::string::npos);
  EXPECT_EQ(warned("a.txt", "{A}\nB\n").find("JSON"), std::string::npos);
  Outcome outcome;
  r.file = dir.add("b.jsonl", R"({"prompt": "A", "prompt": "B"})").string();
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("line 1 is no JSON object with a string \"prompt\": "), std::string::npos)
      << outcome.message;
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

// The fixture in a folder of its own, with a tokenizer of bytes and special tokens, and files beside.
fs::path folder_of(const TempDir& dir, const char* fixture,
                   const std::vector<std::pair<std::string, std::string>>& files) {
  const fs::path from = fs::path(SLUICE_FIXTURES) / fixture;
  fs::create_directories(dir / "m");
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(from / file, dir / "m" / file);
  for (const auto& [name, text] : files) dir.add("m/" + name, text);
  return dir / "m";
}

// Letters of the fixture's vocabulary, of which one is a special token, <end>.
std::string letters(int end) {
  json vocab = json::object();
  for (int c = 0; c < 97; ++c)
    vocab[c == end ? "<end>" : c < 33 ? fmt::format("<{}>", c) : std::string(1, char(c))] = c;
  return json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
              {"added_tokens",
               {{{"id", end},
                 {"content", "<end>"},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false},
                 {"special", true}}}}}
      .dump();
}

TEST(GenerateCommand, AStopStringThatIsASpecialTokenStops) {
  const TempDir dir;
  GenerateRequest r = request();
  r.model = folder_of(dir, "llama_tiny", {}).string();
  r.prompts = {"AAA"};
  r.json = true;
  r.temperature = 5;
  r.tokens = 50;
  const auto tokens = lines_of(printed(r)).at(0).at("tokens").get<std::vector<int>>();
  const auto at = std::find_if(tokens.begin() + 5, tokens.end(), [](int token) { return token != 'A'; });
  ASSERT_NE(at, tokens.end());
  dir.add("m/tokenizer.json", letters(*at));
  r.stop = {"<end>"};
  const json stopped = lines_of(printed(r)).at(0);
  EXPECT_EQ(stopped.at("end"), "stop token");
  EXPECT_EQ(stopped.at("tokens").size(), size_t(std::find(tokens.begin(), at, *at) - tokens.begin()));
  // One that the folder says stops, too, unless what it says is left aside.
  r.stop = {};
  r.ignore_stop_tokens = false;
  dir.add("m/generation_config.json", R"({"stop_strings": ["<end>"], "eos_token_id": -1})");
  EXPECT_EQ(lines_of(printed(r)).at(0).at("end"), "stop token");
  Outcome outcome;
  r.stop = {"<end>A"};
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("--stop '<end>A': <end> is a special token"), std::string::npos)
      << outcome.message;
  r.stop = {};
  r.stop_tokens = {97};
  printed(r, &outcome);
  EXPECT_EQ(outcome.message, "--stop-token 97: the model has tokens 0 to 96 only");
  r.stop_tokens = {-1};
  printed(r, &outcome);
  EXPECT_EQ(outcome.message, "--stop-token -1: the model has tokens 0 to 96 only");
}

TEST(GenerateCommand, TheLengthThatAFolderSaysIsKept) {
  const TempDir dir;
  GenerateRequest r = request();
  r.model = folder_of(dir, "llama_tiny", {{"generation_config.json", R"({"max_length": 10})"}}).string();
  r.json = true;
  r.tokens = {};
  r.prompts = {"ABC"};
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens").size(), 7u);
  r.tokens = 9;
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens").size(), 9u);
  r.tokens = {};
  r.prompts = {"ABCDEFGHIJ"};
  Outcome outcome;
  printed(r, &outcome);
  EXPECT_EQ(
      outcome.message,
      "prompt 1: it has 10 tokens, and generation_config.json says max_length = 10, prompt and all; --tokens "
      "says otherwise");
  dir.add("m/generation_config.json", R"({"max_length": 10, "max_new_tokens": 2})");
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens").size(), 2u);
}

TEST(GenerateCommand, TextNeedsATokenizerWhereTokensAreNoBytes) {
  const TempDir dir;
  GenerateRequest r = request();
  r.model = dir.path().string();
  dir.add("config.json", R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 49152})");
  r.prompts = {"What is the capital of France?"};
  Outcome outcome;
  EXPECT_EQ(printed(r, &outcome), "");
  EXPECT_EQ(outcome.message.find("--prompt: this model has a vocabulary of 49152 tokens, and its tokenizer"),
            0u)
      << outcome.message;
  dir.add("tokenizer.model", "x");
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("AutoTokenizer"), std::string::npos) << outcome.message;
  fs::create_symlink("nowhere", dir / "tokenizer.json");
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("tokenizer.json: it is a link to nowhere"), std::string::npos)
      << outcome.message;
}

// The request is judged, not what memory is rounded up to.
TEST(GenerateCommand, AllPositionsOfAModelCanBeUsed) {
  constexpr int64_t positions = 40;
  const TempDir dir;
  GenerateRequest r = request();
  r.json = true;
  r.prompts = {std::string(10, 1)};
  r.model = dir.path().string();
  const fs::path from = SLUICE_FIXTURES "/gpt2_tiny";
  std::ifstream in(from / "config.json");
  json config = json::parse(in);
  config["n_positions"] = positions;
  dir.add("config.json", config.dump());
  const auto files = TensorFiles::open(from);
  ASSERT_TRUE(files.ok()) << files.message();
  std::vector<TensorInfo> infos;
  for (const std::string_view name : files->names()) {
    infos.push_back(files->find(name)->info);
    if (name == "transformer.wpe.weight") infos.back().shape.front() = positions;
  }
  auto writer = SafeTensorsWriter::create(dir / "model.safetensors", infos);
  ASSERT_TRUE(writer.ok()) << writer.message();
  for (const TensorInfo& info : infos)
    EXPECT_TRUE(writer->write(info.name, 0, files->find(info.name)->bytes.first(size_t(info.bytes()))).ok());
  ASSERT_TRUE(writer->commit().ok());
  r.tokens = positions - 10;
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens").size(), size_t(positions - 10));
  r.tokens = {};
  EXPECT_EQ(lines_of(printed(r)).at(0).at("tokens").size(), size_t(positions - 10));
  r.tokens = positions - 9;
  Outcome outcome;
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find(fmt::format("--tokens can be {} at most", positions - 10)),
            std::string::npos)
      << outcome.message;
}

// Context and end of the text part of a model that has more.
TEST(GenerateCommand, AWrappedModelsTextPartSaysItsContextAndItsEnd) {
  const TempDir dir;
  std::ifstream in(SLUICE_FIXTURES "/gemma3_tiny/config.json");
  json part = json::parse(in);
  part["max_position_embeddings"] = 30;
  part["eos_token_id"] = 5;
  dir.add("config.json", json{{"model_type", "gemma3"}, {"text_config", part}}.dump());
  const auto defaults = generation_defaults_of(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.message();
  EXPECT_EQ(defaults->stop_tokens, std::vector<int32_t>{5});
  GenerateRequest r = request();
  r.model = dir.path().string();
  r.prompts = {std::string(10, 1)};
  r.tokens = 21;
  Outcome outcome;
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("the model's context of 30 tokens; --tokens can be 20"), std::string::npos)
      << outcome.message;
  dir.add("config.json", json{{"model_type", "gemma3"}, {"vocab_size", 999}, {"text_config", part}}.dump());
  EXPECT_TRUE(generation_defaults_of(dir.path()).message().starts_with((dir / "config.json").string()));
}

TEST(GenerateCommand, AContextThatIsLessThanTheFoldersSaysWhy) {
  GenerateRequest r = request();
  r.model = SLUICE_FIXTURES "/phi3_tiny_long";  // 40 of 128
  r.prompts = {std::string(41, 1)};
  Outcome outcome;
  printed(r, &outcome);
  EXPECT_NE(outcome.message.find("context of 40 (beyond it, the model's rotary embedding changes)"),
            std::string::npos)
      << outcome.message;
}

// Bytes, and 257 and 258 where turns begin and end.
std::string shown(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += id == 257 ? '{' : id == 258 ? '}' : char(id);
  return text;
}

TEST(ChatTurns, AreMarksAndWhatWasTyped) {
  const fs::path folder = SLUICE_FIXTURES "/chat_tiny";
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto turns = ChatTurns::open(folder, *tokenizer, RunConfig(), {"s", {}, {}, {}});
  ASSERT_TRUE(turns.ok()) << turns.message();
  const auto ids = turns->encode("<|im_end|>");
  ASSERT_TRUE(ids.ok()) << ids.message();
  EXPECT_EQ(shown(*ids), "{system\ns}\n{user\n<|im_end|>}\n{assistant\n");
  EXPECT_EQ(turns->end(), "<|im_end|>");
}

TEST(ChatTurns, GoOnWhereTheAnswerBegins) {
  const fs::path folder = SLUICE_FIXTURES "/chat_tiny";
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto turns = ChatTurns::open(folder, *tokenizer, RunConfig(), {{}, "It is ", {}, {}});
  ASSERT_TRUE(turns.ok()) << turns.message();
  constexpr const char* kBegun = "{user\nq}\n{assistant\nIt is ";
  EXPECT_EQ(shown(*turns->encode("q")), kBegun);
  constexpr std::string_view kRecord = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "It is "}]})";
  EXPECT_NE(turns->encode_record(kRecord).message().find("leave --system, --answer"), std::string::npos);
  const auto alone = ChatTurns::open(folder, *tokenizer, RunConfig(), {});
  EXPECT_EQ(shown(*alone->encode_record(kRecord)), kBegun);
  EXPECT_EQ(shown(*alone->encode_record(R"({"messages": [{"role": "user", "content": "q"}]})")),
            "{user\nq}\n{assistant\n");
  EXPECT_EQ(alone->encode_record(R"({"text": "q"})").message(), "it is no conversation, but text");
}

TEST(ChatTurns, HaveToolsAndDocuments) {
  const fs::path folder = SLUICE_FIXTURES "/chat_tiny";
  const TempDir dir;
  const auto tokenizer = Tokenizer::open(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  RunConfig config;
  config.data.chat_template =
      dir.add("t.jinja", "{{ tools | tojson }}{{ documents | tojson }}{{ kind }}{{ messages[0].content }}")
          .string();
  config.data.template_kwargs = R"({"kind": "k"})";
  const auto list = [](const char* text) { return *parse_value(text); };
  const auto turns =
      ChatTurns::open(folder, *tokenizer, config, {{}, {}, list(R"(["t"])"), list(R"(["d"])")});
  ASSERT_TRUE(turns.ok()) << turns.message();
  EXPECT_EQ(shown(*turns->encode("q")), R"(["t"]["d"]kq)");
  const auto refused = [&](BesidePrompt beside) {
    return ChatTurns::open(folder, *tokenizer, RunConfig(), std::move(beside)).message();
  };
  EXPECT_NE(refused({{}, {}, list(R"(["t"])"), {}}).find("shows no tools; leave --tools out"),
            std::string::npos);
  EXPECT_NE(refused({{}, {}, {}, list(R"(["d"])")}).find("shows no documents; leave --documents out"),
            std::string::npos);
}

TEST(ChatTurns, AFolderWithoutATemplateAndOneThatIsNoneAreRefused) {
  const TempDir dir;
  const auto tokenizer = Tokenizer::open(SLUICE_FIXTURES "/chat_tiny/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto none = ChatTurns::open(dir.path(), *tokenizer, RunConfig(), {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.message().find("neither chat_template.jinja nor"), std::string::npos) << none.message();
  dir.add("chat_template.jinja", "{{ messages\n  | nothing( }}");
  const auto broken = ChatTurns::open(dir.path(), *tokenizer, RunConfig(), {});
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.message().find("chat template: line 2, column 14: "), std::string::npos)
      << broken.message();
}

}  // namespace
}  // namespace sluice::core
