// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/philox.h"
#include "io/file.h"
#include "records/line_reader.h"
#include "records/survey.h"
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
    for (const Value& message : record.chat.messages) text += to_json(message);
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
  EXPECT_NE(refused("[{\"text\": \"a\"}]\n").find("jq -c '.[]'"), std::string::npos);
  EXPECT_NE(refused("{\"question\": \"a\"}\n").find("its keys are: question"), std::string::npos);
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

TEST_F(Records, SurveyCountsWhatIsLearntAndWarns) {
  const auto tokenizer = Tokenizer::open(fs::path(SLUICE_TOKENIZERS) / "smollm2.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const fs::path path =
      file("p.jsonl",
           "{\"prompt\": \"abc\", \"completion\": \" def\"}\n{\"prompt\": \"abc\", \"completion\": \"\"}\n");
  const std::vector<fs::path> files{path};
  SurveyOptions options;
  options.tokenizer = &*tokenizer;
  options.sequence = 2;
  const auto found = survey(files, options);
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->documents, 2);
  EXPECT_EQ(found->kinds[size_t(Record::Kind::Pair)], 2);
  EXPECT_GT(found->learnt, 0);
  EXPECT_LT(found->learnt, found->tokens);
  EXPECT_EQ(found->without_learnt, 1);
  EXPECT_EQ(found->without_end, 1);
  ASSERT_EQ(found->examples.size(), 2u);
  EXPECT_EQ(found->examples[0].runs.back().text, " def");
  EXPECT_TRUE(found->examples[0].runs.back().learnt);
  EXPECT_EQ(found->examples[0].place, path.string() + ": line 1");
  EXPECT_EQ(std::accumulate(found->lengths.begin(), found->lengths.end(), int64_t{0}), 2);
  EXPECT_GE(found->warnings().size(), 2u);
  options.no_template = "there is none";
  const std::vector<fs::path> chats{file("c.jsonl", R"({"messages": [{"role": "user", "content": "q"}]})")};
  const auto refused = survey(chats, options);
  EXPECT_NE(refused.message().find("c.jsonl: line 1: a conversation: there is none"), std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace sluice::core
