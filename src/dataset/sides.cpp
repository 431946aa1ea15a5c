// SPDX-License-Identifier: Apache-2.0
#include "dataset/sides.h"

#include <algorithm>

namespace sluice::core {

Result<Sides> sides_of(std::span<const int32_t> targets, Compares compares) {
  const int wanted = compares == Compares::Pairs ? 2 : 1;
  const auto is_learnt = [&](int64_t t) { return targets[size_t(t)] >= 0; };
  Sides sides;
  const auto count = int64_t(targets.size());
  sides.bad = count > 0 && is_learnt(0);
  bool whole = !(sides.bad && wanted == 2);
  for (int64_t at = 0; at < count; ++sides.count) {
    if (sides.count == wanted) {
      whole = false;
      break;
    }
    AnswerSide& side = sides.side[size_t(sides.count)];
    side.begin = at++;
    while (at < count && !is_learnt(at)) ++at;
    side.answer = at;
    while (at < count && is_learnt(at)) ++at;
    side.end = at;
    whole = whole && side.tokens() > 0;
  }
  if (whole && sides.count == wanted) return sides;
  return error(
      "{} tokens are no {}: each has a prompt, which is context, and behind it the tokens of its answer, "
      "which "
      "are learnt",
      count, wanted == 2 ? "two answers, one behind the other" : "answer");
}

}  // namespace sluice::core
