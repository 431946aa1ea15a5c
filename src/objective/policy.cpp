// SPDX-License-Identifier: Apache-2.0
#include "objective/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::core {
namespace {

// Mean and deviation of those that are numbers; of a single one the deviation is 0.
struct Moments {
  double mean = 0, deviation = 0, count = 0;
};
Moments moments_of(std::span<const double> values) {
  Moments m;
  for (const double v : values) {
    if (!std::isnan(v)) m.mean += v, m.count += 1;
  }
  m.mean = m.count > 0 ? m.mean / m.count : std::numeric_limits<double>::quiet_NaN();
  for (const double v : values) {
    if (!std::isnan(v)) m.deviation += (v - m.mean) * (v - m.mean);
  }
  m.deviation = m.count > 1 ? std::sqrt(m.deviation / (m.count - 1)) : 0;
  return m;
}

double highest(const ObjectiveKeys& k) {
  return k.epsilon_high.value_or(k.epsilon);
}

// PPO's clip: a ratio beyond the bounds gains nothing more.
PolicyTerm clipped(const ObjectiveKeys& k, const PolicyToken& t) {
  const double low = 1 - k.epsilon, high = 1 + highest(k);
  const double most = k.delta.value_or(std::numeric_limits<double>::infinity());
  const double free = std::min(t.ratio, most) * t.advantage;
  const double bound = std::clamp(t.ratio, low, high) * t.advantage;
  const double of_free = t.ratio <= most ? t.ratio * t.advantage : 0;
  const double of_bound = t.ratio >= low && t.ratio <= high ? t.ratio * t.advantage : 0;
  const double slope = free < bound ? of_free : free > bound ? of_bound : (of_free + of_bound) / 2;
  const int clips = t.ratio < low && t.advantage < 0 ? -1 : t.ratio > high && t.advantage > 0 ? 1 : 0;
  return {-std::min(free, bound), -slope, clips};
}

// CISPO: the ratio is a weight of the likelihood, and is bounded above.
PolicyTerm weighted(const ObjectiveKeys& k, const PolicyToken& t) {
  const double weight = std::min(t.ratio, highest(k)) * t.advantage;
  return {-weight * t.log_prob, -weight, t.ratio > highest(k) && t.advantage > 0 ? 1 : 0};
}

// SAPO: a smooth bound on both sides.
PolicyTerm soft(const ObjectiveKeys& k, const PolicyToken& t) {
  const double heat = t.advantage > 0 ? k.sapo_temperature_pos : k.sapo_temperature_neg;
  const double gate = 1 / (1 + std::exp(-heat * (t.ratio - 1)));
  return {-gate * 4 / heat * t.advantage, -4 * gate * (1 - gate) * t.ratio * t.advantage, 0};
}

double per_answer(const PolicyCounts& c, double tokens) {
  return 1 / (c.answers * tokens);
}
double per_token(const PolicyCounts& c, double) {
  return 1 / c.tokens;
}
double per_most(const PolicyCounts& c, double) {
  return 1 / (c.answers * c.most_tokens);
}
double per_sum(const PolicyCounts& c, double) {
  return 1 / c.answers;
}

constexpr PolicyLoss kDapo{clipped, per_token}, kGrpo{clipped, per_answer}, kDrGrpo{clipped, per_most},
    kLuspo{clipped, per_sum}, kCispo{weighted, per_token, "cispo_clip_ratio"}, kSapo{soft, per_answer, ""};

}  // namespace

std::vector<LossType> policy_losses() {
  const std::vector<std::string_view> bounds{"epsilon", "epsilon_high", "delta"};
  const auto row = [](std::string_view name, const PolicyLoss& policy, std::vector<std::string_view> keys) {
    return LossType{.name = name, .keys = std::move(keys), .policy = &policy};
  };
  // A step is TRL's local batch, too: bnpo is dapo.
  return {row("dapo", kDapo, bounds),
          row("grpo", kGrpo, bounds),
          row("bnpo", kDapo, bounds),
          row("dr_grpo", kDrGrpo, bounds),
          row("luspo", kLuspo, bounds),
          row("cispo", kCispo, {"epsilon_high"}),
          row("sapo", kSapo, {"sapo_temperature_neg", "sapo_temperature_pos"})};
}

