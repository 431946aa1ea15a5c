// SPDX-License-Identifier: Apache-2.0
#include "tokens/corpus.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/temp_dir.h"
#include "tokens/byte_tokenizer.h"
#include "tokens/corpus_changes.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

std::string content(const TokenSet& set) {
  std::vector<int32_t> tokens(size_t(set.tokens()));
  set.read(0, tokens);
  return ByteTokenizer::decode(tokens);
}

CorpusOptions all_of(const TempDir& dir) {
  CorpusOptions options;
  options.sources.paths = {(dir / "in").string()};
  options.heldout = 0;
  return options;
}

// `count` files, "f0.txt" and so on, whose content is their number.
void add_files(const TempDir& dir, int count) {
  for (int i = 0; i < count; ++i) dir.add(fmt::format("in/f{}.txt", i), fmt::format("<{}>", i));
}

TEST(Corpus, ADocumentIsAFileInPathOrder) {
  TempDir dir;
  dir.add("in/b.txt", "BB");
  dir.add("in/a/z.txt", "Z");
  dir.add("in/empty.txt", "");
  const auto corpus = open_corpus(all_of(dir), dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(content(corpus->train), "ZBB");
  EXPECT_EQ(corpus->train.documents(), 2);
  EXPECT_EQ(corpus->files, 2);
  EXPECT_FALSE(corpus->heldout.has_value());
}

TEST(Corpus, TakesEndingsAndLeavesOutPatterns) {
  TempDir dir;
  for (const char* name : {"a.txt", "b.md", "skip.txt", "gen/c.txt", "sub/gen.txt", "sub/deep/d.txt"}) {
    dir.add(std::string("in/") + name, name);
  }
  CorpusOptions options = all_of(dir);
  options.sources.include = {".txt"};
  options.sources.exclude = {"skip*", "gen", "sub/deep"};
  EXPECT_EQ(content(open_corpus(options, dir / "cache")->train), "a.txtsub/gen.txt");
}

TEST(Corpus, ExpandsPatternsAndNamesAFileOnce) {
  TempDir dir;
  add_files(dir, 3);
  dir.add("in/other.md", "M");
  CorpusOptions options = all_of(dir);
  options.sources.paths = {(dir / "in/*.txt").string(), (dir / "in/f1.txt").string(),
                           (dir / "in/../in/f2.txt").string()};
  EXPECT_EQ(content(open_corpus(options, dir / "cache")->train), "<0><1><2>");
}

TEST(Corpus, SplitsByFile) {
  TempDir dir;
  add_files(dir, 40);
  CorpusOptions options = all_of(dir);
  options.heldout = 0.25;
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(corpus->train.documents() + corpus->heldout->documents(), 40);
  EXPECT_GE(corpus->heldout->documents(), 4);
  EXPECT_LE(corpus->heldout->documents(), 16);
}

TEST(Corpus, SplitDoesNotDependOnWhereTheFilesAre) {
  TempDir one, two;
  add_files(one, 20);
  add_files(two, 20);
  CorpusOptions first = all_of(one), second = all_of(two);
  first.heldout = second.heldout = 0.3;
  EXPECT_EQ(content(*open_corpus(first, one / "cache")->heldout),
            content(*open_corpus(second, two / "cache")->heldout));
}

TEST(Corpus, FilesAddedLaterMoveNoOther) {
  TempDir dir;
  add_files(dir, 20);
  CorpusOptions options = all_of(dir);
  options.heldout = 0.3;
  const std::string before = content(*open_corpus(options, dir / "cache")->heldout);
  add_files(dir, 30);
  const std::string after = content(*open_corpus(options, dir / "cache")->heldout);
  for (size_t at = 0; at < before.size(); at = before.find('>', at) + 1) {
    const std::string document = before.substr(at, before.find('>', at) + 1 - at);
    EXPECT_NE(after.find(document), std::string::npos) << document;
  }
}

TEST(Corpus, BothSidesGetAFile) {
  TempDir dir;
  add_files(dir, 2);
  for (const double fraction : {0.0001, 0.9999}) {
    CorpusOptions options = all_of(dir);
    options.heldout = fraction;
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->heldout->documents(), 1);
    EXPECT_EQ(corpus->train.documents(), 1);
  }
}

TEST(Corpus, ASingleFileIsCut) {
  TempDir dir;
  dir.add("in/a.txt", "0123456789");
  CorpusOptions options = all_of(dir);
  options.heldout = 0.2;
  const auto corpus = open_corpus(options, dir / "cache");
  EXPECT_EQ(content(corpus->train), "01234567");
  EXPECT_EQ(content(*corpus->heldout), "89");
}

