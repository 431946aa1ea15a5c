// SPDX-License-Identifier: Apache-2.0
#include "base/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace sluice::core {
namespace {

constexpr BatchColumn kAll[] = {BatchColumn::Tokens,    BatchColumn::Targets, BatchColumn::Positions,
                                BatchColumn::Weights,   BatchColumn::Paths,   BatchColumn::TopTokens,
                                BatchColumn::TopWeights};

TEST(BatchLayout, ColumnsFollowOneAnother) {
  EXPECT_EQ(std::size(kAll), size_t(kColumnCount));
  BatchLayout layout;
  for (const BatchColumn column : kAll) {
    EXPECT_FALSE(layout.has(column));
    layout.add(column);
    EXPECT_EQ(layout.offset(column, 10), layout.bytes(10) - 40) << facts_of(column).name;
  }
  EXPECT_EQ(kPlainBatch.bytes(7), 3 * 7 * 4);
  EXPECT_EQ(kPlainBatch.type(), DType::I32);
  EXPECT_EQ(layout.type(), DType::U8);  // there are floats, too
}

TEST(Rows, PaddingIsAsTheTableSays) {
  Rows rows(kPlainBatch, 6);
  rows.part(0, 6).fill_padding();
  const RowsView part = rows.part(2, 3);
  part.fill_padding();
  EXPECT_TRUE(std::ranges::equal(rows.column(BatchColumn::Tokens), std::vector{0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(std::ranges::equal(rows.column(BatchColumn::Targets), std::vector{-1, -1, -1, -1, -1, -1}));
  EXPECT_TRUE(std::ranges::equal(rows.column(BatchColumn::Positions), std::vector{0, 1, 0, 1, 2, 5}));
}

TEST(Rows, ColumnsHaveTheirTypes) {
  Rows rows({BatchColumn::Tokens, BatchColumn::Weights}, 3);
  rows.part(0, 3).fill_padding();
  rows.column<float>(BatchColumn::Weights)[1] = -0.5f;
  EXPECT_TRUE(std::ranges::equal(rows.column<float>(BatchColumn::Weights), std::vector{1.0f, -0.5f, 1.0f}));
  EXPECT_TRUE(std::ranges::equal(rows.column(BatchColumn::Tokens), std::vector{0, 0, 0}));
}

// A part is what a batch of as many tokens holds, column by column.
TEST(Rows, PartsAreCopiedByColumn) {
  Rows all(kPlainBatch, 8);
  for (const BatchColumn column : kPlainBatch.columns()) {
    const auto values = all.column(column);
    std::iota(values.begin(), values.end(), 100 * int32_t(column));
  }
  Rows part({BatchColumn::Positions, BatchColumn::Tokens}, 4);
  part.copy(all, 5, 3);
  EXPECT_TRUE(std::ranges::equal(part.column(BatchColumn::Tokens), std::vector{5, 6, 7, 0}));
  EXPECT_TRUE(std::ranges::equal(part.column(BatchColumn::Positions), std::vector{205, 206, 207, 0}));
}

}  // namespace
}  // namespace sluice::core
