// SPDX-License-Identifier: Apache-2.0
#include "plans/learning_rate.h"

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

double two_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

}  // namespace

ChosenRate automatic_rate(const RateSubject& s) {
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

Result<std::string> choose_rate(RunConfig& c, const ModelSpec& model) {
  std::string why;
  if (!c.train.learning_rate) {
    ChosenRate chosen = automatic_rate({c.optimizer(), model.params(), c.train.tokens_per_step,
                                        !c.model.weights.empty(), c.optimizer_values()});
    c.train.learning_rate = chosen.rate;
    why = std::move(chosen.why);
  }
  if (c.train.min_learning_rate && *c.train.min_learning_rate > *c.train.learning_rate) {
    return error(
        "train.min_learning_rate = {}: must be at most train.learning_rate = {}{}; auto is a tenth of it",
        *c.train.min_learning_rate, *c.train.learning_rate, why.empty() ? "" : " (auto)");
  }
  return why;
}

}  // namespace sluice::core
