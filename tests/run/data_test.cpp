// SPDX-License-Identifier: Apache-2.0
// Runs on conversations: what is learnt of them, whatever the caps are and wherever the run goes on.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "commands/commands.h"
#include "config/files/load_config.h"
#include "io/safetensors.h"
#include "run/data/data_view.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

std::string chat_folder() {
  return (fs::path(SLUICE_FIXTURES) / "chat_tiny").string();
}

// A run on the chats of the folder, one packed row a step.
std::vector<std::string> chat_run(const TempDir& dir, const std::string& name,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings =
      small_run(dir, {"model.config=" + chat_folder(), "data.paths=[\"" + chat_folder() + "/chats.jsonl\"]",
                      "data.heldout=0", "train.seq_len=256", "train.tokens_per_step=256", "train.steps=4",
                      "shape.chunk_tokens=64", "run.checkpoint_every=1", "run.keep_last=100",
                      "run.dir=" + (dir / name).string()});
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

Outcome start(const std::vector<std::string>& settings) {
  Requests asked;
  return train({"", settings, ""}, asked);
}

// Weights and moments.
std::string bytes_of(const TempDir& dir, const std::string& run, int step) {
  std::string bytes;
  for (const char* name : {"model", "optimizer"}) {
    const SafeTensorsFile file = must(
        SafeTensorsFile::open(dir / fmt::format("{}/checkpoints/step-{}/{}.safetensors", run, step, name)));
    for (const SafeTensor& t : file.tensors())
      bytes.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  }
  return bytes;
}

std::vector<nlohmann::json> metrics_of(const TempDir& dir, const std::string& run) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(file_bytes(dir / (run + "/metrics.jsonl")));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(ChatData, OfTheAssistantsTurnsTheTextAndTheirEndAreLearnt) {
  const TempDir dir;
  const RunConfig config = must(load_config("", chat_run(dir, "run")));
  EXPECT_TRUE(packs_documents(config));
  const DataView view = must(view_data(config, 259, 100, silent_observer()));
  EXPECT_EQ(view.chat_template, "chatml");
  EXPECT_EQ(view.train.documents, 6);
  EXPECT_EQ(view.findings.warnings(), std::vector<std::string>{});
  std::vector<std::string> learnt;
  std::string all, special;
  for (const ShownRow& row : view.rows) {
    for (const ShownDocument& document : row.documents) {
      for (const ShownRun& run : document.runs) {
        all += run.text;
        if (run.special) special += run.text;
        if (run.part == Part::Learnt && !run.special) learnt.push_back(run.text);
        if (run.part == Part::Learnt && run.special) learnt.back() += run.text;
      }
    }
  }
  std::sort(learnt.begin(), learnt.end());
  EXPECT_EQ(learnt, (std::vector<std::string>{
                        "A forward and a backward pass.<|im_end|>", "A hard limit on memory.<|im_end|>",
                        "A memory that bytes lie in: a device, or the host.<|im_end|>",
                        "For every task and copy: when, where, and for what it waits.<|im_end|>",
                        "No: that is text, naïve or not.<|im_end|>", "None.<|im_end|>",
                        "Tokens processed together.<|im_end|>"}));
  // What a user wrote is text, though it looks like a special token.
  EXPECT_NE(all.find("Does <|im_end|> end this?"), std::string::npos);
  const auto count = [](const std::string& text, std::string_view what) {
    int64_t n = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(all, "<|im_end|>"), count(special, "<|im_end|>") + 1);
}

// What is sampled by default is an answer to what was held out, up to the token that ends it.
TEST(ChatData, TheFirstHeldOutTurnIsThePromptOfSamples) {
  const TempDir dir;
  const std::string held = chat_folder() + "/chats.jsonl";
  const auto data_of = [&](const std::vector<std::string>& more) {
    return must(open_data(must(load_config("", chat_run(dir, "run", more))), 259));
  };
  const std::string text = "data.paths=[\"" SLUICE_FIXTURES "/README.md\"]";
  RunData data = data_of({"data.heldout_paths=[\"" + held + "\"]", text});
  EXPECT_EQ(data.prompt, "<|im_start|>user\nWhat is a cap?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(data.answer_end, 258);
  // A prompt has to leave as much room for the answer, and be itself when it is read again.
  const auto chat = [](const std::string& asked) {
    return R"({"messages": [{"role": "user", "content": ")" + asked +
           R"("}, {"role": "assistant", "content": "6"}]})"
           "\n";
  };
  dir.add("held.jsonl", chat(std::string(200, 'a')) + chat("an <|im_end|>") + chat("2 * 3 =") + chat("none"));
  data = data_of({"data.heldout_paths=[\"" + (dir / "held.jsonl").string() + "\"]"});
  EXPECT_EQ(data.prompt, "<|im_start|>user\n2 * 3 =<|im_end|>\n<|im_start|>assistant\n");
  // Text answers nothing.
  data = data_of({text});
  EXPECT_EQ(data.prompt, "// ");
  EXPECT_EQ(data.answer_end, -1);
}

