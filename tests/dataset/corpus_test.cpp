// SPDX-License-Identifier: Apache-2.0
#include "dataset/corpus.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/checksum.h"
#include "dataset/byte_tokenizer.h"
#include "dataset/corpus_changes.h"
#include "io/sealed.h"
#include "support/temp_dir.h"

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
  // Those that no file has are named, from the cache, too.
  options.sources.include.emplace_back(".text");
  options.sources.exclude.emplace_back("skp*");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(
        open_corpus(options, dir / "cache")->notices,
        (std::vector<std::string>{"data.exclude: 'skp*': leaves out no file of a directory or a pattern",
                                  "data.include: '.text': no file of a directory ends so"}));
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

// Those that are held out are the first ones in an order that files added later do not change.
TEST(Corpus, FilesAddedLaterMoveThoseAtTheLimitOnly) {
  TempDir dir;
  const auto heldout = [&](int files) {
    for (int i = 0; i < files; ++i) dir.add(fmt::format("in/f{:02}.txt", i), fmt::format("{:02}", i));
    CorpusOptions options = all_of(dir);
    options.heldout = 0.3;
    const std::string text = content(*open_corpus(options, dir / "cache")->heldout);
    std::set<std::string> out;
    for (size_t at = 0; at < text.size(); at += 2) out.insert(text.substr(at, 2));
    return out;
  };
  const std::set<std::string> before = heldout(20);
  EXPECT_EQ(before.size(), 6u);
  std::set<std::string> after = heldout(30);
  EXPECT_EQ(after.size(), 9u);
  std::erase_if(after, [](const std::string& document) { return document >= "20"; });
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()) ||
              std::includes(before.begin(), before.end(), after.begin(), after.end()));
}

TEST(Corpus, HoldsOutAFractionOfTheTokens) {
  TempDir dir;
  for (int i = 0; i < 60; ++i) dir.add(fmt::format("in/f{:02}.txt", i), std::string(size_t(20 + i * i), 'x'));
  CorpusOptions options = all_of(dir);
  for (const double fraction : {0.02, 0.05, 0.2, 0.6}) {
    options.heldout = fraction;
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    const double all = double(corpus->train.tokens() + corpus->heldout->tokens());
    // No nearer than half of a document that may be held out.
    EXPECT_NEAR(double(corpus->heldout->tokens()), fraction * all, std::min(3501.0, 3 * fraction * all) / 2);
  }
}

// Whatever it draws: with one seed of these it would be held out.
TEST(Corpus, ADocumentOfMoreThanThreeTimesTheFractionStaysInTraining) {
  TempDir dir;
  add_files(dir, 30);
  dir.add("in/long.txt", std::string(400, 'x'));
  CorpusOptions options = all_of(dir);
  options.heldout = 0.1;
  int named = 0;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(content(*corpus->heldout).find('x'), std::string::npos);
    EXPECT_GT(corpus->heldout->documents(), 8);
    if (corpus->notices.empty()) continue;
    ++named;
    EXPECT_EQ(corpus->notices.size(), 1u);
    EXPECT_NE(corpus->notices[0].find("long.txt has 400 of 510 tokens"), std::string::npos)
        << corpus->notices[0];
    EXPECT_EQ(open_corpus(options, dir / "cache")->notices, corpus->notices) << "from the cache, too";
  }
  EXPECT_GT(named, 0);
  EXPECT_LT(named, 20) << "only where it was drawn";
}

TEST(Corpus, OfDocumentsThatAreAllTooLongTheShortestIsHeldOut) {
  TempDir dir;
  dir.add("in/a.txt", "aaaaaaaaaa");
  dir.add("in/b.txt", "bbbbbbb");
  dir.add("in/c.txt", "cccccccccc");
  CorpusOptions options = all_of(dir);
  options.heldout = 0.05;
  const auto corpus = open_corpus(options, dir / "cache");
  EXPECT_EQ(content(*corpus->heldout), "bbbbbbb");
  ASSERT_EQ(corpus->notices.size(), 1u);
  EXPECT_NE(corpus->notices[0].find("the shortest, b.txt, with 7 of 27"), std::string::npos)
      << corpus->notices[0];
}

// Runs that began so keep what they held out.
TEST(Corpus, ARunGoesOnWithTheSplitThatItBeganWith) {
  TempDir dir;
  add_files(dir, 40);
  dir.add("in/long.txt", std::string(400, 'x'));
  CorpusOptions options = all_of(dir);
  options.heldout = 0.25;
  const auto now = open_corpus(options, dir / "cache");
  options.split = SplitRule::Count;
  const auto before = open_corpus(options, dir / "cache");
  EXPECT_NE(before->key, now->key);
  options.split = SplitRule::Tokens;
  options.goes_on = before->key;
  const auto again = open_corpus(options, dir / "other");
  EXPECT_TRUE(again->built);
  EXPECT_EQ(again->key, before->key);
  EXPECT_EQ(content(*again->heldout), content(*before->heldout));
  EXPECT_EQ(content(again->train), content(before->train));
}

