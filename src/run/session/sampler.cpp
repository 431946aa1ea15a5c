// SPDX-License-Identifier: Apache-2.0
#include "run/session/sampler.h"

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

float log_prob(std::span<const float> logits, int32_t token) {
  const float top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l} - double{top});
  return float(double{logits[size_t(token)]} - double{top} - std::log(sum));
}

}  // namespace

Result<Continuation> continue_text(Engine& engine, std::vector<int32_t> text, const Sampling& s,
                                   const std::function<bool(int64_t)>& more) {
  Continuation out;
  for (int64_t i = 0; i < s.tokens && (!more || more(i)); ++i) {
    SLUICE_ASSIGN(const std::span<const float> logits, engine.logits_after(text));
    const int32_t token = choose(logits, s, uint64_t(i));
    out.tokens.push_back(token);
    out.log_probs.push_back(log_prob(logits, token));
    if (std::ranges::find(s.ends, token) != s.ends.end()) break;
    text.push_back(token);
  }
  return out;
}

}  // namespace sluice::core
