// SPDX-License-Identifier: Apache-2.0
#include "comm/sum_in_order.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::core {
namespace {

// The elements of rank r's slice of `elements`, which need not divide by the ranks.
struct Slice {
  size_t begin, count;
};
Slice slice_of(size_t elements, int r, int ranks) {
  const size_t begin = elements * size_t(r) / size_t(ranks);
  return {begin, elements * size_t(r + 1) / size_t(ranks) - begin};
}

}  // namespace

void add_by_tree(std::span<const std::span<float>> parts, std::span<float> sum) {
  SLUICE_CHECK(!parts.empty(), "nothing to add");
  for (size_t step = 1; step < parts.size(); step *= 2) {
    for (size_t i = 0; i + step < parts.size(); i += 2 * step) {
      float* const to = parts[i].data();
      const float* const from = parts[i + step].data();
      for (size_t k = 0; k < parts[i].size(); ++k) to[k] += from[k];
    }
  }
  if (sum.data() != parts[0].data()) std::ranges::copy(parts[0], sum.begin());
}

Status OrderedSum::operator()(std::span<std::byte> values, DType dtype) {
  SLUICE_CHECK(dtype == DType::F32 || dtype == DType::BF16, "sums of {}", name_of(dtype));
  if (group_.size() == 1) return {};
  for (size_t at = 0; at < values.size(); at += kPieceBytes)
    SLUICE_TRY(sum_piece(values.subspan(at, std::min(kPieceBytes, values.size() - at)), dtype));
  return {};
}

Status OrderedSum::sum_piece(std::span<std::byte> values, DType dtype) {
  const int ranks = group_.size(), rank = group_.rank();
  const size_t width = dtype == DType::F32 ? 4 : 2, elements = values.size() / width;
  const auto bytes_of = [&](int r) {
    const Slice s = slice_of(elements, r, ranks);
    return values.subspan(s.begin * width, s.count * width);
  };
  const Slice own = slice_of(elements, rank, ranks);
  received_.resize(own.count * width * size_t(ranks));
  const auto part = [&](int r) {
    return std::span(received_).subspan(own.count * width * size_t(r), own.count * width);
  };
  std::ranges::copy(bytes_of(rank), part(rank).begin());
  // In each round everybody sends to one rank and receives from another, so that no rank is waited for by
  // all.
  for (int away = 1; away < ranks; ++away) {
    const int to = (rank + away) % ranks, from = (rank - away + ranks) % ranks;
    SLUICE_TRY(group_.exchange(bytes_of(to), to, part(from), from));
  }
  std::vector<std::span<float>> parts;
  if (dtype == DType::F32) {
    for (int r = 0; r < ranks; ++r) parts.emplace_back(reinterpret_cast<float*>(part(r).data()), own.count);
    add_by_tree(parts, {reinterpret_cast<float*>(bytes_of(rank).data()), own.count});
  } else {
    as_floats_.resize(size_t(ranks));
    for (int r = 0; r < ranks; ++r) {
      as_floats_[size_t(r)].resize(own.count);
      const auto* const from = reinterpret_cast<const Bf16*>(part(r).data());
      for (size_t k = 0; k < own.count; ++k) as_floats_[size_t(r)][k] = float(from[k]);
      parts.emplace_back(as_floats_[size_t(r)]);
    }
    add_by_tree(parts, parts[0]);
    auto* const to = reinterpret_cast<Bf16*>(bytes_of(rank).data());
    for (size_t k = 0; k < own.count; ++k) to[k] = Bf16(parts[0][k]);
  }
  for (int away = 1; away < ranks; ++away) {
    const int to = (rank + away) % ranks, from = (rank - away + ranks) % ranks;
    SLUICE_TRY(group_.exchange(bytes_of(rank), to, bytes_of(from), from));
  }
  return {};
}

}  // namespace sluice::core
