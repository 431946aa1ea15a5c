// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/philox.h"
#include "chat/chat_template.h"
#include "chat/texts.h"
#include "io/file.h"
#include "records/findings.h"
#include "records/line_reader.h"
#include "records/recognise.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

class Records : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path file(std::string_view name, std::string_view text) {
    EXPECT_TRUE(write_file(folder_ / name, text).ok());
    return folder_ / name;
  }
  // The texts of all records, or the error.
  std::string read(const fs::path& path, RecordOptions options = {}) {
    auto reader = RecordReader::open(path, options);
    if (!reader.ok()) return reader.message();
    std::string all;
    Record record;
    while (true) {
      const auto more = reader->next(record);
      if (!more.ok()) return all + more.message();
      if (!*more) break;
      all += fmt::format("{}|", record.kind == Record::Kind::Chat ? messages(record) : record.text);
    }
    malformed_ = reader->malformed();
    return all;
  }
  static std::string messages(const Record& record) {
    std::string text;
    for (const ChatValue& message : record.chat.messages) text += to_json(message);
    return text;
  }
  static std::string parsed(std::string_view line) {
    const auto record = parse_record(line);
    return record.ok() ? (record->kind == Record::Kind::Chat ? messages(*record) : record->text)
                       : record.message();
  }

  fs::path folder_;
  int64_t malformed_ = 0;
};

TEST_F(Records, AreReadFromLinesAndFromFilesOfText) {
  EXPECT_EQ(read(file("a.jsonl", "\xef\xbb\xbf{\"text\": \"one\"}\r\n\n  \n{\"text\": \"\\u00e9\"}")),
            "one|é|");
  EXPECT_EQ(read(file("a.txt", "{\"text\": \"one\"}\nmore\n")), "{\"text\": \"one\"}\nmore\n|");
  EXPECT_EQ(read(file("empty.jsonl", "")), "");
  EXPECT_EQ(read(file("empty.txt", "")), "");
  EXPECT_EQ(read(file("p.jsonl", R"({"prompt": "q", "completion": " a"})")), "q a|");
}

TEST_F(Records, ThatAreMalformedAreRefusedWithFileLineAndReason) {
  const auto refused = [&](std::string_view text) { return read(file("a.jsonl", text)); };
  EXPECT_NE(
      refused("{\"text\": \"a\"}\n{\"text\": 1}\n").find("a.jsonl: line 2: text is a number, no string"),
      std::string::npos);
  EXPECT_NE(refused("{\"text\": \"a\"\n").find("a.jsonl: line 1: column "), std::string::npos);
  EXPECT_NE(refused("{\"remark\": \"a\"}\n").find("its keys are: remark; data.fields.prompt"),
            std::string::npos);
  EXPECT_NE(refused("{\"question\": \"a\"}\n").find("question without an answer"), std::string::npos);
  EXPECT_NE(refused("{\"text\": \"a\", \"score\": NaN}\n").find("NaN and Infinity are no JSON: write null"),
            std::string::npos);
  EXPECT_NE(refused("{\"text\": \"a\"}\n\n{\"prompt\": \"a\", \"completion\": \"b\"}\n")
                .find("line 3: prompt and completion, where line 1 has text"),
            std::string::npos);
  EXPECT_NE(refused("{\"text\": \"\xff\"}\n").find("line 1: "), std::string::npos);
  EXPECT_NE(refused(std::string("{\"text\": \"a\0b\"}", 15)).find("line 1: "), std::string::npos);
  EXPECT_NE(refused("{\"messages\": []}\n").find("messages is empty"), std::string::npos);
  EXPECT_NE(refused("{\"messages\": [{\"content\": \"x\"}]}\n").find("messages[0]: role is missing"),
            std::string::npos);
  EXPECT_NE(
      refused("{\"messages\": [{\"role\": \"user\"}]}\n").find("messages[0]: neither content nor tool_calls"),
      std::string::npos);
  EXPECT_NE(refused("{\"conversations\": [{\"from\": \"me\", \"value\": \"x\"}]}\n")
                .find("from 'me'; allowed are human"),
            std::string::npos);
  EXPECT_NE(refused("{\"text\": \"abc\", \"learnt\": [[0, 4]]}\n").find("which rise up to 3"),
            std::string::npos);
  EXPECT_NE(read(file("a.txt", "a\nb\xff")).find("a.txt: line 2: byte 0xff is not UTF-8"), std::string::npos);
  EXPECT_NE(read(folder_ / "none.jsonl").find("none.jsonl"), std::string::npos);
  EXPECT_NE(read(file("long.jsonl", "{\"text\": \"a\"}\n" + std::string(200, ' ')), {.most_line_bytes = 100})
                .find("long.jsonl: line 2: more than 100 bytes long"),
            std::string::npos);
}

