// SPDX-License-Identifier: Apache-2.0
#include "dataset/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "dataset/permutation.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using Tokens = std::vector<int32_t>;

struct Row {
  Tokens tokens, targets, positions;
};

Row row_of(const BatchSource& source, int64_t step, int64_t row) {
  Rows rows(kPlainBatch, source.sequence());
  const auto of = [&](BatchColumn column) { return rows.column(column); };
  for (const BatchColumn column : kPlainBatch.columns()) std::ranges::fill(of(column), -7);
  source.fill(step, row, rows.part(0, rows.tokens()));
  const auto taken = [&](BatchColumn column) { return Tokens(of(column).begin(), of(column).end()); };
  return {taken(BatchColumn::Tokens), taken(BatchColumn::Targets), taken(BatchColumn::Positions)};
}

class Batches : public testing::Test {
 protected:
  // Documents of these lengths; token i of all is i, so that a token tells where it comes from.
  TokenSet numbered(const std::vector<int64_t>& lengths) {
    auto writer = TokenFileWriter::create(dir_ / "x.tokens", 4);
    int32_t next = 0;
    for (const int64_t length : lengths) {
      Tokens document(static_cast<size_t>(length));
      std::iota(document.begin(), document.end(), next);
      next += static_cast<int32_t>(length);
      EXPECT_TRUE(writer->append(document).ok());
      writer->end_document();
    }
    EXPECT_TRUE(writer->commit().ok());
    return *open_tokens(dir_ / "x.tokens");
  }

  // The same, of which tokens are context where `learnt` says no.
  TokenSet marked(const std::vector<int64_t>& lengths, const std::function<bool(int32_t)>& learnt) {
    auto writer = TokenFileWriter::create(dir_ / "x.tokens", 4);
    int32_t next = 0;
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i, ++next)
        EXPECT_TRUE(writer->append(Tokens{next}, std::vector<uint8_t>{uint8_t(learnt(next))}).ok());
      writer->end_document();
    }
    EXPECT_TRUE(writer->commit().ok());
    return *open_tokens(dir_ / "x.tokens");
  }

  std::unique_ptr<BatchSource> source(const std::vector<int64_t>& lengths, const BatchOptions& options) {
    return source(numbered(lengths), options);
  }
  static std::unique_ptr<BatchSource> source(TokenSet tokens, const BatchOptions& options) {
    auto made = make_batches(std::move(tokens), options);
    EXPECT_TRUE(made.ok()) << made.message();
    return std::move(*made);
  }

  TempDir dir_;
};

BatchOptions contiguous(int64_t sequence) {
  return {.mode = BatchMode::Contiguous, .sequence = sequence, .rows = 2, .seed = 3, .vocab = 1 << 20};
}
BatchOptions packed(int64_t sequence) {
  BatchOptions options = contiguous(sequence);
  options.mode = BatchMode::Packed;
  return options;
}

