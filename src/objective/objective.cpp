// SPDX-License-Identifier: Apache-2.0
#include "objective/objective.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "objective/distillation.h"
#include "objective/policy.h"

namespace sluice::core {
namespace {

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

double mean(const Answer& a) {
  return a.log_prob / double(a.tokens);
}

// A loss of the margin by which the chosen answer leads.
struct OfMargin {
  double loss, slope;
};

// -log sigmoid(x), where a label is wrong with probability `e`.
OfMargin smoothed(double x, double e) {
  return {-(1 - e) * log_sigmoid(x) - e * log_sigmoid(-x), e - sigmoid(-x)};
}

// The margin is taken between sums of log-probabilities over the reference's.
Judged of_ratios(const ObjectiveKeys& k, const Compared& c, OfMargin margin) {
  return {margin.loss, *k.beta * margin.slope, -*k.beta * margin.slope, *k.beta * c.chosen.ratio(),
          *k.beta * c.rejected.ratio()};
}
double margin_of(const ObjectiveKeys& k, const Compared& c) {
  return *k.beta * (c.chosen.ratio() - c.rejected.ratio());
}

Judged dpo(const ObjectiveKeys& k, const Compared& c) {
  return of_ratios(k, c, smoothed(margin_of(k, c), k.label_smoothing));
}

Judged hinge(const ObjectiveKeys& k, const Compared& c) {
  const double rest = 1 - margin_of(k, c);
  return of_ratios(k, c, rest > 0 ? OfMargin{rest, -1} : OfMargin{0, 0});
}

// Without bias where labels are wrong with probability `e`, unlike smoothed().
Judged robust(const ObjectiveKeys& k, const Compared& c) {
  const double x = margin_of(k, c), e = k.label_smoothing, scale = 1 / (1 - 2 * e);
  return of_ratios(k, c,
                   {scale * (e * log_sigmoid(-x) - (1 - e) * log_sigmoid(x)),
                    -scale * (e * sigmoid(x) + (1 - e) * sigmoid(-x))});
}

// By the mean over an answer's tokens, so that longer ones do not count more.
Judged ipo(const ObjectiveKeys& k, const Compared& c) {
  const double per_chosen = 1 / double(c.chosen.tokens), per_rejected = 1 / double(c.rejected.tokens);
  const double rest = c.chosen.ratio() * per_chosen - c.rejected.ratio() * per_rejected - 1 / (2 * *k.beta);
  return {rest * rest, 2 * rest * per_chosen, -2 * rest * per_rejected, *k.beta * c.chosen.ratio(),
          *k.beta * c.rejected.ratio()};
}

Judged simpo(const ObjectiveKeys& k, const Compared& c) {
  const double better = mean(c.chosen), worse = mean(c.rejected);
  const auto [loss, slope] = smoothed(*k.beta * (better - worse) - k.simpo_gamma, k.label_smoothing);
  return {loss, *k.beta * slope / double(c.chosen.tokens), -*k.beta * slope / double(c.rejected.tokens),
          *k.beta * better, *k.beta * worse};
}

// log(1 - e^x) of x below 0.
double log_1_minus_exp(double x) {
  constexpr double kLog2 = 0.6931471805599453;
  return x > -kLog2 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

Judged orpo(const ObjectiveKeys& k, const Compared& c) {
  const double better = mean(c.chosen), worse = mean(c.rejected);
  const double odds = better - worse - (log_1_minus_exp(better) - log_1_minus_exp(worse));
  const double slope = -*k.beta * sigmoid(-odds);
  return {-*k.beta * log_sigmoid(odds), slope / -std::expm1(better) / double(c.chosen.tokens),
          -slope / -std::expm1(worse) / double(c.rejected.tokens), *k.beta * better, *k.beta * worse};
}

// The answer that is there is good if it is better than the reference by more than `kl`.
Judged marked(const ObjectiveKeys& k, const Compared& c, double kl) {
  Judged out;
  if (c.has_chosen) {
    const double s = sigmoid(*k.beta * (c.chosen.ratio() - kl));
    out.loss = k.desirable_weight * (1 - s);
    out.chosen = -k.desirable_weight * *k.beta * s * (1 - s);
    out.chosen_reward = *k.beta * c.chosen.ratio();
  } else {
    const double s = sigmoid(*k.beta * (kl - c.rejected.ratio()));
    out.loss = k.undesirable_weight * (1 - s);
    out.rejected = k.undesirable_weight * *k.beta * s * (1 - s);
    out.rejected_reward = *k.beta * c.rejected.ratio();
  }
  return out;
}
Judged kto(const ObjectiveKeys& k, const Compared& c) {
  return marked(k, c, c.kl);
}
Judged apo_zero(const ObjectiveKeys& k, const Compared& c) {
  return marked(k, c, 0);
}

double one(const ObjectiveKeys&) {
  return 1;
}
double cpo_alpha(const ObjectiveKeys& k) {
  return k.cpo_alpha;
}

std::string names_of(std::span<const LossType> losses) {
  std::string out;
  for (const LossType& l : losses) out += fmt::format("{}{}", out.empty() ? "" : ", ", l.name);
  return out;
}

}  // namespace

std::span<const Objective> objectives() {
  static const std::vector<Objective> all{
      {.name = "supervised", .meaning = "the likelihood of what is learnt"},
      {.name = "dpo",
       .meaning = "pairs, by how much likelier the better answer became than at the start",
       .compares = Compares::Pairs,
       .reference = true,
       .losses = {{"sigmoid", dpo, {"label_smoothing"}},
                  {"hinge", hinge},
                  {"ipo", ipo},
                  {"robust", robust, {"label_smoothing"}}},
       .keys = {"beta"}},
      {.name = "simpo",
       .meaning = "pairs, by the mean of an answer's tokens, without a reference",
       .compares = Compares::Pairs,
       .losses = {{"simpo", simpo, {"label_smoothing"}}},
       .keys = {"beta", "simpo_gamma", "cpo_alpha"},
       .averages = true,
       .likelihood = cpo_alpha},
      {.name = "orpo",
       .meaning = "pairs, by their odds, beside the likelihood of the better one",
       .compares = Compares::Pairs,
       .losses = {{"orpo", orpo}},
       .keys = {"beta"},
       .averages = true,
       .whole_likelihood = true,
       .likelihood = one},
      {.name = "kto",
       .meaning = "answers marked good or bad, by how much likelier they became than at the start",
       .compares = Compares::Marks,
       .reference = true,
       .losses = {{"kto", kto, {}, /*kl=*/true}, {"apo_zero_unpaired", apo_zero}},
       .keys = {"beta", "desirable_weight", "undesirable_weight"}},
      {.name = "grpo",
       .meaning = "sampled answers, by how much better their rewards are than those beside them",
       .compares = Compares::Rewards,
       .reference = true,
       .losses = policy_losses(),
       .keys = {"beta", "importance_sampling_level", "scale_rewards"},
       .beta = 0},
      {.name = "distillation",
       .meaning = "answers, by how far each token's distribution is from the one that a teacher recorded",
       .compares = Compares::Teacher,
       .losses = distillation_losses(),
       .keys = {"beta", "loss_top_k", "loss_add_tail", "temperature"},
       .beta = 0}};
  return all;
}

const Objective* find_objective(std::string_view name) {
  for (const Objective& o : objectives()) {
    if (o.name == name) return &o;
  }
  return nullptr;
}

const LossType& loss_type_of(const Objective& o, const ObjectiveKeys& keys) {
  for (const LossType& l : o.losses) {
    if (l.name == keys.loss_type) return l;
  }
  SLUICE_CHECK(keys.loss_type.empty() && !o.losses.empty(), "{}: loss '{}'", o.name, keys.loss_type);
  return o.losses.front();
}

bool reads_reference(const Objective& o, const ObjectiveKeys& keys) {
  return o.reference && keys.beta.value_or(o.beta) > 0;
}

ObjectiveKeys with_defaults(const Objective& o, ObjectiveKeys keys) {
  if (o.compares != Compares::Nothing && !keys.beta) keys.beta = o.beta;
  return keys;
}

double likelihood_of(const Objective& o, const ObjectiveKeys& keys) {
  return o.likelihood == nullptr ? 0 : o.likelihood(keys);
}

Status check_objective(const Objective& o, const ObjectiveKeys& keys,
                       std::span<const std::string_view> given) {
  const auto has_loss = [&](std::string_view name) {
    return std::any_of(o.losses.begin(), o.losses.end(), [&](const LossType& l) { return l.name == name; });
  };
  if (o.compares == Compares::Nothing) {
    if (given.empty()) return {};
    std::vector<std::string_view> others;
    for (const Objective& other : objectives()) {
      if (other.compares != Compares::Nothing) others.push_back(other.name);
    }
    return error("objective.{}: train.objective = {} has no such setting; allowed beside it are {}",
                 given.front(), o.name, fmt::join(others, ", "));
  }
  if (!keys.loss_type.empty() && !has_loss(keys.loss_type))
    return error("objective.loss_type = {}: train.objective = {} has {}", keys.loss_type, o.name,
                 names_of(o.losses));
  const LossType& loss = loss_type_of(o, keys);
  std::vector<std::string_view> own = o.keys;
  own.insert(own.end(), loss.keys.begin(), loss.keys.end());
  for (const std::string_view key : given) {
    if (key != "loss_type" && std::find(own.begin(), own.end(), key) == own.end())
      return error(
          "objective.{}: train.objective = {} with objective.loss_type = {} has no such setting; it has {}",
          key, o.name, loss.name, fmt::join(own, ", "));
  }
  if (o.beta > 0 && keys.beta == 0.0)
    return error("objective.beta = 0: with train.objective = {}, allowed are numbers above 0", o.name);
  if (loss.name == "robust" && keys.label_smoothing >= 0.5)
    return error("objective.label_smoothing = {}: with robust, allowed are numbers from 0 to below 0.5",
                 keys.label_smoothing);
  if (o.compares == Compares::Teacher) return check_distillation(keys);
  return loss.policy == nullptr ? Status() : check_policy(loss, keys);
}

}  // namespace sluice::core