Status check_policy(const LossType& loss, const ObjectiveKeys& keys) {
  if (loss.policy == &kCispo && !keys.epsilon_high)
    return error(
        "objective.loss_type = cispo: it needs objective.epsilon_high, the most that a ratio counts; 5 is "
        "usual");
  if (loss.policy == &kLuspo && keys.importance_sampling_level != "sequence")
    return error(
        "objective.importance_sampling_level = {}: with objective.loss_type = luspo, allowed is sequence",
        keys.importance_sampling_level);
  return {};
}

void PolicySums::add(const PolicySums& o) {
  loss += o.loss, tokens += o.tokens, kl += o.kl, ratios += o.ratios, low += o.low, high += o.high;
}

Advantages advantages_of(std::string_view scale_rewards, std::span<const double> rewards,
                         std::span<const int64_t> groups) {
  constexpr double kLeast = 1e-4;  // TRL's, added to deviations
  const Moments all = moments_of(rewards);
  Advantages out{.mean = all.mean, .deviation = all.deviation};
  size_t begin = 0;
  for (const int64_t count : groups) {
    const std::span<const double> group = rewards.subspan(begin, size_t(count));
    begin += size_t(count);
    const Moments own = moments_of(group);
    const double deviation = scale_rewards == "batch" ? all.deviation : own.deviation;
    const double scale = scale_rewards == "none" ? 1 : 1 / (deviation + kLeast);
    for (const double reward : group)
      out.values.push_back(std::isnan(reward) ? 0 : (reward - own.mean) * scale);
    if (deviation < 1e-8) out.zero_share += double(count);
  }
  out.zero_share /= double(rewards.size());
  return out;
}

PolicySums judge_answer(const LossType& loss, const ObjectiveKeys& k, const SampledAnswer& a,
                        const PolicyCounts& counts, std::span<float> slopes) {
  const size_t n = a.log_probs.size();
  const bool whole = k.importance_sampling_level == "sequence";
  const auto log_ratio = [&](size_t t) {
    return a.old.empty() ? 0.0 : double{a.log_probs[t]} - double{a.old[t]};
  };
  const auto behind = [&](size_t t) { return double{a.reference[t]} - double{a.log_probs[t]}; };
  const auto kl_of = [&](size_t t) { return a.reference.empty() ? 0 : std::expm1(behind(t)) - behind(t); };
  double mean = 0, mean_kl = 0;
  for (size_t t = 0; t < n; ++t) mean += log_ratio(t) / double(n), mean_kl += kl_of(t) / double(n);
  const double weight = loss.policy->weight(counts, double(n));
  PolicySums sums{.tokens = double(n), .ratios = whole ? 1 : double(n)};
  for (size_t t = 0; t < n; ++t) {
    const double log_prob = a.log_probs[t], advantage = a.advantages[a.advantages.size() == 1 ? 0 : t];
    // A ratio of the whole answer is every token's: its derivative with respect to one of n is a share of
    // 1 / n, n times.
    const double ratio = std::exp(whole ? mean : log_ratio(t));
    PolicyTerm term = loss.policy->term(k, {ratio, log_prob, advantage});
    if (!a.reference.empty()) {
      // The divergence counts by the ratio, so that its derivative is that of the model's own samples.
      const double kl = kl_of(t), share = whole ? mean_kl : kl;
      term.value += *k.beta * ratio * kl;
      term.slope += *k.beta * ratio * (share - std::expm1(behind(t)));
      sums.kl += ratio * kl;
    }
    sums.loss += weight * term.value;
    slopes[t] = float(weight * term.slope);
    const double share = sums.ratios / double(n);
    (term.clipped < 0 ? sums.low : sums.high) += term.clipped == 0 ? 0 : share;
  }
  return sums;
}

std::vector<std::pair<std::string, double>> metrics_of(const LossType& loss, const ObjectiveKeys& keys,
                                                       const PolicySums& s) {
  std::vector<std::pair<std::string, double>> out;
  if (keys.beta > 0.0) out.emplace_back("kl", s.kl / std::max(1.0, s.tokens));
  const std::string name(loss.policy->clipped);
  const double ratios = std::max(1.0, s.ratios);
  if (name.ends_with('/')) {
    out.emplace_back(name + "low_mean", s.low / ratios);
    out.emplace_back(name + "high_mean", s.high / ratios);
    out.emplace_back(name + "region_mean", (s.low + s.high) / ratios);
  } else if (!name.empty()) {
    out.emplace_back(name, s.high / ratios);
  }
  return out;
}

}  // namespace sluice::core