TEST(Permutation, VisitsEverythingOnce) {
  for (const int64_t count : {1, 2, 3, 16, 17, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(permuted(5, 0, i, count));
    EXPECT_EQ(int64_t(seen.size()), count);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 100; ++i) values.push_back(permuted(seed, epoch, i, 100));
    return values;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  EXPECT_NE(order(1, 2), order(2, 2));
}

// Every index must be able to land anywhere: over many epochs each place is hit about equally often.
TEST(Permutation, IsSpreadEvenly) {
  constexpr int64_t kCount = 10;
  constexpr int kEpochs = 5000;
  std::vector<int> hits(kCount);
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++hits[size_t(permuted(1, uint64_t(epoch), 3, kCount))];
  // Six standard deviations of a binomial with p = 1/10: 6 * sqrt(5000 * 0.09) = 127.
  for (const int hit : hits) EXPECT_NEAR(hit, kEpochs / kCount, 127);
}

TEST_F(Batches, HaveBothAnswersOfAPairInOneRow) {
  // Prompts of two tokens, and answers of one and of two; then one of three and of four.
  const auto is_answer = [](int32_t t) {
    const int32_t at = t % 16;
    return at == 2 || (at >= 5 && at < 7) || (at >= 9 && at < 12) || at >= 14;
  };
  BatchOptions options{.mode = BatchMode::Packed, .sequence = 10, .rows = 1, .vocab = 64};
  options.compares = Compares::Pairs;
  const auto source = make_batches(marked({7, 9}, is_answer), options);
  ASSERT_TRUE(source.ok()) << source.message();
  for (int64_t row = 0; row < 2; ++row) {
    const std::vector<RowSide> sides = (*source)->sides(0, row);
    ASSERT_EQ(sides.size(), 2U);
    const Row is = row_of(**source, 0, row);
    if (sides[0].document == 0) {
      EXPECT_EQ(is.positions, (Tokens{0, 1, 2, 0, 1, 2, 3, 0, 1, 2}));
      EXPECT_EQ(is.targets, (Tokens{-1, 2, -1, -1, 5, 6, -1, -1, -1, -1}));
      EXPECT_EQ(sides[1].begin, 3);
      EXPECT_EQ(sides[1].answer, 5);
      EXPECT_EQ(sides[1].end, 7);
    } else {
      EXPECT_EQ(is.positions, (Tokens{0, 1, 2, 3, 4, 0, 1, 2, 3, 0}));
      EXPECT_EQ(is.targets, (Tokens{-1, 9, 10, 11, -1, -1, 14, 15, -1, -1}));
    }
  }
  options.whole_targets = true;
  const auto whole = make_batches(marked({7}, is_answer), options);
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ(row_of(**whole, 0, 0).targets, (Tokens{1, 2, -1, -1, 5, 6, -1, -1, -1, -1}));
  options.sequence = 8;
  const auto shorter = make_batches(marked({7, 9}, is_answer), options);
  ASSERT_TRUE(shorter.ok()) << shorter.message();
  EXPECT_EQ((*shorter)->counts().dropped_documents, std::vector<int64_t>{1});
  options.compares = Compares::Marks;
  const auto none = make_batches(marked({7}, is_answer), options);
  EXPECT_NE(none.message().find("7 tokens are no answer"), std::string::npos) << none.message();
}

TEST_F(Batches, ContiguousRowsCoverTheTokensOnceAnEpoch) {
  const auto batches = source({21}, contiguous(4));
  EXPECT_EQ(batches->epoch_rows(), 5);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<int32_t> first;
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t index = epoch * 5 + i;
      const Row row = row_of(*batches, index / 2, index % 2);
      first.insert(row.tokens[0]);
      for (int32_t t = 0; t < 4; ++t) {
        EXPECT_EQ(row.tokens[size_t(t)], row.tokens[0] + t);
        EXPECT_EQ(row.targets[size_t(t)], row.tokens[0] + t + 1);
        EXPECT_EQ(row.positions[size_t(t)], t);
      }
    }
    EXPECT_EQ(first, (std::set<int32_t>{0, 4, 8, 12, 16}));
  }
}