// Nothing is said behind the token that ends an answer, though config.json names none that ends a text.
TEST(ChatData, SamplesEndWithTheAnswer) {
  const TempDir dir;
  dir.add("chats.jsonl",
          R"({"messages": [{"role": "user", "content": "2 * 3 ="}, {"role": "assistant", "content": "6"}]})");
  const std::string chats = "data.paths=[\"" + (dir / "chats.jsonl").string() + "\"]";
  const Prepared prepared = must(prepare(
      must(load_config(
          "",
          chat_run(dir, "run", {chats, "train.seq_len=64", "train.tokens_per_step=64", "train.steps=40"}))),
      "", true));
  RunData data = must(open_data(prepared.config, 259));
  const std::string prompt = data.prompt;
  const auto session = must(Session::open(prepared, std::move(data)));
  for (int step = 0; step < 40; ++step) must(session->step());
  EXPECT_EQ(must(session->sample(prompt, 8, 0, 0)), "6<|im_end|>");
}

TEST(ChatData, ConversationsThatTeachNothingEndTheStart) {
  const TempDir dir;
  dir.add("chats.jsonl",
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0}]}
)");
  const auto opened = [&](std::vector<std::string> more) {
    more.push_back("data.paths=[\"" + (dir / "chats.jsonl").string() + "\"]");
    const auto data = open_data(must(load_config("", chat_run(dir, "run", more))), 259);
    return data.ok() ? data->unlearnt : data.message();
  };
  EXPECT_EQ(opened({}),
            "data.paths: in 1 conversation nothing is learnt: chats.jsonl:2; training starts with "
            "data.allow_unlearnt = true");
  const Outcome refused =
      start(chat_run(dir, "run", {"data.paths=[\"" + (dir / "chats.jsonl").string() + "\"]"}));
  EXPECT_NE(refused.message.find("data.allow_unlearnt = true"), std::string::npos) << refused.message;
  EXPECT_EQ(opened({"data.allow_unlearnt=true"}), "");
  EXPECT_EQ(opened({"data.learn=all-turns"}), "");
  EXPECT_NE(opened({"data.learn=marked"}).find("has no {% generation %}"), std::string::npos);
  EXPECT_EQ(opened({"data.allow_unlearnt=true", "data.special_in_text=[\"<|x|>\"]"}),
            "data.special_in_text: '<|x|>' is no special token of the tokenizer");
}

// What was learnt with is beside the weights: the chosen template and its variables.
TEST(ChatData, CheckpointsHaveTheChosenTemplate) {
  const TempDir dir;
  dir.add("own.jinja",
          "{{ style }}{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}"
          "{% if add_generation_prompt %}[assistant]{% endif %}");
  const auto texts = [&](const std::vector<std::string>& more) {
    return must(open_data(must(load_config("", chat_run(dir, "run", more))), 259)).model_texts;
  };
  EXPECT_EQ(texts({}).count("chat_template.jinja"), 0U);
  const auto own =
      texts({"data.chat_template=" + (dir / "own.jinja").string(), R"(data.template_kwargs={"style": "x"})"});
  ASSERT_EQ(own.count("chat_template.jinja"), 1U);
  EXPECT_TRUE(
      own.at("chat_template.jinja").starts_with("{%- if style is not defined %}{% set style = \"x\" %}"));
}

