// SPDX-License-Identifier: Apache-2.0
#include "dataset/split.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/check.h"

namespace sluice::core {

Split split_documents(std::span<const int64_t> boundaries, const std::function<double(size_t)>& draw,
                      double fraction) {
  SLUICE_CHECK(boundaries.size() > 2 && fraction > 0 && fraction < 1, "{} documents, {}", boundaries.size(),
               fraction);
  constexpr double kMostTimes = 3;
  const size_t count = boundaries.size() - 1;
  const auto tokens = [&](size_t d) { return double(boundaries[d + 1] - boundaries[d]); };
  const double wanted = fraction * double(boundaries.back() - boundaries.front());

  // Only the first few are taken out of the heap.
  using Drawn = std::pair<double, size_t>;
  std::vector<Drawn> drawn(count);
  for (size_t d = 0; d < count; ++d) drawn[d] = {draw(d), d};
  std::priority_queue next(std::greater<Drawn>(), std::move(drawn));

  Split split;
  split.held.assign(count, false);
  double held = 0;
  size_t taken = 0;
  for (; !next.empty() && held < wanted && taken + 1 < count; next.pop()) {
    const size_t d = next.top().second;
    if (tokens(d) > kMostTimes * wanted) {
      split.too_long.push_back(d);
    } else if (std::abs(held + tokens(d) - wanted) <= std::abs(held - wanted)) {
      split.held[d] = true;
      held += tokens(d);
      ++taken;
    }
  }
  if (taken > 0) return split;
  size_t shortest = 0;
  for (size_t d = 1; d < count; ++d) shortest = tokens(d) < tokens(shortest) ? d : shortest;
  split.held[shortest] = true;
  split.only_shortest = tokens(shortest) > kMostTimes * wanted;
  if (split.only_shortest) split.too_long.clear();
  return split;
}

Split split_by_count(size_t documents, const std::function<double(size_t)>& draw, double fraction) {
  SLUICE_CHECK(documents > 1, "{} documents", documents);
  Split split;
  split.held.assign(documents, false);
  size_t least = 0, most = 0, held = 0;
  for (size_t d = 0; d < documents; ++d) {
    least = draw(d) < draw(least) ? d : least;
    most = draw(d) > draw(most) ? d : most;
    split.held[d] = draw(d) < fraction;
    held += split.held[d] ? 1 : 0;
  }
  if (held == 0) split.held[least] = true;
  if (held == documents) split.held[most] = false;
  return split;
}

}  // namespace sluice::core