TEST_F(Records, ThatAreMalformedAreSkippedAndCounted) {
  const fs::path path = file("a.jsonl", "{\"text\": \"a\"}\nno\n{\"text\": 1}\n{\"text\": \"b\"}\n");
  EXPECT_EQ(read(path, {.skip_malformed = true}), "a|b|");
  EXPECT_EQ(malformed_, 2);
}

TEST_F(Records, MayBeCompressed) {
  EXPECT_EQ(read(fs::path(SLUICE_COMPRESSED) / "two.jsonl.gz"), "one|two|");
  EXPECT_EQ(read(fs::path(SLUICE_COMPRESSED) / "members.jsonl.gz"), "one|two|one|two|");
  EXPECT_EQ(read(fs::path(SLUICE_COMPRESSED) / "two.jsonl.zst"), "one|two|");
  for (const char* name : {"two.jsonl.gz", "two.jsonl.zst"}) {
    const auto whole = read_file(fs::path(SLUICE_COMPRESSED) / name);
    for (size_t size = 4; size < whole->size(); size += 3) {
      const std::string result = read(file(name, whole->substr(0, size)));
      EXPECT_TRUE(result.find("ends in the middle") != result.npos || result.find("not gzip") != result.npos)
          << name << " " << size << ": " << result;
    }
    std::string damaged = *whole;
    damaged[damaged.size() / 2] = char(damaged[damaged.size() / 2] ^ 0x55);
    EXPECT_NE(read(file(name, damaged)), "one|two|");
  }
}

// Whoever decompressed a file by hand, or a browser that did, may have left it its name.
TEST_F(Records, AreCompressedAsTheirNameSays) {
  const std::string text = "{\"text\": \"one\"}\n";
  const std::string gzip = *read_file(fs::path(SLUICE_COMPRESSED) / "two.jsonl.gz");
  EXPECT_EQ(
      read(file("a.jsonl.gz", text)),
      (folder_ / "a.jsonl.gz: its name says gzip, but it is not compressed; rename it to a.jsonl").string());
  EXPECT_EQ(read(file("a.md.zst", text)),
            (folder_ / "a.md.zst: its name says zstd, but it is not compressed; rename it to a.md").string());
  EXPECT_EQ(read(file("a.jsonl", gzip)),
            (folder_ / "a.jsonl: compressed by gzip, which its name does not say; rename it to a.jsonl.gz")
                .string());
  EXPECT_EQ(read(file("a.csv.zst", gzip)),
            (folder_ / "a.csv.zst: its name says zstd, but it is compressed by gzip; rename it to a.csv.gz")
                .string());
}

