// SPDX-License-Identifier: Apache-2.0
#include "objective/distillation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace sluice::core {
namespace {

// The nearest to 0 that the logarithm of the recorded tokens' probability may be, as in TRL.
constexpr double kMostLogSum = -1e-7;

double log_sum_exp(std::span<const double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double one : x) sum += std::exp(one - top);
  return top + std::log(sum);
}

// A distribution over the recorded tokens, with the tail behind them where there is one: logarithms.
struct Distribution {
  std::vector<double> logs;
  double mass = 0;        // of the recorded tokens, before
  double tail_slope = 0;  // of the tail's logarithm with respect to that of `mass`
  double temperature = 1;

  Distribution(const ObjectiveKeys& keys, std::vector<double> log_probs)
      : logs(std::move(log_probs)), temperature(keys.temperature) {
    const double log_sum = log_sum_exp(logs);
    mass = std::exp(log_sum);
    if (keys.loss_add_tail) {
      const double bound = std::min(log_sum, kMostLogSum), rest = -std::expm1(bound);
      logs.push_back(std::log(rest));
      tail_slope = log_sum < kMostLogSum ? -std::exp(bound) / rest : 0;
      return;
    }
    for (double& one : logs) one /= temperature;
    const double all = log_sum_exp(logs);
    for (double& one : logs) one -= all;
  }
};

// A term of the divergence and its derivative with respect to the model's logarithm.
struct Term {
  double value, slope;
};
Term term_of(double beta, double teacher, double model) {
  const double t = std::exp(teacher), m = std::exp(model);
  if (beta == 0) return {t * (teacher - model), -t};
  if (beta == 1) return {m * (model - teacher), m * (model - teacher + 1)};
  const std::array<double, 2> parts{teacher + std::log(beta), model + std::log1p(-beta)};
  const double mixture = log_sum_exp(parts);
  return {beta * t * (teacher - mixture) + (1 - beta) * m * (model - mixture),
          (1 - beta) * m * (model - mixture)};
}

}  // namespace

Divergence divergence_of(const ObjectiveKeys& keys, const TopLogProbs& recorded, std::span<float> slopes) {
  std::vector<size_t> places;
  std::vector<double> of_teacher, of_model;
  for (size_t i = 0; i < recorded.teacher.size(); ++i) {
    if (!std::isfinite(recorded.teacher[i])) continue;
    places.push_back(i);
    of_teacher.push_back(double{recorded.teacher[i]});
    of_model.push_back(double{recorded.model[i]});
  }
  std::fill(slopes.begin(), slopes.end(), 0.0F);
  if (places.empty()) return {};
  const Distribution teacher(keys, std::move(of_teacher)), model(keys, std::move(of_model));
  Divergence out{.teacher_mass = teacher.mass, .model_mass = model.mass};
  std::vector<double> terms;
  double sum = 0;
  for (size_t j = 0; j < model.logs.size(); ++j) {
    const Term term = term_of(*keys.beta, teacher.logs[j], model.logs[j]);
    out.value += term.value;
    terms.push_back(term.slope);
    sum += term.slope;
  }
  for (size_t j = 0; j < places.size(); ++j) {
    const double slope =
        keys.loss_add_tail ? terms[j] + terms.back() * model.tail_slope * std::exp(model.logs[j]) / model.mass
                           : (terms[j] - std::exp(model.logs[j]) * sum) / model.temperature;
    slopes[places[j]] = float(slope);
  }
  return out;
}

std::vector<LossType> distillation_losses() {
  return {{"jsd"}};
}

Status check_distillation(const ObjectiveKeys& keys) {
  if (keys.beta.value_or(0) > 1)
    return error(
        "objective.beta = {:g}: with train.objective = distillation, allowed are numbers from 0 to 1",
        *keys.beta);
  if (keys.loss_top_k == 0)
    return error(
        "objective.loss_top_k: train.objective = distillation needs it: how many of the teacher's tokens are "
        "read in each place");
  if (keys.temperature != 1 && keys.loss_add_tail)
    return error(
        "objective.temperature = {:g}: what the teacher's other tokens have at another temperature is not "
        "known; "
        "objective.loss_add_tail = false compares the recorded tokens alone",
        keys.temperature);
  return {};
}

}  // namespace sluice::core
