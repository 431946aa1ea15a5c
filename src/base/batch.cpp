// SPDX-License-Identifier: Apache-2.0
#include "base/batch.h"

#include <numeric>

namespace sluice::core {
namespace {

template <class T>
void fill_column(std::span<T> column, const ColumnFacts& facts) {
  std::fill(column.begin(), column.end(), T(facts.padding));
  if (facts.counts) std::iota(column.begin(), column.end(), T(facts.padding));
}

}  // namespace

RowsView RowsView::part(int64_t first, int64_t count) const {
  SLUICE_CHECK(first >= 0 && count >= 0 && first + count <= count_, "tokens {} to {} of {}", first,
               first + count, count_);
  return {bytes_, *layout_, all_, first_ + first, count};
}

void RowsView::fill_padding(BatchColumn c) const {
  const ColumnFacts& facts = facts_of(c);
  facts.type == DType::F32 ? fill_column(column<float>(c), facts) : fill_column(column<int32_t>(c), facts);
}

void RowsView::fill_padding() const {
  for (const BatchColumn c : layout_->columns()) fill_padding(c);
}

void Rows::copy(const Rows& from, int64_t first, int64_t count) {
  for (const BatchColumn c : layout_.columns()) {
    SLUICE_CHECK(count <= tokens_, "{} tokens of {}", count, tokens_);
    std::ranges::copy(from.bytes(c, first, count), bytes_.begin() + layout_.offset(c, tokens_));
  }
}

std::span<const std::byte> Rows::bytes(BatchColumn c, int64_t first, int64_t count) const {
  const int64_t size = size_of(facts_of(c).type) * layout_.width(c);
  SLUICE_CHECK(first >= 0 && first + count <= tokens_, "tokens {} to {} of {}", first, first + count,
               tokens_);
  return std::span(bytes_).subspan(size_t(layout_.offset(c, tokens_) + first * size), size_t(count * size));
}

}  // namespace sluice::core
