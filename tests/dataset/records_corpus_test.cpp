// SPDX-License-Identifier: Apache-2.0
// Corpora of records and of token files, with what is learnt of them.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "dataset/batches.h"
#include "dataset/byte_tokenizer.h"
#include "dataset/corpus.h"
#include "support/temp_dir.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

CorpusOptions all_of(const TempDir& dir) {
  CorpusOptions options;
  options.sources.paths = {(dir / "in").string()};
  options.heldout = 0;
  return options;
}

// Documents as text, with '.' for what is not learnt.
std::multiset<std::string> documents(const TokenSet& set) {
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

std::string pairs(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format(R"({{"prompt": "ab", "completion": "<{}>"}})", i) + "\n";
  return text;
}

TEST(RecordsCorpus, ADocumentIsARecordAndContextIsMarked) {
  const TempDir dir;
  dir.add("in/a.jsonl",
          "{\"prompt\": \"q\\n\", \"completion\": \"é\"}\n{\"prompt\": \"\", \"completion\": \"x\"}\n");
  dir.add("in/b.txt", "text");
  const auto corpus = open_corpus(all_of(dir), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(documents(corpus->train), (Texts{"..é", "x", "text"}));
  EXPECT_EQ(corpus->train.learnt(), corpus->train.tokens() - 2);
  EXPECT_EQ(corpus->findings.kinds, (std::array<int64_t, 4>{1, 2, 0, 0}));
  const auto again = open_corpus(all_of(dir), dir / "cache");
  EXPECT_FALSE(again->built);
  EXPECT_EQ(again->findings.to_text(), corpus->findings.to_text());
  CorpusOptions everything = all_of(dir);
  everything.making.learn = Learn::Everything;
  const auto other = open_corpus(everything, dir / "cache");
  EXPECT_NE(other->key, corpus->key);
  EXPECT_EQ(documents(other->train), (Texts{"q\né", "x", "text"}));
}

TEST(RecordsCorpus, MalformedRecordsAreRefusedOrCounted) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(2) + "{\n" + pairs(1));
  CorpusOptions options = all_of(dir);
  const auto refused = open_corpus(options, dir / "cache");
  EXPECT_NE(refused.message().find("a.jsonl: line 3: column "), std::string::npos) << refused.message();
  options.skip_malformed = true;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents(), 3);
  EXPECT_EQ(corpus->findings.count(FindingKind::Malformed), 1);
  EXPECT_EQ(open_corpus(options, dir / "cache")->findings.count(FindingKind::Malformed), 1) << "it is kept";
}

TEST(RecordsCorpus, RecordsAreHeldOutOneByOne) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(200));
  CorpusOptions options = all_of(dir);
  options.heldout = 0.25;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents() + corpus->heldout->documents(), 200);
  EXPECT_NEAR(double(corpus->heldout->tokens()),
              0.25 * double(corpus->heldout->tokens() + corpus->train.tokens()), 10);
  // A record at the end moves those at the limit only.
  const Texts before = documents(*corpus->heldout);
  dir.add("in/a.jsonl", pairs(201));
  const Texts after = documents(*open_corpus(options, dir / "cache")->heldout);
  const auto moved =
      std::count_if(before.begin(), before.end(), [&](const auto& text) { return !after.contains(text); });
  EXPECT_LE(moved, 1);
}

TEST(RecordsCorpus, OfFewRecordsBothSidesGetOne) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(3));
  for (const double fraction : {0.0001, 0.9999}) {
    CorpusOptions options = all_of(dir);
    options.heldout = fraction;
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->heldout->documents(), fraction < 0.5 ? 1 : 2);
    EXPECT_EQ(corpus->findings.kinds[size_t(Record::Kind::Pair)], 3);
  }
  dir.add("in/a.jsonl", pairs(1));
  CorpusOptions options = all_of(dir);
  options.heldout = 0.1;
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("there is but 1 document"), std::string::npos);
}

