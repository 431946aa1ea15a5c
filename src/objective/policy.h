// SPDX-License-Identifier: Apache-2.0
// Losses of sampled answers that have rewards, sums over tokens. A token counts by its answer's advantage,
// and by how much likelier it became than when it was sampled. Names, defaults and formulas are those of
// TRL 1.16's GRPO, with a whole step in the place of its batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "objective/objective.h"

namespace sluice::core {

// How much better each reward is than the mean of its group, by objective.scale_rewards. `groups`: how many
// answers each prompt has, in order. A reward that is no number counts in no mean; its advantage is 0.
struct Advantages {
  std::vector<double> values;
  double mean = 0, deviation = 0;  // of all rewards, of which there is one
  double zero_share = 0;           // answers of groups in which all rewards are equal
};
Advantages advantages_of(std::string_view scale_rewards, std::span<const double> rewards,
                         std::span<const int64_t> groups);

// An answer's tokens that count. Spans have one value a token, or are empty where that is said.
struct SampledAnswer {
  std::span<const float> log_probs;
  std::span<const float> old;         // when they were sampled; empty: `log_probs`
  std::span<const float> reference;   // empty: objective.beta is 0
  std::span<const float> advantages;  // or one of all its tokens
};

// The divisors of a step, counted before it.
struct PolicyCounts {
  double answers = 0, tokens = 0;
  double most_tokens = 0;  // that an answer may have
};

// Sums over answers, which are added in their order.
struct PolicySums {
  double loss = 0;           // divided already
  double tokens = 0;         // of answers
  double kl = 0;             // of tokens from the reference
  double ratios = 0;         // how many there are: tokens, or answers
  double low = 0, high = 0;  // of them, those that are clipped where the advantage is below or above 0

  void add(const PolicySums& other);
};

// One token, or one answer where objective.importance_sampling_level says so.
struct PolicyToken {
  double ratio = 1;  // its probability now over that when it was sampled
  double log_prob = 0, advantage = 0;
};
struct PolicyTerm {
  double value = 0, slope = 0;  // with respect to the log-probability
  int clipped = 0;              // -1: below, 1: above
};

struct PolicyLoss {
  PolicyTerm (*term)(const ObjectiveKeys& keys, const PolicyToken& token);
  // How much a token of an answer with so many counts in the step.
  double (*weight)(const PolicyCounts& counts, double tokens);
  std::string_view clipped = "clip_ratio/";  // in metrics; empty: nothing is clipped
};

// Rows of the table of objectives.
std::vector<LossType> policy_losses();
Status check_policy(const LossType& loss, const ObjectiveKeys& keys);

// The part of one answer, and the derivatives with respect to its tokens' log-probabilities. REQUIRES: keys
// of with_defaults(); as many slopes as tokens, of which there is one.
PolicySums judge_answer(const LossType& loss, const ObjectiveKeys& keys, const SampledAnswer& answer,
                        const PolicyCounts& counts, std::span<float> slopes);

// Sums as people are told of them: the shares that are clipped, and "kl", where a reference was read.
std::vector<std::pair<std::string, double>> metrics_of(const LossType& loss, const ObjectiveKeys& keys,
                                                       const PolicySums& sums);

}  // namespace sluice::core