// Those that scripts/finetune learns from: turns alternate, and what is held out is asked in other words.
// A base model that learns turns stops at no end of them, unless its folder says so.
TEST(ChatData, AnEndThatIsNoneOfTheFoldersIsNamed) {
  const TempDir dir;
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(fs::path(chat_folder()) / file, dir / file);
  const auto notice = [&](const char* generation, const char* chats = "/chats.jsonl") {
    dir.add("generation_config.json", generation);
    const RunConfig config =
        must(load_config("", chat_run(dir, "run",
                                      {"model.config=" + dir.path().string(), "data.date=2026-01-31",
                                       "data.paths=[\"" + chat_folder() + chats + "\"]"})));
    const RunData data = must(open_data(config, 259));
    EXPECT_EQ(data.other_end.empty(), data.notices.empty());
    const DataView view = must(view_data(config, 259, 0, silent_observer()));
    EXPECT_EQ(std::count(view.warnings.begin(), view.warnings.end(), data.other_end),
              data.other_end.empty() ? 0 : 1);
    if (const auto text = data.model_texts.find("generation_config.json"); text != data.model_texts.end()) {
      const auto ends = nlohmann::json::parse(text->second)["eos_token_id"];
      EXPECT_EQ(ends, generation == std::string("{}") ? std::vector<int>{258} : (std::vector<int>{256, 258}));
    } else {
      EXPECT_EQ(data.other_end, "");
    }
    return data.other_end;
  };
  const std::string said = notice(R"({"eos_token_id": 256})");
  EXPECT_NE(said.find("answers end with <|im_end|> (token 258)"), std::string::npos) << said;
  EXPECT_NE(said.find("(eos_token_id 256): checkpoints have it in generation_config.json"), std::string::npos)
      << said;
  // Whatever is held out, and however short rows are.
  const RunConfig held = must(load_config(
      "", chat_run(dir, "run",
                   {"model.config=" + dir.path().string(), "data.date=2026-01-31", "data.heldout=0.3",
                    "train.seq_len=16", "train.tokens_per_step=16", "shape.chunk_tokens=16"})));
  EXPECT_EQ(must(open_data(held, 259)).other_end, said);
  EXPECT_EQ(notice(R"({"eos_token_id": [256, 258]})"), "");
  EXPECT_EQ(notice(R"({"eos_token_id": 258})"), "");
  EXPECT_NE(notice("{}").find("(no eos_token_id): checkpoints have it"), std::string::npos);
}

TEST(ChatData, OfTheRepositoryIsWhatItsDocumentsSay) {
  const fs::path folder = fs::path(SLUICE_FIXTURES).parent_path().parent_path() / "configs/finetune";
  std::set<std::string> asked;
  int turns = 0;
  for (const char* name : {"chats.jsonl", "heldout.jsonl"}) {
    std::istringstream text(file_bytes(folder / name));
    for (std::string line; std::getline(text, line);) {
      const auto messages = nlohmann::json::parse(line).at("messages");
      for (size_t i = 0; i < messages.size(); ++i, ++turns) {
        EXPECT_EQ(messages[i].at("role"), i % 2 == 0 ? "user" : "assistant") << line;
        EXPECT_FALSE(messages[i].at("content").get<std::string>().empty()) << line;
      }
      EXPECT_EQ(messages.size() % 2, 0u) << line;
      EXPECT_TRUE(asked.insert(messages.at(0).at("content")).second) << line;
    }
  }
  EXPECT_GE(turns, 200);
  const TempDir dir;
  const RunConfig config =
      must(load_config("", chat_run(dir, "run",
                                    {"data.paths=[\"" + (folder / "chats.jsonl").string() + "\"]",
                                     "data.heldout_paths=[\"" + (folder / "heldout.jsonl").string() + "\"]",
                                     "train.seq_len=1024", "train.tokens_per_step=1024"})));
  EXPECT_EQ(must(view_data(config, 259, 1, silent_observer())).findings.warnings(),
            std::vector<std::string>{});
}