TEST(RecordsCorpus, FilesAreHeldOutByName) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(2));
  dir.add("in/v.jsonl", "{\"prompt\": \"\", \"completion\": \"held\"}\n");
  CorpusOptions options = all_of(dir);
  options.heldout = 0.5;
  options.heldout_paths = {(dir / "in/v.jsonl").string()};
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(documents(corpus->train), (Texts{"..<0>", "..<1>"}));
  EXPECT_EQ(documents(*corpus->heldout), Texts{"held"});
  EXPECT_EQ(corpus->heldout_bytes, 4);
  options.heldout_paths = {(dir / "in").string()};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("they are all of data.paths"),
            std::string::npos);
}

TEST(RecordsCorpus, WeightsSayHowOftenDocumentsCome) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(400));
  dir.add("in/b.txt", "text");
  CorpusOptions options = all_of(dir);
  options.sources.paths = {(dir / "in/a.jsonl").string(), (dir / "in/b.txt").string()};
  options.weights = {1.25, 3};
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  // A share has all of its documents once, behind the others: rows of it are drawn.
  EXPECT_EQ(corpus->shares, (std::vector<double>{1.25, 0}));
  Texts all = documents(corpus->train);
  EXPECT_EQ(all.count("text"), 3u);
  EXPECT_EQ(all.size(), 403u);
  EXPECT_EQ(corpus->train.path_at(0).entry, 1u);
  EXPECT_EQ(corpus->train.path_at(12).entry, 0u);
  // A run that began when a share was of documents, the same in every epoch, goes on so.
  options.shares = ShareRule::Documents;
  const auto before = open_corpus(options, dir / "cache");
  ASSERT_TRUE(before.ok()) << before.message();
  all = documents(before->train);
  EXPECT_GT(all.size(), 400u + 70 + 3);
  EXPECT_LT(all.size(), 400u + 130 + 3);
  for (const std::string& text : all) EXPECT_LE(all.count(text), text == "text" ? 3u : 2u);
  options.shares = ShareRule::Rows;
  options.goes_on = before->content;
  const auto again = open_corpus(options, dir / "cache");
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->content, before->content);
  EXPECT_EQ(documents(again->train), all);
  EXPECT_NE(corpus->content, before->content);
  options.weights = {1};
  EXPECT_EQ(open_corpus(options, dir / "cache").message(), "data.weights: 1 of them for 2 data.paths");
  options.weights = {-1, 1};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("-1"), std::string::npos);
  options.weights = {0, 0};
  EXPECT_EQ(open_corpus(options, dir / "cache").message(),
            "data.weights = [0, 0]: nothing of data.paths is taken; a weight above 0 takes documents");
}

TEST(RecordsCorpus, FindingsSayWhereTheyAre) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(2) + "{\"prompt\": \"q\", \"completion\": \"\"}\n" + pairs(1));
  dir.add("in/b.csv", "question,answer\nq,\nq,a\n\"q\nr\",\nq,\nq,\n");
  dir.add("in/c.txt", "<|im_start|>user\nq<|im_end|>\n");
  CorpusOptions options = all_of(dir);
  options.making.without_template = true;
  std::vector<std::string> empty;
  for (const bool listed : {false, true}) {
    if (listed) {
      options.told = [&](FindingKind kind, const std::string& place) {
        if (kind == FindingKind::EmptyAnswers) empty.push_back(place);
      };
    }
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    const Findings& findings = corpus->findings;
    const Found& found = findings.found[size_t(FindingKind::EmptyAnswers)];
    EXPECT_EQ(found.count, 5);
    EXPECT_EQ(
        found.where(FindingKind::EmptyAnswers),
        ": a.jsonl:3, b.csv:2 (record 1), b.csv:4 (record 3) and 2 more (sluice data --list empty-answers)");
    EXPECT_EQ(findings.found[size_t(FindingKind::RenderedChats)].first, std::vector<std::string>{"c.txt"});
    EXPECT_EQ(corpus->built, true);
    const PlacesFile places = corpus->places();
    ASSERT_EQ(corpus->train.documents(), 10);
    EXPECT_EQ(places.train(3), "a.jsonl:4");
    EXPECT_EQ(places.train(6), "b.csv:4 (record 3)");
    EXPECT_EQ(places.train(9), "c.txt");
    const auto kept = Findings::parse(findings.to_text());
    ASSERT_TRUE(kept.ok()) << kept.message();
    EXPECT_EQ(kept->warnings(), findings.warnings());
  }
  EXPECT_EQ(empty, (std::vector<std::string>{"a.jsonl:3", "b.csv:2 (record 1)", "b.csv:4 (record 3)",
                                             "b.csv:6 (record 4)", "b.csv:7 (record 5)"}));
  EXPECT_EQ(PlacesFile::open(dir / "none", 1, 0).train(0), "");
}