TEST(Corpus, IsRebuiltOnlyWhenInputOrOptionsChange) {
  TempDir dir;
  add_files(dir, 5);
  CorpusOptions options = all_of(dir);
  EXPECT_TRUE(open_corpus(options, dir / "cache")->built);
  EXPECT_FALSE(open_corpus(options, dir / "cache")->built);
  dir.add("in/f1.txt", "<x>");
  EXPECT_TRUE(open_corpus(options, dir / "cache")->built);
  EXPECT_EQ(content(open_corpus(options, dir / "cache")->train), "<0><x><2><3><4>");
  options.heldout = 0.4;
  EXPECT_TRUE(open_corpus(options, dir / "cache")->built);
  dir.add("in/f1.txt", "<1>");
  EXPECT_FALSE(open_corpus(all_of(dir), dir / "cache")->built) << "the first build is still there";
}

// Nobody knows who wrote to the cache since.
TEST(Corpus, WhatIsNotBelievedIsMadeAnew) {
  TempDir dir;
  add_files(dir, 5);
  CorpusOptions options = all_of(dir), other = all_of(dir);
  options.heldout = other.heldout = 0.4;
  other.seed = 7;
  const auto whole = open_corpus(options, dir / "cache");
  const std::string train = content(whole->train), heldout = content(*whole->heldout);
  const fs::path folder = dir / "cache" / whole->key;
  const fs::path others = dir / "cache" / open_corpus(other, dir / "cache")->key;
  const auto overwrite = fs::copy_options::overwrite_existing;
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"train.tokens: ", [&] { fs::resize_file(folder / "train.tokens", 70); }},
      {"train.tokens: ", [&] { (void)write_file(folder / "train.tokens", ""); }},
      {"heldout.tokens: No such file", [&] { fs::remove(folder / "heldout.tokens"); }},
      {"are not those that were made here",
       [&] { fs::copy_file(others / "train.tokens", folder / "train.tokens", overwrite); }},
      {"was made for 'seed = 7', not for 'seed = 0'",
       [&] { fs::copy(others, folder, overwrite | fs::copy_options::recursive); }},
      {"corpus is damaged", [&] { fs::resize_file(folder / "corpus", 60); }},
  };
  for (const auto& [says, change] : changes) {
    change();
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_TRUE(corpus->built);
    EXPECT_NE(corpus->notice.find(says), std::string::npos) << corpus->notice;
    EXPECT_TRUE(corpus->notice.ends_with("; it is made anew")) << corpus->notice;
    EXPECT_EQ(content(corpus->train), train);
    EXPECT_EQ(content(*corpus->heldout), heldout);
    EXPECT_EQ(open_corpus(options, dir / "cache")->notice, "");
  }
}

TEST(Corpus, ErrorsNameWhatIsMissing) {
  TempDir dir;
  add_files(dir, 1);
  CorpusOptions options = all_of(dir);
  options.sources.paths = {"/no/such/place/*.txt"};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("/no/such/place/*.txt"), std::string::npos);
  options = all_of(dir);
  options.sources.include = {".cpp"};
  EXPECT_NE(open_corpus(options, dir / "cache").message().find(".cpp"), std::string::npos);
  options = all_of(dir);
  options.heldout = 1.5;
  EXPECT_NE(open_corpus(options, dir / "cache").message().find("1.5"), std::string::npos);
}

TEST(CorpusChanges, NamesFilesAndSettings) {
  TempDir dir;
  add_files(dir, 4);
  CorpusOptions options = all_of(dir);
  const fs::path cache = dir / "cache";
  const std::string before = open_corpus(options, cache)->key;
  EXPECT_EQ(corpus_changes(cache, before, before), "");
  dir.add("in/f1.txt", "another");
  dir.add("in/more.txt", "more");
  fs::remove(dir / "in/f3.txt");
  options.heldout = 0.25;
  const std::string now = open_corpus(options, cache)->key;
  EXPECT_EQ(corpus_changes(cache, before, now),
            "f1.txt has other text, data.heldout is 0.25, it was 0, more.txt is new, f3.txt is gone");
  // What the cache does not have, and what is no key at all.
  EXPECT_EQ(corpus_changes(dir / "none", before, now), "");
  EXPECT_EQ(corpus_changes(cache, "random tokens", now), "");
}

}  // namespace
}  // namespace sluice::core
