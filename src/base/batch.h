// SPDX-License-Identifier: Apache-2.0
// What a model is told of each of its tokens, as data: which columns there are, and how they lie in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

namespace sluice::core {

// A number for every token, or as many as the column is wide.
enum class BatchColumn : uint8_t {
  Tokens,
  Targets,     // the token to predict; -1: does not count
  Positions,   // in its document, counted from the document's first token in the row
  Weights,     // of the target's loss
  Paths,       // which entry of what people named it is from (TokenSet::path_at); no program reads it
  TopTokens,   // other tokens in the target's place; -1: none
  TopWeights,  // of their losses
};

struct ColumnFacts {
  std::string_view name;
  DType type;
  double padding;       // what a token of no document has, or one that nobody says anything of
  bool counts = false;  // from there upwards
};
// By BatchColumn.
inline constexpr ColumnFacts kColumns[] = {
    {.name = "tokens", .type = DType::I32, .padding = 0},
    {.name = "targets", .type = DType::I32, .padding = -1},
    {.name = "positions", .type = DType::I32, .padding = 0, .counts = true},
    {.name = "weights", .type = DType::F32, .padding = 1},
    {.name = "paths", .type = DType::I32, .padding = 0},
    {.name = "top_tokens", .type = DType::I32, .padding = -1},
    {.name = "top_weights", .type = DType::F32, .padding = -std::numeric_limits<double>::infinity()},
};
constexpr int kColumnCount = int(std::size(kColumns));
constexpr const ColumnFacts& facts_of(BatchColumn column) {
  return kColumns[size_t(column)];
}

// Each begins aligned behind any others.
static_assert(std::ranges::all_of(kColumns, [](const ColumnFacts& c) { return size_of(c.type) == 4; }));

template <class T>
constexpr DType column_type() {
  static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, float>);
  return std::is_same_v<T, int32_t> ? DType::I32 : DType::F32;
}

// Columns one after another, each of all tokens.
class BatchLayout {
 public:
  // REQUIRES: none comes twice.
  constexpr BatchLayout(
      std::initializer_list<BatchColumn> columns = {}) {  // NOLINT(google-explicit-constructor)
    for (const BatchColumn column : columns) add(column);
  }
  constexpr void add(BatchColumn column, int64_t width = 1) {
    columns_[count_] = column;
    widths_[count_++] = width;
  }

  constexpr std::span<const BatchColumn> columns() const { return {columns_, size_t(count_)}; }
  constexpr bool has(BatchColumn column) const {
    return std::find(columns_, columns_ + count_, column) != columns_ + count_;
  }
  // Numbers for each token. REQUIRES: it is there.
  int64_t width(BatchColumn column) const { return widths_[place_of(column)]; }
  // The place where a column begins in a batch of so many tokens, and the length of all columns. REQUIRES: it
  // is there.
  int64_t offset(BatchColumn column, int64_t tokens) const { return before(place_of(column), tokens); }
  constexpr int64_t bytes(int64_t tokens) const { return before(count_, tokens); }
  bool operator==(const BatchLayout&) const = default;
  // The type of all columns; bytes where they differ.
  constexpr DType type() const {
    const DType first = facts_of(columns_[0]).type;
    const bool equal = std::all_of(columns_, columns_ + count_,
                                   [&](BatchColumn column) { return facts_of(column).type == first; });
    return equal ? first : DType::U8;
  }

 private:
  int place_of(BatchColumn column) const {
    SLUICE_CHECK(has(column), "no column {}", facts_of(column).name);
    return int(std::find(columns_, columns_ + count_, column) - columns_);
  }
  constexpr int64_t before(int end, int64_t tokens) const {
    int64_t bytes = 0;
    for (int c = 0; c < end; ++c) bytes += tokens * widths_[c] * size_of(facts_of(columns_[c]).type);
    return bytes;
  }

  BatchColumn columns_[kColumnCount] = {};
  int64_t widths_[kColumnCount] = {};
  int count_ = 0;
};

// The columns that every decoder reads.
inline constexpr BatchLayout kPlainBatch{BatchColumn::Tokens, BatchColumn::Targets, BatchColumn::Positions};

// Some consecutive tokens of Rows, to be written. Borrows.
class RowsView {
 public:
  RowsView(std::byte* bytes, const BatchLayout& layout, int64_t all, int64_t first, int64_t count)
      : bytes_(bytes), layout_(&layout), all_(all), first_(first), count_(count) {}

  int64_t tokens() const { return count_; }
  const BatchLayout& layout() const { return *layout_; }
  // REQUIRES: it is there, and T is its type.
  template <class T = int32_t>
  std::span<T> column(BatchColumn column) const {
    SLUICE_CHECK(facts_of(column).type == column_type<T>(), "column {}", facts_of(column).name);
    const int64_t width = layout_->width(column);
    std::byte* begin = bytes_ + layout_->offset(column, all_) + first_ * width * int64_t{sizeof(T)};
    return {reinterpret_cast<T*>(begin), size_t(count_ * width)};
  }
  RowsView part(int64_t first, int64_t count) const;
  // A column, or all, as of tokens of no document.
  void fill_padding(BatchColumn column) const;
  void fill_padding() const;

 private:
  std::byte* bytes_;
  const BatchLayout* layout_;
  int64_t all_, first_, count_;
};

// Whole rows one after another, in memory of their own.
class Rows {
 public:
  Rows() = default;
  Rows(const BatchLayout& layout, int64_t tokens)
      : layout_(layout), tokens_(tokens), bytes_(size_t(layout.bytes(tokens))) {}

  int64_t tokens() const { return tokens_; }
  const BatchLayout& layout() const { return layout_; }
  RowsView part(int64_t first, int64_t count) { return view().part(first, count); }
  template <class T = int32_t>
  std::span<T> column(BatchColumn column) {
    return view().column<T>(column);
  }
  template <class T = int32_t>
  std::span<const T> column(BatchColumn column) const {
    SLUICE_CHECK(facts_of(column).type == column_type<T>(), "column {}", facts_of(column).name);
    return {reinterpret_cast<const T*>(bytes(column, 0, tokens_).data()),
            size_t(tokens_ * layout_.width(column))};
  }
  // Has tokens [first, first + count) of `from` come first. REQUIRES: it has every column of these.
  void copy(const Rows& from, int64_t first, int64_t count);
  // The bytes of a column for tokens [first, first + count) of a batch.
  std::span<const std::byte> bytes(BatchColumn column, int64_t first, int64_t count) const;

 private:
  RowsView view() { return {bytes_.data(), layout_, tokens_, 0, tokens_}; }

  BatchLayout layout_;
  int64_t tokens_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace sluice::core