TEST(RecordsCorpus, TokenFilesAreTakenAsTheyAre) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(5));
  const auto first = open_corpus(all_of(dir), dir / "cache");
  const fs::path shard = dir / "shards/a.tokens";
  fs::create_directories(dir / "shards");
  fs::copy_file(dir / "cache" / first->key / "train.tokens", shard);
  CorpusOptions options = all_of(dir);
  options.sources.paths = {shard.string()};
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(documents(corpus->train), documents(first->train));
  options.heldout = 0.4;
  const auto split = open_corpus(options, dir / "cache");
  ASSERT_TRUE(split.ok()) << split.message();
  EXPECT_EQ(split->train.documents() + split->heldout->documents(), 5);
  dir.add("shards/b.bin", "none");
  options.sources.paths = {(dir / "shards").string()};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("b.bin: not a token file"), std::string::npos);
}

// Larger ones than the model's tokenizer has are found when rows are made of them.
TEST(RecordsCorpus, TokensMadeElsewhereMayBeAny) {
  const TempDir dir;
  auto writer = TokenFileWriter::create(dir / "a.tokens", 4);
  ASSERT_TRUE(writer->append(std::vector<int32_t>{1, 2, 100000, 3}).ok() && writer->commit().ok());
  CorpusOptions options = all_of(dir);
  options.sources.paths = {(dir / "a.tokens").string()};
  auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  BatchOptions rows;
  rows.sequence = 2, rows.rows = 1, rows.vocab = 256;
  const auto batches = make_batches(std::move(corpus->train), rows);
  EXPECT_NE(batches.message().find("token 100000 at index 2 is outside"), std::string::npos)
      << batches.message();
}

// llm.c's files know no documents.
TEST(RecordsCorpus, AShardOfOneDocumentIsCut) {
  const TempDir dir;
  std::string file(1024, '\0');
  const int32_t header[] = {20240520, 1, 10};
  std::memcpy(file.data(), header, sizeof header);
  for (char c = 'a'; c < 'a' + 10; ++c) file += {c, '\0'};
  dir.add("in/a.bin", file);
  CorpusOptions options = all_of(dir);
  options.heldout = 0.2;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(documents(corpus->train), Texts{"abcdefgh"});
  EXPECT_EQ(documents(*corpus->heldout), Texts{"ij"});
}

TEST(RecordsCorpus, ProgressComesToItsEnd) {
  const TempDir dir;
  dir.add("in/a.jsonl", pairs(5));
  dir.add("in/b.txt", "text");
  CorpusOptions options = all_of(dir);
  std::map<std::string, int64_t> done;
  options.progress = [&](const char* what, int64_t bytes, int64_t all) {
    EXPECT_GE(bytes, done[what]);
    done[what] = bytes;
    EXPECT_EQ(all, int64_t(pairs(5).size()) + 4);
  };
  ASSERT_TRUE(open_corpus(options, dir / "cache").ok());
  EXPECT_EQ(done, (std::map<std::string, int64_t>{{"reading data.paths", int64_t(pairs(5).size()) + 4},
                                                  {"making tokens", int64_t(pairs(5).size()) + 4}}));
}

// An input that changes meanwhile, as a log that is written to does.
TEST(RecordsCorpus, InputThatChangesIsRefused) {
  for (const char* name : {"in/a.jsonl", "in/a.txt"}) {
    const TempDir dir;
    dir.add(name, pairs(5));
    CorpusOptions options = all_of(dir);
    const auto during = [&](const std::function<void()>& change) {
      options.progress = [&, done = false](const char* what, int64_t, int64_t) mutable {
        if (std::string_view(what) == "making tokens" && !std::exchange(done, true)) change();
      };
      const auto corpus = open_corpus(options, dir / "cache");
      options.progress = {};
      return corpus.message();
    };
    const std::string grown = during([&] { dir.add(name, pairs(6)); });
    EXPECT_NE(grown.find(std::string(name) + " changed while it was read"), std::string::npos) << grown;
    const std::string gone = during([&] { fs::remove(dir / name); });
    EXPECT_NE(gone.find(name), std::string::npos) << gone;
    dir.add(name, pairs(6));
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->train.documents(), std::string_view(name).ends_with("jsonl") ? 6 : 1);
  }
}