TEST_F(Batches, ContiguousRowsRestartAtDocuments) {
  const auto batches = source({3, 6, 1}, contiguous(9));
  EXPECT_TRUE(batches->packed());
  const Row row = row_of(*batches, 0, 0);
  EXPECT_EQ(row.tokens, (Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(row.targets, (Tokens{1, 2, -1, 4, 5, 6, 7, 8, -1}));
  EXPECT_EQ(row.positions, (Tokens{0, 1, 2, 0, 1, 2, 3, 4, 5}));
}

TEST_F(Batches, ContiguousRowsCountPositionsFromTheirOwnStart) {
  const auto batches = source({3, 10}, contiguous(6));
  std::set<Tokens> positions;
  for (int64_t row = 0; row < 2; ++row) positions.insert(row_of(*batches, 0, row).positions);
  EXPECT_EQ(positions, (std::set<Tokens>{{0, 1, 2, 0, 1, 2}, {0, 1, 2, 3, 4, 5}}));
}

TEST_F(Batches, ContiguousRowsCanRunThroughDocuments) {
  BatchOptions options = contiguous(9);
  options.respect_documents = false;
  const auto batches = source({3, 6, 1}, options);
  EXPECT_FALSE(batches->packed());
  const Row row = row_of(*batches, 0, 0);
  EXPECT_EQ(row.targets, (Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(row.positions, (Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(Batches, PackedRowsHoldWholeDocumentsAndPadding) {
  const auto batches = source({3, 4}, packed(9));
  EXPECT_EQ(batches->epoch_rows(), 1);
  const Row row = row_of(*batches, 0, 0);
  const bool short_first = row.tokens[0] == 0;
  EXPECT_EQ(row.tokens,
            short_first ? (Tokens{0, 1, 2, 3, 4, 5, 6, 0, 0}) : (Tokens{3, 4, 5, 6, 0, 1, 2, 0, 0}));
  EXPECT_EQ(row.targets,
            short_first ? (Tokens{1, 2, -1, 4, 5, 6, -1, -1, -1}) : (Tokens{4, 5, 6, -1, 1, 2, -1, -1, -1}));
  EXPECT_EQ(row.positions,
            short_first ? (Tokens{0, 1, 2, 0, 1, 2, 3, 0, 1}) : (Tokens{0, 1, 2, 3, 0, 1, 2, 0, 1}));
}

TEST_F(Batches, PackedRowsCutLongDocuments) {
  const auto batches = source({10}, packed(4));
  EXPECT_EQ(batches->epoch_rows(), 3);
  std::set<Tokens> targets;
  for (int64_t i = 0; i < 3; ++i) targets.insert(row_of(*batches, i / 2, i % 2).targets);
  EXPECT_EQ(targets, (std::set<Tokens>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, -1, -1, -1}}));
}

TEST_F(Batches, PackedRowsHoldEveryTargetOnce) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 300; ++i) lengths.push_back(1 + i * 7 % 23);
  const auto batches = source(lengths, packed(16));
  std::multiset<int32_t> found, expected;
  int64_t padding = 0;
  for (int64_t i = 0; i < batches->epoch_rows(); ++i) {
    const Row row = row_of(*batches, i / 2, i % 2);
    for (size_t t = 0; t < row.targets.size(); ++t) {
      if (row.targets[t] >= 0) found.insert(row.targets[t]);
      padding += row.targets[t] < 0 && row.tokens[t] == 0;
    }
  }
  int32_t token = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = 1; i < length; ++i) expected.insert(token + int32_t(i));
    token += int32_t(length);
  }
  EXPECT_EQ(found, expected);
  EXPECT_LT(padding, batches->epoch_rows())
      << "first fit with look-ahead leaves few holes among short documents";
}

TEST_F(Batches, ContextIsNoTarget) {
  const auto learnt = [](int32_t token) { return token % 3 != 1; };
  for (const BatchOptions& options : {contiguous(7), packed(7)}) {
    const auto batches = source(marked({5, 10, 14}, learnt), options);
    for (int64_t i = 0; i < batches->epoch_rows(); ++i) {
      const Row row = row_of(*batches, i / 2, i % 2);
      const auto all = source({5, 10, 14}, options);
      const Row whole = row_of(*all, i / 2, i % 2);
      EXPECT_EQ(row.tokens, whole.tokens);
      EXPECT_EQ(row.positions, whole.positions);
      for (size_t t = 0; t < 7; ++t)
        EXPECT_EQ(row.targets[t], learnt(whole.targets[t]) ? whole.targets[t] : -1) << t;
    }
  }
}

TEST_F(Batches, WhatTeachesNothingIsInNoPackedRow) {
  // Of a document's first token nothing is learnt, for nothing is before it.
  const auto batches =
      source(marked({4, 4, 3}, [](int32_t token) { return token == 4 || token == 9; }), packed(4));
  EXPECT_EQ(batches->epoch_rows(), 1);
  EXPECT_EQ(row_of(*batches, 0, 0).tokens, (Tokens{8, 9, 10, 0}));
  EXPECT_EQ(row_of(*batches, 0, 0).targets, (Tokens{9, -1, -1, -1}));
  EXPECT_EQ(batches->counts().dropped, 2);
  EXPECT_EQ(batches->counts().left_out, 8);
  EXPECT_EQ(batches->counts().padding, 1);
  const auto none = make_batches(marked({4, 4}, [](int32_t) { return false; }), contiguous(4));
  EXPECT_NE(none.message().find("nothing of them is learnt"), std::string::npos) << none.message();
}

TEST_F(Batches, LongDocumentsGoOnAreCutOrDropped) {
  const auto rows = [&](LongDocuments how) {
    BatchOptions options = packed(4);
    options.long_documents = how;
    const auto batches = source({10, 3}, options);
    std::set<Tokens> targets;
    for (int64_t i = 0; i < batches->epoch_rows(); ++i)
      targets.insert(row_of(*batches, i / 2, i % 2).targets);
    return std::pair(targets, batches->counts());
  };
  const auto [all, continued] = rows(LongDocuments::Continue);
  EXPECT_EQ(all, (std::set<Tokens>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, -1, -1, -1}, {11, 12, -1, -1}}));
  EXPECT_EQ(continued.cut, 1);
  EXPECT_EQ(continued.left_out, 0);
  const auto [first, cut] = rows(LongDocuments::Cut);
  EXPECT_EQ(first, (std::set<Tokens>{{1, 2, 3, -1}, {11, 12, -1, -1}}));
  EXPECT_EQ(cut.left_out, 6);
  const auto [short_ones, dropped] = rows(LongDocuments::Drop);
  EXPECT_EQ(short_ones, (std::set<Tokens>{{11, 12, -1, -1}}));
  EXPECT_EQ(dropped.dropped, 1);
  EXPECT_EQ(dropped.left_out, 10);
  EXPECT_EQ(dropped.padding, 1);
}

