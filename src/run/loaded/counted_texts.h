// SPDX-License-Identifier: Apache-2.0
// Texts of which some tokens count, packed into rows, and what a model says of each.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dataset/batches.h"
#include "run/loaded/evaluation.h"

namespace sluice::core {

// Tokens from `first` on count, each by those before it in the text. REQUIRES: 0 < first < ids.size().
struct CountedText {
  std::vector<int32_t> ids;
  size_t first = 1;
};

struct TextScore {
  double log_prob = 0;                // the sum of its counted tokens' log-probabilities, nats
  int64_t tokens = 0, likeliest = 0;  // that count, and those of them that no other token is likelier than
};

// Rows in which texts stand side by side, the longest first; a row takes `sequence` tokens in, and a text's
// last one is a target alone. A text's score does not depend on its place. REQUIRES: no text has more than
// sequence + 1 tokens.
class CountedTexts final : public BatchSource {
 public:
  CountedTexts(std::vector<CountedText> texts, int64_t sequence);

  int64_t sequence() const override { return sequence_; }
  int64_t epoch_rows() const override { return std::ssize(rows_); }
  RowCounts counts() const override { return {.rows = epoch_rows()}; }
  bool packed() const override { return true; }
  void fill(int64_t step, int64_t row, const RowsView& to) const override;

  // A text of a row and where it begins there.
  struct Place {
    size_t text;
    int64_t begin;
  };
  const std::vector<Place>& places(int64_t row) const { return rows_[size_t(row)]; }
  const CountedText& text(size_t number) const { return texts_[number]; }
  // All rows, as many as there is room for behind one another; what is left is padding. REQUIRES: they fit.
  void fill_all(const RowsView& to) const;
  // The part of a row's values, `width` to a token, that is of the counted tokens of a text.
  template <class T>
  std::span<T> counted_part(std::span<T> row, const Place& place, int64_t width = 1) const {
    const CountedText& text = texts_[place.text];
    const auto begin = size_t(place.begin) + text.first - 1, count = text.ids.size() - text.first;
    return row.subspan(begin * size_t(width), count * size_t(width));
  }
  // The numbers and scores of the texts in a row, which begins at `at` in a pass's `losses`.
  std::vector<std::pair<size_t, TextScore>> scores(int64_t row, int64_t at, const TokenLosses& losses) const;

 private:
  std::vector<CountedText> texts_;
  int64_t sequence_;
  std::vector<std::vector<Place>> rows_;
};

}  // namespace sluice::core
