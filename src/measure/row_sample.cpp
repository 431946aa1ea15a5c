// SPDX-License-Identifier: Apache-2.0
#include "measure/row_sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ops/attention.h"

namespace sluice::core {
namespace {

// Where in the sample blocks of the shape begin.
std::vector<int64_t> places_of(const AttnShape& shape, const RowSample& sample) {
  std::vector<int64_t> places;
  const bool whole_rows = shape.q_len == sample.sequence;
  if (shape.rows > 1 && !whole_rows) return places;
  for (int64_t row = 0; row + shape.rows <= sample.rows(); row += shape.rows) {
    // A chunk with a block at that distance before it, and every one after.
    for (int64_t at = shape.distance; at + shape.q_len <= sample.sequence; at += shape.q_len)
      places.push_back(row * sample.sequence + at);
  }
  return places;
}

}  // namespace

int64_t visible_pairs(const AttnShape& shape, const int32_t* positions) {
  int64_t pairs = 0;
  for (int64_t t = 0; t < shape.tokens(); ++t) {
    const int64_t i = t % shape.q_len, last = std::min(shape.distance + i, shape.kv_len - 1);
    int64_t first = std::max<int64_t>(0, shape.distance + i - positions[t]);
    if (shape.window > 0) first = std::max(first, shape.distance + i - shape.window + 1);
    pairs += std::max<int64_t>(0, last - first + 1);
  }
  return pairs;
}

std::vector<int32_t> typical_positions(const AttnShape& shape, const RowSample& sample) {
  const std::vector<int64_t> places = places_of(shape, sample);
  if (places.empty()) {
    std::vector<int32_t> whole(size_t(shape.tokens()));
    for (size_t t = 0; t < whole.size(); ++t) whole[t] = int32_t(shape.distance + int64_t(t) % shape.q_len);
    return whole;
  }
  std::vector<double> pairs;
  for (const int64_t place : places)
    pairs.push_back(double(visible_pairs(shape, sample.positions.data() + place)));
  const double mean = std::accumulate(pairs.begin(), pairs.end(), 0.0) / double(pairs.size());
  const auto off = [&](double n) { return std::abs(n - mean); };
  const auto nearest = std::ranges::min_element(pairs, {}, off) - pairs.begin();
  const auto begin = sample.positions.begin() + places[size_t(nearest)];
  return {begin, begin + shape.tokens()};
}

int64_t document_tokens(const RowSample& sample) {
  if (sample.positions.empty()) return 0;
  const double sum = std::accumulate(sample.positions.begin(), sample.positions.end(), 0.0);
  // The mean position in a document of n tokens is (n - 1) / 2.
  const double length = 2 * sum / double(sample.positions.size()) + 1;
  return std::llround(std::exp2(std::round(2 * std::log2(length)) / 2));
}

}  // namespace sluice::core
