// SPDX-License-Identifier: Apache-2.0
#include "dataset/tokenize.h"

#include <gtest/gtest.h>

#include "dataset/corpus.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

Tokenizer open(const std::string& name) {
  auto tokenizer = Tokenizer::open(fs::path(SLUICE_TOKENIZERS) / (name + ".json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  return std::move(*tokenizer);
}

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  EXPECT_TRUE(tokenizer.encode(text, true, ids).ok());
  return ids;
}

Ids content(const TokenSet& set) {
  Ids ids(size_t(set.tokens()));
  set.read(0, ids);
  return ids;
}

std::string prose(int64_t bytes) {
  std::string text;
  for (int64_t i = 0; int64_t(text.size()) < bytes; ++i)
    text += fmt::format("It's the {}th naïve fox, 一二\n", i * i);
  return text;
}

CorpusOptions all_of(const TempDir& dir, const Tokenizer& tokenizer) {
  CorpusOptions options;
  options.sources.paths = {(dir / "in").string()};
  options.heldout = 0;
  options.making.tokenizer = &tokenizer;
  options.threads = 3;
  return options;
}

TEST(Tokenize, DocumentsAreEncodedApartAndInOrder) {
  const TempDir dir;
  const Tokenizer tokenizer = open("llama3");
  Ids expected;
  for (int i = 0; i < 300; ++i) {
    const std::string text = fmt::format("Document {} of\n\n many {}", i, std::string(size_t(i % 7), '!'));
    dir.add(fmt::format("in/{:03}.txt", i), text);
    const Ids ids = encoded(tokenizer, text);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  const auto corpus = open_corpus(all_of(dir, tokenizer), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents(), 300);
  EXPECT_EQ(content(corpus->train), expected);
  EXPECT_EQ(corpus->findings.count(FindingKind::NoToken), 0);
}

// Parts of a document and their tokens, of any size and by any number of threads, are those of the whole.
TEST(Tokenize, LongDocumentsKeepTheirTokensInParts) {
  const TempDir dir;
  const std::string text = prose(300000);
  const TextRange range{dir.add("a.txt", text), 0, int64_t(text.size()), int64_t(text.size())};
  for (const char* name : {"llama3", "qwen2", "llama2", "metaspace"}) {
    const Tokenizer tokenizer = open(name);
    const Ids expected = encoded(tokenizer, text);
    for (const int64_t part : {int64_t{1000}, int64_t{50000}, int64_t{1} << 20}) {
      const fs::path path = dir / fmt::format("{}-{}.tokens", name, part);
      auto writer = TokenFileWriter::create(path, token_bytes(tokenizer));
      const Status status = tokenize(std::span(&range, 1), tokenizer, {3, part, 100000}, *writer);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(writer->commit().ok());
      const auto set = open_tokens(path);
      EXPECT_EQ(content(*set), expected) << name << " in parts of " << part;
      EXPECT_EQ(set->documents(), 1);
    }
  }
}

std::string refusal(const TempDir& dir, const Tokenizer& tokenizer, std::string text,
                    TokenizeOptions options) {
  const TextRange range{dir.add("a.txt", text), 0, int64_t(text.size()), int64_t(text.size())};
  auto writer = TokenFileWriter::create(dir / "out.tokens", 4);
  const Status status = tokenize(std::span(&range, 1), tokenizer, options, *writer);
  return status.ok() ? "" : status.message();
}

TEST(Tokenize, RefusesByLineWhatCannotBeCut) {
  const TempDir dir;
  const std::string lines = prose(3000), run(50000, 'a');
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  const std::string message = refusal(dir, open("llama3"), lines + run, {2, 2000, 10000});
  EXPECT_NE(message.find((dir / "a.txt").string()), std::string::npos) << message;
  EXPECT_NE(message.find("without a place where the document could be cut"), std::string::npos) << message;
  // The line on which the part begins that cannot be cut: near the last.
  const auto line = std::stoll(message.substr(message.find("line ") + 5));
  EXPECT_GT(line, count / 2);
  EXPECT_LE(line, count + 1);
  // A document that may be held whole needs no place.
  EXPECT_EQ(refusal(dir, open("llama3"), lines + run, {2, 2000, 100000}), "");
  EXPECT_EQ(refusal(dir, open("behaviors"), prose(50000), {2, 2000, 100000}), "");
  EXPECT_NE(refusal(dir, open("behaviors"), prose(50000), {2, 2000, 10000}), "");
}

TEST(Tokenize, RefusesByLineWhatIsNotUtf8) {
  const TempDir dir;
  const Tokenizer tokenizer = open("qwen2");
  for (const int64_t part : {int64_t{100}, int64_t{1} << 20}) {
    const std::string message = refusal(dir, tokenizer, prose(2000) + "x\n\xc3(", {2, part, 1 << 20});
    const auto lines = std::count_if(message.begin(), message.end(), [](char c) { return c == '\n'; });
    EXPECT_EQ(lines, 0);
    const std::string text = prose(2000);
    const auto line = std::count(text.begin(), text.end(), '\n') + 2;
    EXPECT_NE(message.find(fmt::format("a.txt: line {}: byte 0xc3 is not UTF-8", line)), std::string::npos)
        << message;
    EXPECT_NE(message.find("data.exclude"), std::string::npos) << message;
  }
  // A character that the end of a window cuts is none of that.
  std::string wide;
  for (int i = 0; i < 2000; ++i) wide += i % 5 == 0 ? " 一" : "二";
  EXPECT_EQ(refusal(dir, tokenizer, wide, {2, 100, 1 << 20}), "");
}

TEST(Tokenize, CountsWhatATokenizerLeavesOut) {
  const TempDir dir;
  dir.add("in/a.txt", "fox собака fox, \u0440");
  const Tokenizer tokenizer = open("smollm2");
  const auto corpus = open_corpus(all_of(dir, tokenizer), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_GT(corpus->findings.count(FindingKind::NoToken), 0);
  EXPECT_NE(corpus->findings.warnings().at(0).find("have no token and are left out: a.txt"),
            std::string::npos);
}

TEST(Corpus, TokensOfAnotherTokenizerAreOthers) {
  const TempDir dir;
  dir.add("in/a.txt", prose(1000));
  const Tokenizer llama = open("llama3"), qwen = open("qwen2");
  const auto first = open_corpus(all_of(dir, llama), dir / "cache");
  const auto other = open_corpus(all_of(dir, qwen), dir / "cache");
  const auto again = open_corpus(all_of(dir, llama), dir / "cache");
  CorpusOptions bytes = all_of(dir, llama);
  bytes.making.tokenizer = nullptr;
  const auto plain = open_corpus(bytes, dir / "cache");
  ASSERT_TRUE(first.ok() && other.ok() && again.ok() && plain.ok());
  EXPECT_TRUE(first->built && other->built && plain->built);
  EXPECT_FALSE(again->built);
  EXPECT_EQ(first->key, again->key);
  EXPECT_EQ(content(again->train), encoded(llama, prose(1000)));
  EXPECT_NE(first->key, other->key);
  EXPECT_NE(first->key, plain->key);
}

// A single file is cut between lines, or else between characters.
TEST(Corpus, HoldsOutWholeLinesOfText) {
  const TempDir dir;
  const std::string text = prose(5000);
  dir.add("in/a.txt", text);
  const Tokenizer tokenizer = open("llama2");
  CorpusOptions options = all_of(dir, tokenizer);
  options.heldout = 0.2;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  const auto decoded = tokenizer.decode(content(*corpus->heldout), true);
  EXPECT_TRUE(decoded->starts_with("It's the ")) << decoded->substr(0, 40);
  EXPECT_TRUE(text.ends_with(*decoded));
  EXPECT_EQ(place_between("一二三", 4), 3);
  EXPECT_EQ(place_between("ab\ncd\nef", 4), 6);
  EXPECT_EQ(place_between("ab", 1), 1);
}

}  // namespace
}  // namespace sluice::core