// A refusal that no way out follows leaves its reader with nothing to do.
TEST_F(Records, ThatCannotBeReadAreRefusedWithAWayOut) {
  const auto refused = [&](std::string_view text) {
    const std::string message = read(file("a.jsonl", text));
    return message.substr(message.find("line 1: "));
  };
  const std::string half =
      ": half of a character, an escape from \\ud800 to \\udfff without its other half; write the whole "
      "character or none, or leave such records out with data.malformed = skip";
  EXPECT_EQ(refused(R"({"text": "a \ud800 b"})"), "line 1: column 19" + half);
  EXPECT_EQ(refused(R"({"text": "a \udc00 b"})"), "line 1: column 18" + half);
  EXPECT_EQ(refused(R"({"segments": "abc"})"),
            R"(line 1: segments is a string; allowed is a list of {"label": true, "text": "..."})");
  EXPECT_EQ(refused(R"({"segments": [{"label": 1, "text": "abc"}]})"),
            "line 1: segments[0]: label is a number; allowed are true, where the text is learnt, and false");
}

TEST_F(Records, OfShareGptBecomeMessages) {
  EXPECT_EQ(
      parsed(
          R"({"system": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
      R"({"role": "system", "content": "s"}{"role": "user", "content": "q"}{"role": "assistant", "content": "a"})");
  EXPECT_EQ(
      parsed(R"({"conversations": [{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
                       {"from": "observation", "value": "1"}]})"),
      R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]})"
      R"({"role": "tool", "content": "1"})");
}

TEST_F(Records, ToolsMayBeAStringThatHoldsAList) {
  const auto tools = [](std::string_view text) {
    const auto record = parse_record(
        fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}], "tools": {}}})", text));
    return record.ok() ? to_json(record->chat.tools) : record.message();
  };
  EXPECT_EQ(tools(R"([{"name": "f"}])"), R"([{"name": "f"}])");
  EXPECT_EQ(tools(R"("[{\"name\": \"f\"}]")"), R"([{"name": "f"}])");
  EXPECT_EQ(tools("null"), "null");
  EXPECT_EQ(tools("1"), "tools is a number, no list");
  EXPECT_EQ(tools("\"{}\""), "tools: a string that holds an object, no list");
}

// Lines of random lengths come whole, whatever the pieces they are read in.
TEST_F(Records, LinesComeWhole) {
  std::string text;
  std::vector<size_t> sizes;
  for (uint64_t i = 0; i < 400; ++i) {
    sizes.push_back(philox(1, i, 0).v[0] % (i % 50 == 0 ? 200000 : 900));
    text += std::string(sizes.back(), char('a' + i % 26)) + "\n";
  }
  auto reader = LineReader::open(file("lines", text), 1 << 20);
  std::string_view line;
  for (const size_t size : sizes) {
    ASSERT_TRUE(*reader->next(line));
    ASSERT_EQ(line.size(), size);
    ASSERT_EQ(line.find_first_not_of(size > 0 ? line.front() : 'a'), line.npos);
  }
  EXPECT_FALSE(*reader->next(line));
  EXPECT_EQ(reader->line(), 400);
}

TEST_F(Records, RandomBytesAreRefusedNotObeyed) {
  const std::string seed =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]})";
  for (uint64_t i = 0; i < 5000; ++i) {
    std::string line = seed;
    for (uint32_t k = 0; k < 1 + i % 4; ++k) {
      const Philox4 random = philox(2, i, k);
      const size_t at = random.v[0] % line.size();
      if (random.v[1] % 3 == 0) {
        line.erase(at, random.v[2] % 9);
      } else if (random.v[1] % 3 == 1) {
        line[at] = char(random.v[2]);
      } else {
        line.insert(at, line.substr(random.v[2] % line.size(), random.v[3] % 20));
      }
      if (line.empty()) line.push_back('x');
    }
    const auto record = parse_record(line);
    EXPECT_TRUE(record.ok() || !record.message().empty());
  }
}

