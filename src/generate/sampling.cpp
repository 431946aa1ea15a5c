// SPDX-License-Identifier: Apache-2.0
#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/philox.h"

namespace sluice::core {
namespace {

constexpr uint32_t kPurpose = 0x6e;  // of random numbers, apart from other uses of a seed

// Scores below the largest by more than this have no probability that f64 tells from none beside it.
constexpr double kFar = 745;

// The first of the largest, as std::max_element has it, many side by side: of a large vocabulary that takes
// 10 us instead of 280.
size_t first_largest(std::span<const float> x) {
  constexpr size_t kSide = 32, kBlock = 32 * kSide;
  float most = x[0];
  size_t block = 0, i = 0;
  for (; i + kBlock <= x.size(); i += kBlock) {
    std::array<float, kSide> side;
    side.fill(most);
    for (size_t j = i; j < i + kBlock; j += kSide) {
      for (size_t s = 0; s < kSide; ++s) side[s] = side[s] < x[j + s] ? x[j + s] : side[s];
    }
    for (const float other : side) {
      if (most < other) most = other, block = i;
    }
  }
  for (; i < x.size(); ++i) {
    if (most < x[i]) most = x[i], block = i;
  }
  return std::isnan(most) ? 0 : size_t(std::find(x.begin() + long(block), x.end(), most) - x.begin());
}

}  // namespace

Status validate(const SamplingRule& r, RuleNames names) {
  const auto wrong = [names](std::string key, auto value, const char* allowed) {
    if (names == RuleNames::Keys) return error("{} = {}: allowed are {}", key, value, allowed);
    std::replace(key.begin(), key.end(), '_', '-');
    return error("--{} {}: allowed are {}", key, value, allowed);
  };
  if (!(r.temperature >= 0 && r.temperature <= kMostTemperature))
    return wrong("temperature", r.temperature, "numbers from 0, the most likely token, to 1e6");
  if (r.top_k < 0) return wrong("top_k", r.top_k, "whole numbers from 0, all tokens");
  if (!(r.top_p > 0 && r.top_p <= 1))
    return wrong("top_p", r.top_p, "numbers above 0 and up to 1, all tokens");
  if (!(r.min_p >= 0 && r.min_p <= 1)) return wrong("min_p", r.min_p, "numbers from 0, all tokens, to 1");
  // Logits are f32, which it must leave numbers.
  if (!(r.repetition_penalty >= 1e-6 && r.repetition_penalty <= 1e6))
    return wrong("repetition_penalty", r.repetition_penalty, "numbers from 1e-6 to 1e6; 1 changes nothing");
  return {};
}

void Sampler::keep_top_k() {
  const auto k = size_t(rule_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  order_.clear();
  for (const TokenProbability& c : candidates_) order_.push_back(c.probability);
  std::nth_element(order_.begin(), order_.begin() + long(k) - 1, order_.end(), std::greater<>());
  const double least = order_[k - 1];
  std::erase_if(candidates_, [&](const TokenProbability& c) { return c.probability < least; });
}

// From the most likely on, as many as it takes; of equally likely ones those of lower numbers first. A heap
// gives them in that order without sorting a vocabulary.
void Sampler::keep_top_p() {
  if (rule_.top_p >= 1) return;
  const auto less_likely = [](const TokenProbability& a, const TokenProbability& b) {
    return a.probability != b.probability ? a.probability < b.probability : a.token > b.token;
  };
  double total = 0, sum = 0;
  for (const TokenProbability& c : candidates_) total += c.probability;
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  auto end = candidates_.end();
  while (end != candidates_.begin() && sum < rule_.top_p * total) {
    std::pop_heap(candidates_.begin(), end--, less_likely);
    sum += end->probability;
  }
  candidates_.erase(candidates_.begin(), end);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const TokenProbability& a, const TokenProbability& b) { return a.token < b.token; });
}

void Sampler::keep_min_p() {
  if (rule_.min_p <= 0) return;
  double most = 0;
  for (const TokenProbability& c : candidates_) most = std::max(most, c.probability);
  std::erase_if(candidates_, [&](const TokenProbability& c) { return c.probability < rule_.min_p * most; });
}

Error Sampler::why_none(std::span<const float> of_model, float most) const {
  if (!std::isfinite(of_model[first_largest(of_model)])) return not_finite();
  if (most < 0) return error("suppress_tokens: every token is left out, so that none can follow");
  return error("repetition penalty {}: it makes logits that are not finite", rule_.repetition_penalty);
}

Result<std::span<const TokenProbability>> Sampler::candidates(std::span<const float> logits,
                                                              std::span<const int32_t> seen) {
  const std::span<const float> of_model = logits;
  if (rule_.repetition_penalty != 1 || !rule_.left_out.empty()) {
    const auto penalty = float(rule_.repetition_penalty);
    changed_.assign(logits.begin(), logits.end());
    for (const int32_t token : seen) {
      const float score = logits[size_t(token)];
      changed_[size_t(token)] = score < 0 ? score * penalty : score / penalty;
    }
    for (const int32_t token : rule_.left_out) {
      if (size_t(token) < changed_.size()) changed_[size_t(token)] = -INFINITY;
    }
    logits = changed_;
  }
  const size_t most = first_largest(logits);
  // From here on the most likely token is a candidate, and every filter keeps it.
  if (!std::isfinite(logits[most])) return why_none(of_model, logits[most]);
  candidates_.clear();
  if (rule_.temperature == 0) {
    candidates_.push_back({int32_t(most), 1.0});
    return std::span<const TokenProbability>(candidates_);
  }
  const double top = logits[most];
  for (size_t t = 0; t < logits.size(); ++t) {
    const double below = (double(logits[t]) - top) / rule_.temperature;
    if (below > -kFar) candidates_.push_back({int32_t(t), std::exp(below)});
  }
  keep_top_k();
  keep_top_p();
  keep_min_p();
  double total = 0;
  for (const TokenProbability& c : candidates_) total += c.probability;
  for (TokenProbability& c : candidates_) c.probability /= total;
  return std::span<const TokenProbability>(candidates_);
}

double Sampler::uniform(const DrawPlace& place) const {
  // Two words of a draw, as one in [0, 1).
  const Philox4 bits =
      philox(rule_.seed, place.index << 32 | (place.prompt & 0xffffffff), kPurpose | place.sample << 32);
  return (double(bits.v[0]) + double(bits.v[1]) * 0x1p-32) * 0x1p-32;
}

Result<TokenProbability> Sampler::choose(std::span<const float> logits, std::span<const int32_t> seen,
                                         const DrawPlace& place) {
  SLUICE_TRY(candidates(logits, seen));
  if (candidates_.size() == 1) return candidates_.front();
  const double u = uniform(place);
  double sum = 0;
  for (const TokenProbability& c : candidates_) {
    sum += c.probability;
    if (u < sum) return c;
  }
  return candidates_.back();
}

bool draws_plainly(const SamplingRule& r) {
  return r.top_k == 0 && r.top_p >= 1 && r.min_p <= 0 && r.repetition_penalty == 1 && r.left_out.empty();
}

Error not_finite() {
  return error("logits are not finite: the model's weights are damaged, or too large for its number format");
}

double log_prob(std::span<const float> logits, int32_t token) {
  const float top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l} - double{top});
  return double{logits[size_t(token)]} - double{top} - std::log(sum);
}

}  // namespace sluice::core
