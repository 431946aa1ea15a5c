// SPDX-License-Identifier: Apache-2.0
#include "run/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace sluice::core {
namespace {

int32_t choose(std::span<const float> logits, const Sampling& s, uint64_t index) {
  auto chosen = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (s.temperature > 0) {
    const float top = logits[chosen];
    std::vector<double> cumulative;
    double sum = 0;
    for (const float l : logits) cumulative.push_back(sum += std::exp(double(l - top) / s.temperature));
    const double u = uniform_open(philox(s.seed, index, 0x5a).v[0]) * sum;
    chosen = size_t(std::lower_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin());
    chosen = std::min(chosen, logits.size() - 1);
  }
  return int32_t(chosen);
}

}  // namespace

Result<std::vector<int32_t>> continue_text(Engine& engine, std::vector<int32_t> text, const Sampling& s,
                                           const std::function<bool(int64_t)>& more) {
  const auto begin = long(text.size());
  for (int64_t i = 0; i < s.tokens && (!more || more(i)); ++i) {
    SLUICE_ASSIGN(const std::span<const float> logits, engine.logits_after(text));
    text.push_back(choose(logits, s, uint64_t(i)));
    if (std::find(s.ends.begin(), s.ends.end(), text.back()) != s.ends.end()) break;
  }
  return std::vector<int32_t>(text.begin() + begin, text.end());
}

}  // namespace sluice::core
