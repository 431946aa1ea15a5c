// SPDX-License-Identifier: Apache-2.0
// How far a model's distribution of a token is from a teacher's, of which the likeliest tokens were recorded.
// Names and formulas are those of TRL 1.16's ServerDistillationTrainer, of any number of tokens and any beta.
#pragma once

#include <span>

#include "objective/objective.h"

namespace sluice::core {

// Log-probabilities of the same tokens by both, of one place; the teacher's is -inf where there is none.
//
// objective.beta: 0: KL(teacher || model); 1: KL(model || teacher); between: the Jensen-Shannon divergence,
// with beta the teacher's part of the mixture. objective.loss_add_tail: all other tokens together are one
// more token; otherwise both distributions are those among the recorded tokens, each probability to the power
// of 1 / objective.temperature.
struct TopLogProbs {
  std::span<const float> teacher, model;
};
struct Divergence {
  double value = 0;
  double teacher_mass = 0, model_mass = 0;  // probability of the recorded tokens
};
// Puts derivatives with respect to the model's log-probabilities into `slopes`. REQUIRES: as many of all.
Divergence divergence_of(const ObjectiveKeys& keys, const TopLogProbs& recorded, std::span<float> slopes);

// Rows of the table of objectives.
std::vector<LossType> distillation_losses();
Status check_distillation(const ObjectiveKeys& keys);

}  // namespace sluice::core
