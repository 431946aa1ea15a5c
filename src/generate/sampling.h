// SPDX-License-Identifier: Apache-2.0
// Which token comes next, from logits: as Hugging Face transformers' generate() decides it, with its
// repetition penalty, tokens that are left out, temperature, top-k, top-p and min-p in that order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct SamplingRule {
  double temperature = 0;  // logits are divided by it; 0: the most likely token is taken
  int64_t top_k = 0;       // only the so many most likely tokens, and those as likely as the last; 0: all
  double top_p = 1;        // only the fewest most likely tokens that have this much probability together
  double min_p = 0;        // only tokens that have at least so much of the most likely one's probability
  double repetition_penalty =
      1;  // of tokens that are there: positive logits are divided by it, others multiplied
  std::vector<int32_t> left_out;  // tokens that never come
  uint64_t seed = 1;
};

inline constexpr double kMostTemperature = 1e6;

// Where a rule is from, which errors name: an option of the command line, or a key of a file.
enum class RuleNames : uint8_t { Options, Keys };
// Errors name the value and what is allowed.
Status validate(const SamplingRule& rule, RuleNames names = RuleNames::Options);

// A token and how likely it is to be drawn.
struct TokenProbability {
  int32_t token = 0;
  double probability = 0;
};

// Whether a token is drawn from all of them, by their probabilities at a temperature: what a pass of a model
// can do itself.
bool draws_plainly(const SamplingRule& rule);

// Which of all draws one is.
struct DrawPlace {
  uint64_t prompt = 0, sample = 0, index = 0;  // index: of the token in its text
};

// The error of logits of which none can be chosen.
Error not_finite();
// log p of a token by the logits.
double log_prob(std::span<const float> logits, int32_t token);

class Sampler {
 public:
  explicit Sampler(const SamplingRule& rule) : rule_(rule) {}

  // Those that may be drawn, by token: one or more, whose probabilities sum to 1. `seen` are the tokens of
  // the prompt and of what followed. Valid until the next call. An error where the largest logit is not
  // finite, the rule having been applied, names what made it so. REQUIRES: logits are not empty.
  Result<std::span<const TokenProbability>> candidates(std::span<const float> logits,
                                                       std::span<const int32_t> seen);

  // A token, and how likely it was: a function of the logits, what was seen, the rule and the place.
  Result<TokenProbability> choose(std::span<const float> logits, std::span<const int32_t> seen,
                                  const DrawPlace& place);
  // The number that decides the draw at a place, from 0 and below 1: a function of the seed and the place.
  double uniform(const DrawPlace& place) const;

 private:
  Error why_none(std::span<const float> of_model, float most) const;
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();

  SamplingRule rule_;
  std::vector<float> changed_;
  std::vector<TokenProbability> candidates_;
  std::vector<double> order_;
};

}  // namespace sluice::core
