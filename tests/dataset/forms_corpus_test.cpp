// SPDX-License-Identifier: Apache-2.0
// Corpora of the formats that people have, and how they are called beside what Sluice 0.1.0 made of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "dataset/byte_tokenizer.h"
#include "dataset/corpus.h"
#include "io/file.h"
#include "support/temp_dir.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

CorpusOptions all_in(const TempDir& dir) {
  CorpusOptions options;
  options.sources.paths = {(dir / "in").string()};
  options.heldout = 0;
  options.making.without_template = true;
  return options;
}

// Documents as text, with '.' for what is not learnt.
std::multiset<std::string> texts_of(const TokenSet& set) {
  std::multiset<std::string> all;
  for (int64_t t = 0; t < set.tokens();) {
    const TokenSet::Document document = set.document_at(t);
    std::vector<int32_t> targets(size_t(document.end - document.begin));
    set.read_targets(t, targets);
    for (int32_t& target : targets) target = target < 0 ? '.' : target;
    all.insert(ByteTokenizer::decode(targets));
    t = document.end;
  }
  return all;
}
using Texts = std::multiset<std::string>;

TEST(FormsCorpus, EveryFormBecomesDocumentsWithItsAnswerLearnt) {
  const TempDir dir;
  dir.add("in/a.csv", "prompt,completion\nq,a\nq,b\n");
  dir.add("in/b.json", "[{\"text\": \"t\"}, {\"text\": \"u\"}]");
  dir.add("in/c.json", "{\n\"question\": \"q\",\n\"answer\": \"a\"\n}\n");
  CorpusOptions options = all_in(dir);
  options.making.pairs = Pairs::Text;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(texts_of(corpus->train), (Texts{".a", ".b", "t", "u", ".a"}));
  std::vector<std::string> taken;
  for (const auto& t : corpus->findings.taken)
    taken.push_back(fmt::format("{} {} {} {}", t.form, t.first, t.files, t.documents));
  EXPECT_EQ(taken, (std::vector<std::string>{
                       "prompt and completion (CSV) a.csv 1 2", "text (a JSON list) b.json 1 2",
                       "question, answered by answer (JSON over several lines) c.json 1 1"}));
  const auto again = open_corpus(options, dir / "cache");
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_FALSE(again->built);
  EXPECT_EQ(again->findings.to_text(), corpus->findings.to_text());
}

TEST(FormsCorpus, WithoutAChatTemplateAQuestionIsAskedInAlpacasWords) {
  const TempDir dir;
  dir.add("in/a.jsonl", R"({"instruction": "q", "input": "c", "output": "a"})"
                        "\n"
                        R"({"instruction": "q", "output": ""})");
  CorpusOptions options = all_in(dir);
  options.making.learn = Learn::Everything;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(
      texts_of(corpus->train),
      (Texts{
          "Below is an instruction that describes a task, paired with an input that provides further "
          "context. "
          "Write a response that appropriately completes the request.\n\n### Instruction:\nq\n\n### "
          "Input:\nc\n\n"
          "### Response:\na",
          "Below is an instruction that describes a task. Write a response that appropriately completes the "
          "request.\n\n### Instruction:\nq\n\n### Response:\n"}));
  options.making.without_template = false;
  options.making.no_template = "it is not known";
  EXPECT_NE(
      open_corpus(options, dir / "other").message().find("it is not known; data.pairs = text makes one text"),
      std::string::npos);
}

// Elements of a list may all be on one line: each draws for itself.
TEST(FormsCorpus, ElementsOfAListAreHeldOutOneByOne) {
  const TempDir dir;
  std::string list = "[";
  for (int i = 0; i < 200; ++i) list += fmt::format("{}{{\"text\": \"{}\"}}", i > 0 ? "," : "", i);
  dir.add("in/a.json", list + "]");
  CorpusOptions options = all_in(dir);
  options.heldout = 0.2;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents() + corpus->heldout->documents(), 200);
  EXPECT_GT(corpus->heldout->documents(), 20);
  EXPECT_LT(corpus->heldout->documents(), 60);
}

TEST(FormsCorpus, TextThatIsNotUtf8IsSkippedWhereThatIsAllowed) {
  const TempDir dir;
  dir.add("in/a.txt", "good");
  dir.add("in/b.txt", "bad \xe9\n");
  dir.add("in/c.txt", "cut \xc3");
  const auto bytes = byte_tokenizer();
  ASSERT_TRUE(bytes.ok());
  CorpusOptions options = all_in(dir);
  options.making.tokenizer = &*bytes;
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("b.txt"), std::string::npos);
  options.skip_malformed = true;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(texts_of(corpus->train), Texts{"good"});
  EXPECT_EQ(corpus->findings.count(FindingKind::Malformed), 2);
  const std::string said = corpus->findings.warnings().at(0);
  EXPECT_NE(said.find("b.txt: line 1: byte 0xe9 is not UTF-8"), std::string::npos) << said;
  options.sources.exclude = {"a.txt"};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("no file of data.paths is text"),
            std::string::npos);
}

TEST(FormsCorpus, ParquetIsRefusedWithItsConversion) {
  const TempDir dir;
  dir.add("in/train.parquet", "PAR1\x15");
  EXPECT_NE(open_corpus(all_in(dir), dir / "cache").message().find("pandas.read_parquet('train.parquet')"),
            std::string::npos);
}

TEST(FormsCorpus, CompressedTextIsCalledSo) {
  const TempDir dir;
  dir.add("in/a.md", "\x1f\x8b\x08");
  EXPECT_NE(open_corpus(all_in(dir), dir / "cache").message().find("a.md: compressed by gzip"),
            std::string::npos);
}