// Every byte is its own token, as of files of text, whatever stands beside it.
TEST(RecordsCorpus, RecordsAreBytesToAModelOfBytes) {
  const auto tokenizer = byte_tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  std::string text;
  for (int c = 1; c < 128; ++c) text += char(c);
  text += " \t\n  it's naïve, 一二 \U0001f600  123 4567\r\n";
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->encode(text, true, ids).ok());
  EXPECT_EQ(ids, ByteTokenizer::encode(text));
  EXPECT_EQ(tokenizer->vocab(), ByteTokenizer::kVocab);
}

TEST(RecordsCorpus, HostileFilesAreRefusedWithTheirLine) {
  const TempDir dir;
  const auto refused = [&](const std::string& text) {
    dir.add("in/a.jsonl", pairs(1) + text);
    return open_corpus(all_of(dir), dir / "cache").message();
  };
  std::string deep(200000, '[');
  EXPECT_NE(refused("{\"text\": " + deep + "}\n").find("a.jsonl: line 2: "), std::string::npos);
  EXPECT_NE(refused(std::string(100, '\0') + "\n").find("a.jsonl: line 2: "), std::string::npos);
  EXPECT_NE(refused("{\"prompt\": \"\xc3\x28\", \"completion\": \"\"}\n").find("a.jsonl: line 2: "),
            std::string::npos);
  EXPECT_NE(refused("{\"prompt\": \"a").find("a.jsonl: line 2: "), std::string::npos);
  dir.add("in/a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\\u0000c\"}\n");
  const auto corpus = open_corpus(all_of(dir), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(documents(corpus->train), (Texts{std::string(".b\0c", 4)})) << "a NUL that JSON spells is text";
}

// Bounds that follow from the memory that there is: what is longer is refused with the reason.
TEST(RecordsCorpus, WhatTakesMoreRoomThanThereIsIsRefused) {
  const TempDir dir;
  const auto made = [&](int64_t room, int threads) {
    CorpusOptions options = all_of(dir);
    options.threads = threads;
    options.room = EncodingRoom::of(room, threads, ", in this room");
    return open_corpus(options, dir / fmt::format("cache-{}-{}", room, threads));
  };
  std::string words;
  while (words.size() < 300000) words += "word ";
  dir.add("in/a.jsonl", pairs(300) + "{\"prompt\": \"q\", \"completion\": \"" + words + "\"}\n" + pairs(300));
  const auto whole = made(kUnlimited, 1);
  ASSERT_TRUE(whole.ok()) << whole.message();
  for (const int threads : {1, 3}) {
    const auto tight = made(6 << 20, threads);
    ASSERT_TRUE(tight.ok()) << tight.message();
    EXPECT_EQ(documents(tight->train), documents(whole->train));
  }
  EXPECT_NE(made(4 << 20, 1).message().find("a.jsonl: line 301: more than 233016 bytes long, in this room"),
            std::string::npos)
      << made(4 << 20, 1).message();
}

TEST(RecordsCorpus, LongLinesAndManyFilesAreRead) {
  const TempDir dir;
  std::string words;
  while (words.size() < 3000000) words += "word ";
  dir.add("in/long.jsonl", "{\"prompt\": \"q\", \"completion\": \"" + words + "\"}\n");
  for (int i = 0; i < 5000; ++i) dir.add(fmt::format("in/{}.jsonl", i), pairs(1));
  const auto corpus = open_corpus(all_of(dir), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents(), 5001);
  EXPECT_EQ(corpus->train.learnt(), int64_t(words.size()) + 15000);
  EXPECT_EQ(corpus->findings.count(FindingKind::OneRecord), 5001);
}

}  // namespace
}  // namespace sluice::core