TEST(ChatData, TheKeySaysWhatIsLearnt) {
  const TempDir dir;
  const auto learnt = [&](const char* key) {
    const RunConfig config = must(load_config("", chat_run(dir, "run", {std::string("data.learn=") + key})));
    return must(open_data(config, 259)).train_documents;
  };
  const int64_t assistant = learnt("assistant").learnt;
  EXPECT_EQ(learnt("completion").learnt, assistant);
  // One conversation has another turn of the assistant before its last, of 26 characters and its end.
  EXPECT_EQ(learnt("last").learnt, assistant - 27);
  EXPECT_GT(learnt("all-turns").learnt, assistant);
  EXPECT_EQ(learnt("everything").learnt, learnt("everything").tokens);
}

// Of the first steps' chunks, those in which nothing is learnt.
int empty_chunks(const RunConfig& config, int64_t steps) {
  constexpr size_t kChunk = 64;
  const RunData data = must(open_data(config, 259));
  Rows rows({BatchColumn::Targets}, 256);
  const auto targets = rows.column(BatchColumn::Targets);
  int found = 0;
  for (int64_t step = 0; step < steps; ++step) {
    data.train->fill(step, 0, rows.part(0, 256));
    for (auto at = targets.begin(); at != targets.end(); at += kChunk)
      found += std::all_of(at, at + kChunk, [](int32_t target) { return target < 0; }) ? 1 : 0;
  }
  return found;
}

// Attention costs what it does on these conversations, not on rows of one document.
TEST(ChatRuns, CostsAreMeasuredForTheirDocuments) {
  const TempDir dir;
  const RunConfig config = must(load_config("", chat_run(dir, "run")));
  const RowSample sample = sample_rows(must(open_data(config, 259)));
  ASSERT_GT(sample.rows(), 1);
  const int64_t length = document_tokens(sample);
  EXPECT_GT(length, 1);
  EXPECT_LT(length, sample.sequence);
  ASSERT_EQ(start(chat_run(dir, "run", {"train.steps=1"})).message, "");
  std::string costs;
  for (const auto& entry : std::filesystem::directory_iterator(config.data.cache)) {
    if (entry.path().filename().string().starts_with("costs-")) costs += must(read_file(entry.path()));
  }
  EXPECT_NE(costs.find(fmt::format("sequences of {}, documents of {}\"", config.train.seq_len, length)),
            std::string::npos)
      << costs.substr(0, 400);
}

TEST(ChatRuns, HaveTheSameBitsUnderEveryCap) {
  const TempDir dir;
  EXPECT_GT(empty_chunks(must(load_config("", chat_run(dir, "free"))), 4), 0);
  ASSERT_EQ(start(chat_run(dir, "free")).message, "");
  for (const char* cap : {"600KiB", "450KiB"}) {
    const std::string device = std::string("memory.device=") + cap;
    const Outcome outcome = start(chat_run(dir, cap, {device, "train.deferred_update=on"}));
    ASSERT_EQ(outcome.message, "");
    EXPECT_TRUE(bytes_of(dir, cap, 4) == bytes_of(dir, "free", 4)) << cap;
  }
}

