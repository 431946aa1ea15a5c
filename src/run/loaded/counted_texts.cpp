// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/counted_texts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace sluice::core {
namespace {

int64_t tokens_in(const CountedText& text) {
  return std::ssize(text.ids) - 1;
}

}  // namespace

CountedTexts::CountedTexts(std::vector<CountedText> texts, int64_t sequence)
    : texts_(std::move(texts)), sequence_(sequence) {
  std::vector<size_t> order(texts_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tokens_in(texts_[a]) > tokens_in(texts_[b]); });
  std::multimap<int64_t, size_t> rooms;  // tokens that a row has left, and the row
  for (const size_t text : order) {
    const int64_t tokens = tokens_in(texts_[text]);
    SLUICE_CHECK(tokens > 0 && tokens <= sequence, "a text of {} tokens in rows of {}", tokens, sequence);
    auto room = rooms.lower_bound(tokens);
    if (room == rooms.end()) {
      rows_.emplace_back();
      room = rooms.emplace(sequence, rows_.size() - 1);
    }
    const auto [left, row] = *room;
    rows_[row].push_back({text, sequence - left});
    rooms.erase(room);
    if (left > tokens) rooms.emplace(left - tokens, row);
  }
}

void CountedTexts::fill(int64_t, int64_t row, const RowsView& to) const {
  to.fill_padding();
  const auto tokens = to.column(BatchColumn::Tokens), targets = to.column(BatchColumn::Targets);
  int64_t end = 0;
  for (const Place& place : rows_[size_t(row)]) {
    const CountedText& text = texts_[place.text];
    const int64_t count = tokens_in(text);
    std::copy_n(text.ids.begin(), count, tokens.begin() + place.begin);
    std::copy(text.ids.begin() + long(text.first), text.ids.end(),
              targets.begin() + place.begin + long(text.first) - 1);
    to.part(place.begin, count).fill_padding(BatchColumn::Positions);
    end = place.begin + count;
  }
  to.part(end, sequence_ - end).fill_padding(BatchColumn::Positions);
}

void CountedTexts::fill_all(const RowsView& to) const {
  SLUICE_CHECK(epoch_rows() * sequence_ <= to.tokens(), "{} rows of texts", epoch_rows());
  for (int64_t row = 0; row * sequence_ < to.tokens(); ++row) {
    const RowsView part = to.part(row * sequence_, sequence_);
    row < epoch_rows() ? fill(0, row, part) : part.fill_padding();
  }
}

std::vector<std::pair<size_t, TextScore>> CountedTexts::scores(int64_t row, int64_t at,
                                                               const TokenLosses& losses) const {
  std::vector<std::pair<size_t, TextScore>> out;
  for (const Place& place : rows_[size_t(row)]) {
    const CountedText& text = texts_[place.text];
    TextScore& score = out.emplace_back(place.text, TextScore{}).second;
    for (size_t i = text.first; i < text.ids.size(); ++i) {
      const auto t = size_t(at + place.begin) + i - 1;
      score.log_prob -= losses.loss[t];
      score.likeliest += losses.is_top[t] > 0 ? 1 : 0;
      ++score.tokens;
    }
  }
  return out;
}

}  // namespace sluice::core
