// SPDX-License-Identifier: Apache-2.0
#include "setup/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/counts.h"

namespace sluice::core {
namespace {

// How a rate changes with the tokens of a step, and how far from where it is known.
constexpr double kByTokens = 0.25, kLeast = 1.0 / 400;
constexpr double kTokens = 1024;  // of the steps that the optimizers' rates are of
// Random weights of larger models are trained in longer steps, up to a length: GPT-3's. With those its table
// of rates falls as ours do. Rates above those of small models help nobody.
constexpr double kTokensByParams = 1.5, kMostTokens = 524288, kMostRandom = 1;
constexpr double kMostGiven = 2.5;
// The best rate for adapters is about so many times the best for all weights, whatever the model's size and
// the rank ("LoRA Without Regret", Schulman et al. 2025).
constexpr double kAdapters = 10;

double two_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

}  // namespace

ChosenRate automatic_rate(const RateSubject& s) {
  if (s.adapters) {
    RateSubject whole = s;
    whole.adapters = false, whole.given_weights = true;
    const double rate = two_digits(kAdapters * automatic_rate(whole).rate);
    return {rate,
            fmt::format("train.learning_rate = auto: {:g}, for adapters: {:g} times what training all {} "
                        "would take, {} a step, with {} (docs/learning-rate.md)",
                        rate, kAdapters, counted(s.params, "parameter"), counted(s.tokens_per_step, "token"),
                        s.optimizer.name)};
  }
  const std::optional<double> own =
      s.optimizer.own_rate == nullptr ? std::nullopt : s.optimizer.own_rate(s.values, s.given_weights);
  if (own)
    return {*own, fmt::format("train.learning_rate = auto: {:g}, for {} weights with {} and its settings "
                              "(docs/learning-rate.md)",
                              *own, s.given_weights ? "given" : "random", s.optimizer.name)};
  const Optimizer::Rate& known = s.given_weights ? s.optimizer.given_weights : s.optimizer.random_weights;
  const double params = double(std::max<int64_t>(s.params, 1));
  const double larger = params / (s.given_weights ? kGivenParams : kRandomParams);
  const double usual = s.given_weights
                           ? kTokens
                           : std::clamp(kTokens * std::pow(larger, kTokensByParams), kTokens, kMostTokens);
  const double longer = double(s.tokens_per_step) / usual;
  const double by_step = std::pow(s.given_weights ? longer : std::min(longer, 1.0), kByTokens);
  const double factor = std::clamp(std::pow(larger, -known.by_params) * by_step, kLeast,
                                   s.given_weights ? kMostGiven : kMostRandom);
  const double rate = two_digits(known.rate * factor);
  return {rate, fmt::format("train.learning_rate = auto: {:g}, for {} weights, {} and {} a step with {} "
                            "(docs/learning-rate.md)",
                            rate, s.given_weights ? "given" : "random", counted(s.params, "parameter"),
                            counted(s.tokens_per_step, "token"), s.optimizer.name)};
}

namespace {

ChosenRate rate_of(const RunConfig& c, const ModelSpec& model) {
  return automatic_rate({c.optimizer(), model.params(), c.train.tokens_per_step, !c.model.weights.empty(),
                         model.adapters.any(), c.optimizer_values()});
}

}  // namespace

Result<ChosenRate> choose_rate(const RunConfig& c, const ModelSpec& model) {
  const ChosenRate chosen =
      c.train.learning_rate ? ChosenRate{*c.train.learning_rate, ""} : rate_of(c, model);
  if (c.train.min_learning_rate && *c.train.min_learning_rate > chosen.rate) {
    return error(
        "train.min_learning_rate = {}: must be at most train.learning_rate = {}{}; auto is a tenth of it",
        *c.train.min_learning_rate, chosen.rate, chosen.why.empty() ? "" : " (auto)");
  }
  return chosen;
}

int64_t warmup_steps(const RunConfig& c) {
  constexpr int64_t kUsual = 10;
  return c.train.warmup_steps.value_or(std::min(kUsual, c.train.steps));
}

std::string schedule_words(const RunConfig& c) {
  const auto& t = c.train;
  const int64_t warmup = warmup_steps(c);
  std::string out = fmt::format("{:g}", *t.learning_rate);
  if (warmup > 0) out += fmt::format(": up through {}", counted(warmup, "step"));
  if (t.schedule == "constant") return out + (warmup > 0 ? ", then level" : ": level");
  const double lowest = t.min_learning_rate.value_or(*t.learning_rate / 10);
  const std::string down =
      fmt::format("down to {:g} {}", lowest, t.schedule == "cosine" ? "by a cosine" : "in a line");
  if (t.schedule != "wsd") return out + (warmup > 0 ? ", then " : ": ") + down;
  return out + fmt::format("{} level, and {} in the last {}", warmup > 0 ? ", then" : ":", down,
                           t.decay_steps > 0 ? counted(t.decay_steps, "step") : "tenth of the steps");
}

std::vector<std::string> schedule_notices(const RunConfig& c, const ModelSpec& model) {
  std::vector<std::string> out;
  const auto& t = c.train;
  const int64_t warmup = warmup_steps(c), after = t.steps - warmup;
  const double rate = *t.learning_rate, usual = rate_of(c, model).rate;
  const bool decays = t.schedule != "constant";
  if (after < 0) {
    out.push_back(fmt::format(
        "train.warmup_steps = {}: the run ends after {}, while its rate still rises: at {:g}, not {:g}",
        warmup, counted(t.steps, "step"), rate * double(t.steps) / double(warmup), rate));
  } else if (after == 0 && t.steps > 0 && !t.warmup_steps) {
    out.push_back(fmt::format("train.warmup_steps = auto: the rate rises through all of the run's {}",
                              counted(t.steps, "step")));
  } else if (after == 0 && t.steps > 0 && decays) {
    out.push_back(
        fmt::format("train.schedule = {}: the rate never falls, as train.warmup_steps = {} takes all "
                    "of the run's steps",
                    t.schedule, warmup));
  }
  if (t.schedule == "wsd" && t.decay_steps > after && after > 0) {
    out.push_back(fmt::format("train.decay_steps = {}: {} the warm-up, and the rate falls through them",
                              t.decay_steps, counted(after, "step", "follows", "follow")));
  } else if (t.schedule == "wsd" && t.decay_steps == 0 && t.steps < 10 && after > 0) {
    out.push_back(fmt::format("train.decay_steps = 0: a tenth of {} is no step, so that the rate never falls",
                              counted(t.steps, "step")));
  } else if (t.schedule != "wsd" && t.decay_steps > 0) {
    out.push_back(
        fmt::format("train.decay_steps = {} does not count: it is of train.schedule = wsd, not of {}",
                    t.decay_steps, t.schedule));
  }
  if (!decays && t.min_learning_rate)
    out.push_back(
        fmt::format("train.min_learning_rate = {:g} does not count: train.schedule = constant stays",
                    *t.min_learning_rate));
  constexpr double kRuins = 100, kNothing = 1e-6;
  if (rate > kRuins * usual) {
    out.push_back(
        fmt::format("train.learning_rate = {:g}: {:.2g} times what auto takes, {:g}: steps of such a "
                    "size leave little of what the weights were",
                    rate, rate / usual, usual));
  } else if (rate < kNothing * usual) {
    out.push_back(fmt::format("train.learning_rate = {:g}: nothing to speak of is learnt; auto takes {:g}",
                              rate, usual));
  }
  return out;
}

}  // namespace sluice::core