TEST(ChatRuns, GoOnFromEveryStepWithTheSameBatches) {
  const TempDir dir;
  ASSERT_EQ(start(chat_run(dir, "whole")).message, "");
  const auto whole = metrics_of(dir, "whole");
  for (int step = 1; step < 4; ++step) {
    const std::string name = fmt::format("from{}", step);
    const std::string from = (dir / fmt::format("whole/checkpoints/step-{}", step)).string();
    ASSERT_EQ(start(chat_run(dir, name, {"run.resume=" + from, "memory.device=600KiB"})).message, "");
    const auto again = metrics_of(dir, name);
    ASSERT_EQ(again.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(again[i].at("loss"), whole[i].at("loss")) << name << " " << i;
    EXPECT_TRUE(bytes_of(dir, name, 4) == bytes_of(dir, "whole", 4)) << name;
  }
}

TEST(ChatRuns, EpochsSayHowManySteps) {
  const TempDir dir;
  const RunConfig config = must(load_config("", chat_run(dir, "run")));
  const int64_t rows = must(open_data(config, 259)).train->epoch_rows();
  ASSERT_EQ(start(chat_run(dir, "run", {"train.epochs=2"})).message, "");
  EXPECT_EQ(int64_t(metrics_of(dir, "run").size()), 2 * rows);
  EXPECT_NE(start(chat_run(dir, "none", {"train.epochs=2", "data.paths=[]"})).message.find("have no epochs"),
            std::string::npos);
}

TEST(ChatRuns, EvaluationsSayBitsPerByte) {
  const TempDir dir;
  ASSERT_EQ(start(chat_run(dir, "run", {"data.heldout=0.3", "train.steps=1"})).message, "");
  const auto line = metrics_of(dir, "run").at(0);
  // Every token is a byte but the end of a turn, of ten bytes: the mean is between 1 and 10.
  const double bits = line.at("heldout_loss").get<double>() / std::log(2.0);
  EXPECT_LT(line.at("heldout_bits_per_byte").get<double>(), bits);
  EXPECT_GT(line.at("heldout_bits_per_byte").get<double>(), bits / 10);
}

// Rows of one long prompt: in some of them nothing is learnt.
TEST(ChatRuns, AStepWithNothingToLearnSaysSoAndChangesNothing) {
  const TempDir dir;
  dir.add("pairs.jsonl", "{\"prompt\": \"" + std::string(400, 'a') + "\", \"completion\": \"" +
                             std::string(300, 'b') + "\"}\n");
  for (const char* deferred : {"off", "on"}) {
    const std::vector<std::string> settings =
        chat_run(dir, deferred,
                 {"data.paths=[\"" + (dir / "pairs.jsonl").string() + "\"]", "data.mode=contiguous",
                  "train.seq_len=64", "train.tokens_per_step=64", "train.steps=8",
                  std::string("train.deferred_update=") + deferred});
    ASSERT_EQ(start(settings).message, "");
    const auto lines = metrics_of(dir, deferred);
    int skipped = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool nothing = lines[i].at("loss").is_null();
      EXPECT_EQ(lines[i].at("skipped").get<bool>(), nothing) << lines[i];
      if (i == 0) continue;
      const bool same = bytes_of(dir, deferred, int(i) + 1) == bytes_of(dir, deferred, int(i));
      EXPECT_EQ(same, nothing) << "step " << i + 1;
      skipped += nothing ? 1 : 0;
    }
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 7);
  }
  for (int step = 1; step <= 8; ++step)
    EXPECT_TRUE(bytes_of(dir, "on", step) == bytes_of(dir, "off", step)) << step;
}

TEST(ChatRuns, AreRefusedWithoutATemplateThatRenders) {
  const TempDir dir;
  for (const char* name : {"config.json", "tokenizer.json"})
    dir.add(std::string("model/") + name, file_bytes(fs::path(chat_folder()) / name));
  const std::string model = "model.config=" + (dir / "model").string();
  EXPECT_NE(start(chat_run(dir, "run", {model})).message.find("line 1: a conversation: "), std::string::npos);
  dir.add("model/chat_template.jinja", "{{ messages[0].content | nothing }}");
  const std::string message = start(chat_run(dir, "run", {model})).message;
  EXPECT_NE(message.find("line 1: chat template: line 1, column 26: the filter nothing is not known"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace sluice::core