TEST(Corpus, SaysWhichPathATokenIsOf) {
  TempDir dir;
  dir.add("a/1.txt", "one");
  dir.add("b/1.txt", "two");
  dir.add("a/2.txt", "three");
  dir.add("held/x.txt", "xx");
  dir.add("held/y.txt", "yyy");
  CorpusOptions options;
  options.sources.paths = {(dir / "a").string(), (dir / "b").string()};
  options.weights = {2, 1};
  options.heldout_paths = {(dir / "held/x.txt").string(), (dir / "held/y.txt").string()};
  const auto entries = [](const TokenSet& set) {
    std::string out;
    for (int64_t t = 0; t < set.tokens(); ++t) out += char('0' + set.path_at(t).entry);
    return out;
  };
  for (const bool built : {true, false}) {
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->built, built);
    EXPECT_EQ(content(corpus->train), "oneonetwothreethree");
    EXPECT_EQ(entries(corpus->train), "0000001110000000000");
    EXPECT_EQ(content(*corpus->heldout), "xxyyy");
    EXPECT_EQ(entries(*corpus->heldout), "00111");
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

// A byte order mark is no part of the text, but of the runs that began when it was.
TEST(Corpus, TextBeginsBehindItsByteOrderMark) {
  const TempDir dir, plain;
  dir.add("in/a.txt", "\xef\xbb\xbfone");
  dir.add("in/b.txt", "two");
  plain.add("in/a.txt", "one");
  plain.add("in/b.txt", "two");
  CorpusOptions options = all_of(dir);
  const auto corpus = open_corpus(options, dir / "cache");
  ASSERT_TRUE(corpus.ok()) << corpus.message();
  EXPECT_EQ(content(corpus->train), "onetwo");
  EXPECT_EQ(corpus->train_bytes, 6);
  dir.add("in/a.txt",
          "\xef\xbb\xbf"
          "0123456789");
  options.sources.paths = {(dir / "in/a.txt").string()};
  options.heldout = 0.2;
  const auto cut = open_corpus(options, dir / "cache");
  ASSERT_TRUE(cut.ok()) << cut.message();
  EXPECT_EQ(content(cut->train) + content(*cut->heldout), "0123456789");
  // A run that began before is called by a key without a word of marks.
  SealedRequest before{std::string(kCorpusKind)};
  before.add("seed", uint64_t{0})
      .add("heldout", 0.2)
      .add("a.txt", Checksummer()
                        .add(std::string_view("\xef\xbb\xbf"
                                              "0123456789"))
                        .value()
                        .to_text());
  options.goes_on = before.key();
  const auto old = open_corpus(options, dir / "cache");
  ASSERT_TRUE(old.ok()) << old.message();
  EXPECT_EQ(old->content, before.key());
  EXPECT_EQ(content(old->train) + content(*old->heldout),
            "\xef\xbb\xbf"
            "0123456789");
  // Text without marks is called as ever.
  const auto same = open_corpus(all_of(plain), plain / "cache");
  ASSERT_TRUE(same.ok()) << same.message();
  CorpusOptions goes_on = all_of(plain);
  goes_on.goes_on = same->content;
  EXPECT_EQ(open_corpus(goes_on, plain / "cache")->content, same->content);
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

TEST(Corpus, WhatIsHeldOutIsComparedOnceAndKept) {
  TempDir dir;
  add_files(dir, 5);
  dir.add("held/copy.txt", "<3>");
  CorpusOptions options = all_of(dir);
  options.heldout_paths = {(dir / "held").string()};
  int compared = 0;
  options.progress = [&](const std::string& what, int64_t done, int64_t) {
    compared += what == "comparing what is held out" && done == 0 ? 1 : 0;
  };
  for (const bool built : {true, false}) {
    const auto corpus = open_corpus(options, dir / "cache");
    ASSERT_TRUE(corpus.ok()) << corpus.message();
    EXPECT_EQ(corpus->built, built);
    EXPECT_EQ(corpus->findings.count(FindingKind::HeldOutToo), 1);
    EXPECT_EQ(corpus->notices, (std::vector<std::string>{
                                   "1 of 1 document held out has the tokens of 1 document that is trained "
                                   "on, so the held-out loss says less of what is new: copy.txt as f3.txt"}));
    EXPECT_EQ(compared, 1);
  }
}

// Nobody knows who wrote to the cache since.
TEST(Corpus, WhatIsNotBelievedIsMadeAnew) {
  TempDir dir;
  add_files(dir, 5);
  CorpusOptions options = all_of(dir), other = all_of(dir);
  options.heldout = other.heldout = 0.4;
  other.seed = 9;
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
      {"was made for 'seed = 9', not for 'seed = 0'",
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
            "f1.txt has other text, data.heldout is 0.25, it was 0, more.txt is new, the rule by which "
            "documents are held "
            "out is another one, f3.txt is gone");
  // Data that is learnt otherwise than before is called by its key all the same.
  options.making.without_template = true;
  dir.add("in/pairs.jsonl", "{\"question\": \"q\", \"answer\": \"a\"}\n");
  const auto anew = open_corpus(options, cache);
  dir.add("in/f2.txt", "yet another");
  const auto later = open_corpus(options, cache);
  EXPECT_NE(anew->content, anew->key);
  EXPECT_EQ(corpus_changes(cache, anew->content, later->content), "f2.txt has other text");
  // What the cache does not have, and what is no key at all.
  EXPECT_EQ(corpus_changes(dir / "none", before, now), "");
  EXPECT_EQ(corpus_changes(cache, "random tokens", now), "");
}

}  // namespace
}  // namespace sluice::core