// Documents of a file, their tokens as text with what is learnt in brackets; or the error.
class Documents : public Records {
 protected:
  void SetUp() override {
    Records::SetUp();
    auto opened = Tokenizer::open(fs::path(SLUICE_TOKENIZERS) / "smollm2.json");
    ASSERT_TRUE(opened.ok()) << opened.message();
    tokenizer_ = std::move(*opened);
    making_.tokenizer = &*tokenizer_;
    making_.no_template = "there is none";
  }
  std::string shown(const Document& document) const {
    std::string text;
    bool learnt = false;
    const auto turn = [&](bool now) {
      if (now != learnt) text += now ? "[" : "]";
      learnt = now;
    };
    for (size_t i = 0; i < document.tokens.ids.size(); ++i) {
      turn(document.tokens.learnt[i] == 1);
      text += *tokenizer_->decode(std::span(document.tokens.ids).subspan(i, 1), false);
    }
    turn(false);
    return text;
  }
  std::string read(const fs::path& path, const ReadingOptions& options = {}) {
    std::string all;
    findings_ = {};
    const auto take = [&](Document& document) {
      findings_.add(document, making_, path.filename().string());
      all += fmt::format("{}:{}|", document.line, shown(document));
      return Status();
    };
    const Status read =
        read_documents(path, making_, options, take, [&](const Error& at) { findings_.skip(at); });
    return read.ok() ? all : all + read.message();
  }

  std::optional<Tokenizer> tokenizer_;
  void use_template(std::string_view text) {
    auto parsed = ChatTemplate::parse(text, {}, "own");
    ASSERT_TRUE(parsed.ok()) << parsed.message();
    chats_ = std::move(*parsed);
    making_.chat_template = &*chats_;
  }
  // A record of a question and its answer.
  static std::string chat(std::string_view question, std::string_view answer, std::string_view more = "") {
    return fmt::format(
        R"({{{}"messages": [{{"role": "user", "content": "{}"}}, {{"role": "assistant", "content": "{}"}}]}})",
        more, question, answer);
  }

  TokenMaking making_;
  std::optional<ChatTemplate> chats_;
  Findings findings_;
};

constexpr std::string_view kPairs =
    "{\"prompt\": \"abc\", \"completion\": \" def\"}\n\n{\"prompt\": \"abc\", \"completion\": \"\"}\n";

TEST_F(Documents, HaveWhatIsLearntMarked) {
  EXPECT_EQ(read(file("p.jsonl", kPairs)), "1:abc[ def]|3:abc|");
  making_.learn = Learn::Everything;
  EXPECT_EQ(read(file("p.jsonl", kPairs)), "1:[abc def]|3:[abc]|");
  making_.learn = Learn::Assistant;
  EXPECT_EQ(read(file("m.jsonl", R"({"text": "ab cd ef", "learnt": [[2, 5]]})")), "1:ab[ cd] ef|");
  EXPECT_EQ(read(file("a.txt", "ab cd")), "0:[ab cd]|");
  // What ends an answer is learnt, too.
  making_.end = tokenizer_->id("<|endoftext|>");
  ASSERT_GE(making_.end, 0);
  EXPECT_EQ(read(file("p.jsonl", kPairs)), "1:abc[ def<|endoftext|>]|3:abc<|endoftext|>|");
  EXPECT_EQ(read(file("a.txt", "ab cd")), "0:[ab cd<|endoftext|>]|");
}

TEST_F(Documents, FindingsSayWhatUsuallyIsAMistake) {
  read(file("p.jsonl", kPairs));
  EXPECT_EQ(findings_.kinds[size_t(Record::Kind::Pair)], 2);
  EXPECT_EQ(
      findings_.warnings(),
      (std::vector<std::string>{
          "in 1 of 2 documents nothing is learnt: p.jsonl:3",
          "in 1 of 2 documents no special token ends an answer, and a model does not learn to stop there: "
          "p.jsonl:1",
          "1 answer is empty and not learnt, as a model would learn from it to say nothing: p.jsonl:3"}));
  const auto kept = Findings::parse(findings_.to_text());
  ASSERT_TRUE(kept.ok()) << kept.message();
  EXPECT_EQ(kept->to_text(), findings_.to_text());
  EXPECT_EQ(kept->warnings(), findings_.warnings());
  EXPECT_FALSE(Findings::parse("{}").ok());
}

