// SPDX-License-Identifier: Apache-2.0
#include "measure/row_sample.h"

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "ops/attention.h"

namespace sluice::core {
namespace {

// Rows of documents of these lengths, one after another.
RowSample rows_of(int64_t sequence, const std::vector<int64_t>& lengths) {
  RowSample sample{sequence, {}};
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) sample.positions.push_back(int32_t(i));
  }
  EXPECT_EQ(int64_t(sample.positions.size()) % sequence, 0);
  return sample;
}

AttnShape block(int64_t rows, int64_t q_len, int64_t kv_len, int64_t distance) {
  return {rows, q_len, kv_len, 1, 1, 8, distance, true, DType::F32};
}

// As the contract of AttnShape has it, pair by pair.
int64_t counted(const AttnShape& s, const std::vector<int32_t>& positions) {
  int64_t pairs = 0;
  for (int64_t t = 0; t < s.tokens(); ++t) {
    const int64_t at = s.distance + t % s.q_len;
    for (int64_t j = 0; j < s.kv_len; ++j) {
      const bool in_document = at - positions[size_t(t)] <= j && j <= at;
      pairs += in_document && (s.window == 0 || at - s.window < j);
    }
  }
  return pairs;
}

TEST(RowSample, CountsVisiblePairs) {
  const RowSample sample = rows_of(16, {5, 11, 3, 9, 4});
  for (const int64_t window : {0, 3, 12}) {
    for (const int64_t distance : {0, 8}) {
      AttnShape shape = block(1, 8, 8, distance);
      shape.window = window;
      const std::vector<int32_t> positions(sample.positions.begin() + distance,
                                           sample.positions.begin() + distance + 8);
      EXPECT_EQ(visible_pairs(shape, positions.data()), counted(shape, positions))
          << window << " " << distance;
    }
  }
}

TEST(RowSample, TakesThePlaceNearestTheMean) {
  // Rows with 136, 72 and 48 pairs: 85.3 in the mean.
  const RowSample sample = rows_of(16, {16, 8, 8, 4, 4, 4, 4, 16, 8, 8});
  const std::vector<int32_t> second(sample.positions.begin() + 16, sample.positions.begin() + 32);
  EXPECT_EQ(typical_positions(block(1, 16, 16, 0), sample), second);
}

TEST(RowSample, SeveralRowsTogether) {
  const RowSample sample = rows_of(8, {8, 4, 4, 2, 6, 8, 5, 3});
  const std::vector<int32_t> found = typical_positions(block(2, 8, 8, 0), sample);
  ASSERT_EQ(found.size(), 16u);
  EXPECT_EQ(found, std::vector<int32_t>(sample.positions.begin(), sample.positions.begin() + 16));
}

// The first chunk of a row has no block before it.
TEST(RowSample, EarlierBlocksAreMetInLaterChunks) {
  const RowSample sample = rows_of(16, {16});
  const std::vector<int32_t> found = typical_positions(block(1, 4, 4, 8), sample);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_GE(found.front(), 8);
}

// Queries of later chunks look at all earlier keys, too: positions that began anew with a chunk would hide
// every block but the diagonal ones.
TEST(RowSample, WithoutAPlaceRowsAreOneDocumentEach) {
  const auto sees_all = [](const AttnShape& shape, const RowSample& sample) {
    return visible_pairs(shape, typical_positions(shape, sample).data()) == int64_t(shape.pairs());
  };
  EXPECT_TRUE(sees_all(block(1, 16, 16, 0), {}));
  EXPECT_TRUE(sees_all(block(1, 16, 16, 48), {}));
  EXPECT_TRUE(sees_all(block(1, 16, 16, 48), {.sequence = 64, .positions = {}}));
  EXPECT_TRUE(sees_all(block(1, 32, 32, 0), rows_of(16, {16, 16})));
  EXPECT_TRUE(sees_all(block(4, 16, 16, 0), rows_of(16, {8, 8, 16})));
}

TEST(RowSample, LengthOfDocumentsByTheWorkOfAttention) {
  EXPECT_EQ(document_tokens({}), 0);
  EXPECT_EQ(document_tokens(rows_of(16, {16, 16})), 16);
  EXPECT_EQ(document_tokens(rows_of(64, std::vector<int64_t>(8, 8))), 8);
  EXPECT_EQ(document_tokens(rows_of(22, {11, 11})), 11) << "8 times the root of 2";
}

}  // namespace
}  // namespace sluice::core