// Checkpoints say what was learnt by this name: it changes where what is learnt does, and nowhere else.
TEST(FormsCorpus, WhatIsReadAsBeforeIsCalledAsBefore) {
  const TempDir dir;
  const auto made = [&](std::string_view file, CorpusOptions options) {
    dir.add("in/a.jsonl", file);
    auto corpus = open_corpus(options, dir / "cache");
    EXPECT_TRUE(corpus.ok()) << corpus.message();
    return corpus;
  };
  const auto same = made("{\"prompt\": \"q\", \"completion\": \"a\"}\n", all_in(dir));
  EXPECT_EQ(same->content, same->key);
  const auto other = made("{\"question\": \"q\", \"answer\": \"a\"}\n", all_in(dir));
  EXPECT_EQ(other->content, other->key + "-2");
  EXPECT_EQ(other->contents_before, std::vector<std::string>{other->key});
  // Passing over what was never looked at is no change.
  CorpusOptions ignoring = all_in(dir);
  ignoring.ignore = {"score"};
  const auto scored = made("{\"prompt\": \"q\", \"completion\": \"a\", \"score\": 1}\n", ignoring);
  EXPECT_EQ(scored->contents_before, std::vector<std::string>{});
  EXPECT_NE(scored->key, scored->content);
}

// A corpus whose findings an earlier Sluice kept.
void keep_findings(const TempDir& dir, const Corpus& corpus, const Findings& old) {
  const fs::path sums = dir / "cache" / corpus.key / "corpus";
  std::string text = *read_file(sums);
  const size_t at = text.find(corpus.findings.to_text());
  ASSERT_NE(at, text.npos);
  text.replace(at, text.size() - at, old.to_text());
  // Its checksum is of all that follows.
  const size_t sum = text.find('\n') + 1, rest = text.find('\n', sum) + 1;
  text.replace(sum, rest - 1 - sum, Checksummer().add(std::string_view(text).substr(rest)).value().to_text());
  ASSERT_TRUE(write_file(sums, text).ok());
}

// As Sluice 0.1.0 left it: findings of fewer numbers.
TEST(FormsCorpus, TokensOfAnotherReaderAreMadeAnewWithAWord) {
  const TempDir dir;
  dir.add("in/a.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\"}\n");
  const auto corpus = open_corpus(all_in(dir), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  Findings old = corpus->findings;
  old.reader = 1;
  keep_findings(dir, *corpus, old);
  const auto again = open_corpus(all_in(dir), dir / "cache");
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_TRUE(again->built);
  EXPECT_NE(
      again->notice.find("another version of Sluice made it, which read records otherwise; it is made anew"),
      std::string::npos)
      << again->notice;
  EXPECT_EQ(again->content, corpus->content);
}

// Earlier versions made tokens of them: what has some is made anew under another name, all else is kept.
TEST(FormsCorpus, TokensThatAreWrittenOutAreText) {
  const Tokenizer tokenizer = *Tokenizer::open(fs::path(SLUICE_TOKENIZERS) / "gpt2.json");
  const int32_t end = tokenizer.id("<|endoftext|>");
  for (const auto& [name, content, written] :
       {std::tuple("in/a.txt", "a text", false),
        {"in/a.txt", "a<|endoftext|>text", true},
        {"in/a.jsonl", R"({"text": "a text"})", false},
        {"in/a.jsonl", R"({"prompt": "q\u003c|endoftext|>", "completion": "a"})", true},
        {"in/a.jsonl", R"({"text": "a<|endoftext|>", "learnt": [[0, 14]]})", false}}) {
    const TempDir dir;
    dir.add(name, content);
    CorpusOptions options = all_in(dir);
    options.making.tokenizer = &tokenizer;
    auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->findings.count(FindingKind::WrittenTokens), written ? 1 : 0) << content;
    EXPECT_EQ(corpus->content, corpus->key + (written ? "-marks2" : "")) << content;
    EXPECT_EQ(corpus->contents_before.size(), written ? 1U : 0U);
    Findings old = corpus->findings;
    old.marks = 0;
    keep_findings(dir, *corpus, old);
    for (const bool anew : {written, false}) {
      corpus = open_corpus(options, dir / "cache");
      ASSERT_TRUE(corpus.ok()) << corpus.message();
      EXPECT_EQ(corpus->built, anew) << content;
    }
    options.making.special = {end};
    corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->findings.count(FindingKind::WrittenTokens), 0) << content;
    std::vector<int32_t> ids(size_t(corpus->train.tokens()));
    corpus->train.read(0, ids);
    const bool has = std::string_view(content).find("|endoftext|>") != std::string_view::npos;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), end), has ? 1 : 0) << content;
  }
}

TEST(FormsCorpus, OfADataSetOfTheHubItsTrainingPartIsTaken) {
  const TempDir dir;
  const std::string snapshot = "datasets--org--name/snapshots/abc/";
  dir.add(snapshot + "README.md", "about");
  dir.add(snapshot + "dataset_infos.json", "{}");
  dir.add(snapshot + "data/train-00000.jsonl", "{\"text\": \"t\"}\n");
  dir.add(snapshot + "data/test-00000.jsonl", "{\"text\": \"u\"}\n");
  CorpusOptions options = all_in(dir);
  options.sources.paths = {(dir / "datasets--org--name/snapshots/abc").string()};
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(texts_of(corpus->train), Texts{"t"});
}

}  // namespace
}  // namespace sluice::core