// Chats that a template made already: as plain text all of them would be learnt.
TEST_F(Documents, ThatBeginWithARenderedTurnAreFound) {
  for (const char* text :
       {"<|im_start|>user\\nq", "<s>[INST] q [/INST] a", "<|begin_of_text|><|start_header_id|>user",
        "  <start_of_turn>user", "<|user|>\\nq", "### Human: q", "<|endoftext|><|im_start|>system",
        "<|start_of_role|>user", "USER: q\\nASSISTANT: a", "A chat. USER: q ASSISTANT: a</s>",
        "Be brief.\\nHuman: q\\n\\nAssistant: a"}) {
    read(file("t.jsonl", fmt::format(R"({{"text": "{}"}})", text)));
    EXPECT_EQ(findings_.count(FindingKind::RenderedChats), 1) << text;
  }
  for (const char* text : {"The token <|im_start|> begins a turn.", "[INSTALL] it", "<html>",
                           "<|endoftext|>Once", "", "user: q", "USER: q", "of `USER:` and `ASSISTANT:` lines",
                           "The user: an assistant: a role", "It said User: q Assistant: a"}) {
    read(file("t.jsonl", fmt::format(R"({{"text": "{}"}})", text)));
    EXPECT_EQ(findings_.count(FindingKind::RenderedChats), 0) << text;
  }
  making_.learn = Learn::Everything;
  read(file("t.jsonl", R"({"text": "[INST] q [/INST]"})"));
  EXPECT_EQ(findings_.count(FindingKind::RenderedChats), 0) << "that all is learnt is meant";
}

// A template ends turns itself, and what a message says is text.
TEST_F(Documents, WhoseAnswersEndWithATokenThatIsWrittenOutAreFound) {
  use_template(chat_texts().front().text);
  const auto found = [&](const char* answer, const char* question = "q") {
    read(file("t.jsonl", chat(question, answer)));
    return findings_.count(FindingKind::TypedEnds);
  };
  EXPECT_EQ(found("a<|endoftext|>"), 1);
  EXPECT_EQ(found("a <|endoftext|>\\n"), 1);
  const std::string said = fmt::format("{}", fmt::join(findings_.warnings(), "|"));
  EXPECT_NE(said.find("special token that is written out: t.jsonl:1. There"), std::string::npos) << said;
  for (const char* answer : {"a", "a<b>", "<|endoftext|> ends a turn", "", "a]", ">"})
    EXPECT_EQ(found(answer), 0) << answer;
  EXPECT_EQ(found("a", "q<|endoftext|>"), 0);
  making_.special = {making_.tokenizer->id("<|endoftext|>")};
  EXPECT_EQ(found("a<|endoftext|>"), 0) << "it is the token";
}

TEST(Recognise, RecordsOfJsonInAFileOfText) {
  for (const char* text :
       {R"({"messages": [{"role": "user"}]})", R"({ "id": 3, "text": "a"})", "{\"prompt\": \"cut"})
    EXPECT_TRUE(begins_with_record(text)) << text;
  for (const char* text :
       {"", "{", "{}", "text", "{\n  \"text\": \"a\"}", R"({"cells": []})", "[\"text\"]", "{text}"})
    EXPECT_FALSE(begins_with_record(text)) << text;
}

TEST_F(Documents, WhoseTemplateReadsNotWhatItIsToldNameIt) {
  use_template("{{ think }}{% for m in messages %}{{ m.content }}{% endfor %}");
  for (const auto& [name, count] : {std::pair{"think", 0}, {"thinks", 1}}) {
    const std::string told = fmt::format(R"("chat_template_kwargs": {{"{}": "a"}}, )", name);
    read(file("t.jsonl", chat("q", "a", told)));
    EXPECT_EQ(findings_.count(FindingKind::UnusedKeys), count) << name;
  }
}