// Lengths of chats: most of some hundred tokens, few of thousands.
TEST_F(Batches, RowsOfOrdinaryChatsAreFull) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < 3000; ++i) {
    double sum = 0;
    for (const uint32_t bits : philox(7, i, 0).v) sum += uniform_open(bits) - 0.5;
    lengths.push_back(std::clamp<int64_t>(int64_t(400 * std::exp(1.6 * sum)), 20, 4000));
  }
  for (const int64_t sequence : {2048, 4096}) {
    BatchOptions options = packed(sequence);
    options.vocab = 1 << 24;
    const auto batches = source(lengths, options);
    const RowCounts counts = batches->counts();
    EXPECT_LT(double(counts.padding), 0.02 * double(counts.rows * sequence)) << sequence;
  }
}

TEST_F(Batches, ARowDependsOnSeedStepAndRowOnly) {
  const auto one = source({400}, contiguous(4)), same = source({400}, contiguous(4));
  (void)row_of(*one, 0, 0);
  EXPECT_EQ(row_of(*one, 17, 1).tokens, row_of(*same, 17, 1).tokens);
  BatchOptions options = contiguous(4);
  options.seed = 4;
  const auto other = source({400}, options);
  int different = 0;
  for (int64_t step = 0; step < 10; ++step) {
    different += row_of(*one, step, 0).tokens != row_of(*other, step, 0).tokens;
  }
  EXPECT_GT(different, 5);
}

TEST_F(Batches, TooFewTokensSaysHowManyAreNeeded) {
  const std::string message = make_batches(numbered({5, 3}), contiguous(8)).message();
  EXPECT_NE(message.find("8 tokens in 2 documents"), std::string::npos) << message;
  EXPECT_NE(message.find("need 9"), std::string::npos) << message;
  BatchOptions options = contiguous(8);
  options.name = "data.heldout_paths = 'short.md'";
  EXPECT_EQ(make_batches(numbered({5, 3}), options).message(),
            "data.heldout_paths = 'short.md': 8 tokens in 2 documents; one row of 8 tokens and its targets "
            "need 9. A "
            "smaller train.seq_len takes them, or data.mode = packed");
}

TEST_F(Batches, PackingOnlySingleTokensIsAnError) {
  EXPECT_NE(make_batches(numbered({1, 1}), packed(8)).message().find("at least 2 tokens"), std::string::npos);
}

TEST_F(Batches, TheVocabularyIsChecked) {
  BatchOptions options = contiguous(2);
  options.vocab = 4;
  EXPECT_NE(make_batches(numbered({6}), options).message().find("token 5 at index 5"), std::string::npos);
}

TEST_F(Batches, ShapesAreChecked) {
  BatchOptions options = contiguous(0);
  EXPECT_NE(make_batches(numbered({6}), options).message().find("sequence 0"), std::string::npos);
  options.sequence = 2;
  options.rows = 0;
  EXPECT_NE(make_batches(numbered({6}), options).message().find("0 rows"), std::string::npos);
}