TEST_F(Documents, WithHistoryNeedTurns) {
  making_.without_template = true;
  const std::string said =
      read(file("h.jsonl", R"({"question": "q", "answer": "a", "history": [["q1", "a1"]]})"));
  EXPECT_NE(said.find("line 1: history: it needs turns of a chat: there is none"), std::string::npos) << said;
}

// A model that is trained without the token that ends its turn never stops.
TEST_F(Documents, ThatAreMarkedLearnTheTokenThatEndsATurn) {
  const auto marked = [&](std::string_view text, int begin, int end) {
    return read(file("m.jsonl", fmt::format(R"({{"text": "{}", "learnt": [[{}, {}]]}})", text, begin, end)));
  };
  EXPECT_EQ(marked("q a<|endoftext|>", 1, 16), "1:q[ a<|endoftext|>]|");
  EXPECT_EQ(marked("q a", 1, 3), "1:q[ a]|");
  EXPECT_EQ(marked("q a bc", 1, 3), "1:q[ a] bc|") << "nothing ends it there";
  const std::string refusal =
      "m.jsonl: line 1: what is learnt leaves out <|endoftext|>, which ends it: a model trained so never "
      "stops. "
      "Let it "
      "reach over that token, or set data.open_ends = true";
  EXPECT_NE(marked("q a<|endoftext|>", 1, 3).find(refusal), std::string::npos)
      << marked("q a<|endoftext|>", 1, 3);
  EXPECT_NE(marked("q a\\n<|endoftext|>", 1, 3).find(refusal), std::string::npos);
  EXPECT_NE(
      read(
          file("m.jsonl",
               R"({"segments": [{"label": true, "text": " a"}, {"label": false, "text": "<|endoftext|>"}]})"))
          .find(refusal),
      std::string::npos);
  making_.open_ends = true;
  EXPECT_EQ(marked("q a<|endoftext|>", 1, 3), "1:q[ a]<|endoftext|>|");
  EXPECT_EQ(findings_.count(FindingKind::OpenEnds), 1);
  // White space behind the end is learnt by some.
  EXPECT_EQ(read(file("s.jsonl", R"({"segments": [{"label": true, "text": "a<|endoftext|>\n"}]})")),
            "1:[a<|endoftext|>\n]|");
  EXPECT_EQ(findings_.count(FindingKind::OpenEnds), 0);
}

TEST_F(Documents, ThatCannotBecomeTokensAreMalformed) {
  const fs::path path = file("c.jsonl", R"({"messages": [{"role": "user", "content": "q"}]})");
  EXPECT_NE(read(path).find("c.jsonl: line 1: a conversation: there is none"), std::string::npos);
  ReadingOptions skip;
  skip.records.skip_malformed = true;
  EXPECT_EQ(read(path, skip), "");
  EXPECT_EQ(findings_.count(FindingKind::Malformed), 1);
  EXPECT_NE(findings_.warnings().at(0).find("1 malformed record was skipped: " + path.string() +
                                            ": line 1: a conversation"),
            std::string::npos)
      << findings_.warnings().at(0);
}

// Whatever is taken up at once, and by however many threads.
TEST_F(Documents, AreTheSameForAnyNumberOfThreads) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text +=
        fmt::format(R"({{"prompt": "{}", "completion": " {}"}})", std::string(size_t(i % 9), 'a'), i) + "\n";
  const fs::path path = file("p.jsonl", text);
  const std::string one = read(path);
  EXPECT_EQ(std::count(one.begin(), one.end(), '|'), 500);
  for (const int64_t bytes : {1, 100, 5000}) EXPECT_EQ(read(path, {.threads = 4, .batch_bytes = bytes}), one);
  // An error comes after what is before it, and before a worse one behind it.
  const fs::path bad = file("b.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n" + std::string(300, 'x'));
  ReadingOptions options;
  options.records.most_line_bytes = 100;
  EXPECT_NE(read(bad, options).find("1:[a]|" + bad.string() + ": line 2: text is a number"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::core