TEST(RandomBatches, RowsContinueEachOther) {
  const auto batches = make_random_batches({.sequence = 8, .rows = 2, .seed = 1, .vocab = 50});
  const Row first = row_of(*batches, 3, 0), second = row_of(*batches, 3, 1), third = row_of(*batches, 4, 0);
  EXPECT_TRUE(std::equal(first.tokens.begin() + 1, first.tokens.end(), first.targets.begin()));
  EXPECT_EQ(first.targets.back(), second.tokens.front());
  EXPECT_EQ(second.targets.back(), third.tokens.front());
  EXPECT_NE(first.tokens, second.tokens);
  EXPECT_EQ(first.positions, (Tokens{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(RandomBatches, StayInsideTheVocabularyAndReachItsEnds) {
  const auto batches = make_random_batches({.sequence = 2000, .rows = 1, .seed = 1, .vocab = 50});
  const Row row = row_of(*batches, 0, 0);
  EXPECT_EQ(*std::min_element(row.tokens.begin(), row.tokens.end()), 0);
  EXPECT_EQ(*std::max_element(row.tokens.begin(), row.tokens.end()), 49);
}

// The first tokens of an epoch's rows, in ascending order.
std::vector<int32_t> firsts(const BatchSource& source, int64_t epoch) {
  std::vector<int32_t> out;
  for (int64_t row = 0; row < source.epoch_rows(); ++row)
    out.push_back(row_of(source, 0, epoch * source.epoch_rows() + row).tokens[0]);
  std::sort(out.begin(), out.end());
  return out;
}

// Every row of a share comes before one comes again, whatever the documents' lengths are.
TEST_F(Batches, OfAShareOtherRowsComeInEachEpoch) {
  for (const BatchMode mode : {BatchMode::Contiguous, BatchMode::Packed}) {
    BatchOptions options{
        .mode = mode, .sequence = 10, .rows = 2, .seed = 3, .vocab = 1000, .shares = {0, 0.25}};
    TokenSet tokens = numbered({10, 10, 10, 1, 10, 10, 10, 10, 10, 10, 10, 10, 1});
    tokens.set_paths({{31, 0}, {112, 1}});
    const auto source = this->source(std::move(tokens), options);
    EXPECT_EQ(source->epoch_rows(), 3 + 2);
    EXPECT_EQ(source->counts().all, 3 + 8);
    ASSERT_EQ(source->shares().size(), 1u);
    EXPECT_EQ(source->shares()[0].an_epoch, 2);
    std::multiset<int32_t> drawn;
    for (int64_t epoch = 0; epoch < 8; ++epoch) {
      const std::vector<int32_t> first = firsts(*source, epoch);
      EXPECT_EQ(std::vector(first.begin(), first.begin() + 3), (std::vector<int32_t>{0, 10, 20}));
      drawn.insert(first.begin() + 3, first.end());
      EXPECT_EQ(firsts(*source, epoch), first) << "a row is a function of its number";
      const auto once_more = [&](int32_t t) { return drawn.count(t) > size_t(epoch / 4 + 1); };
      EXPECT_FALSE(std::any_of(drawn.begin(), drawn.end(), once_more)) << "in epoch " << epoch;
    }
    EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 8u);
    // By the run's seed.
    options.seed = 4;
    TokenSet again = numbered({10, 10, 10, 1, 10, 10, 10, 10, 10, 10, 10, 10, 1});
    again.set_paths({{31, 0}, {112, 1}});
    const auto other = this->source(std::move(again), options);
    bool differs = false;
    for (int64_t epoch = 0; epoch < 4; ++epoch)
      differs = differs || firsts(*other, epoch) != firsts(*source, epoch);
    EXPECT_TRUE(differs);
    options.shares[1] = 0.05;
    options.share_names = {"a", "b"};
    TokenSet few = numbered({10, 10, 10, 1, 10, 10, 10, 10, 10, 10, 10, 10, 1});
    few.set_paths({{31, 0}, {112, 1}});
    const auto none = make_batches(std::move(few), options);
    EXPECT_EQ(none.message(),
              "b: 0.05 of 8 rows of 10 tokens is none: from 0.062 on one comes in each epoch, and a smaller "
              "train.seq_len makes more rows");
  }
}

}  // namespace
}  // namespace sluice::core
