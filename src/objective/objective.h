// SPDX-License-Identifier: Apache-2.0
// Objectives other than the likelihood of what is learnt: functions of the log-probabilities of whole
// answers. An objective is a row of a table. It says what its records compare, whether it needs a reference,
// which keys it reads, and its losses. Names, defaults and formulas are those of TRL 1.16 but where a row
// says otherwise.
//
// A step's loss is the mean over its pairs or marked answers. Where likelihood() is above 0, that times the
// mean of -log p over the tokens of its chosen answers is added. Sampled answers with rewards are of
// objective/policy.h, recorded tokens of a teacher of objective/distillation.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// How records of an objective say what is better.
enum class Compares : uint8_t {
  Nothing,  // they do not: what they say is learnt
  Pairs,    // a chosen and a rejected answer to one prompt
  Marks,    // an answer, and whether it is good
  Rewards,  // answers to one prompt, each with a number
  Teacher,  // answers, and the likeliest tokens in each of their places by another model
};

// The keys of [objective].
struct ObjectiveKeys {
  std::string loss_type;       // empty: the objective's first
  std::optional<double> beta;  // none: the objective's
  double label_smoothing = 0;
  double desirable_weight = 1, undesirable_weight = 1;
  double simpo_gamma = 0.5, cpo_alpha = 0;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;  // none: epsilon
  std::optional<double> delta;         // none: no bound
  double sapo_temperature_neg = 1.05, sapo_temperature_pos = 1;
  std::string importance_sampling_level = "token", scale_rewards = "group";
  int64_t loss_top_k = 0;  // 0: not said
  bool loss_add_tail = true;
  double temperature = 1;
};

// An answer: the sum of its tokens' log-probabilities, now and by the reference, and how many there are.
struct Answer {
  double log_prob = 0, reference = 0;
  int64_t tokens = 1;

  double ratio() const { return log_prob - reference; }
};

// Two answers to compare. A marked one stands where its mark says, and the other place is empty.
struct Compared {
  Answer chosen, rejected;
  bool has_chosen = true, has_rejected = true;
  double kl = 0;  // how far the model is from the reference, in the mean of the step (KTO)
};

// The loss of one comparison, its derivatives with respect to both log-probabilities, and rewards, for
// people.
struct Judged {
  double loss = 0;
  double chosen = 0, rejected = 0;
  double chosen_reward = 0, rejected_reward = 0;
};

struct PolicyLoss;  // objective/policy.h

struct LossType {
  std::string_view name;
  Judged (*judge)(const ObjectiveKeys& keys, const Compared& compared) = nullptr;
  std::vector<std::string_view> keys = {};  // of [objective], beside loss_type and the objective's
  bool kl = false;                          // reads Compared::kl
  const PolicyLoss* policy = nullptr;       // of Compares::Rewards, in place of `judge`
};

struct Objective {
  std::string_view name, meaning;
  Compares compares = Compares::Nothing;
  bool reference = false;  // reads Answer::reference
  std::vector<LossType> losses;
  std::vector<std::string_view> keys;  // of [objective], beside loss_type and the loss's
  double beta = 0.1;                   // where it is left open; 0: it may be, and reads no reference then
  bool averages = false;               // rewards and logps of metrics are of a token, in the mean
  // The likelihood counts the tokens of the prompt, too.
  bool whole_likelihood = false;
  double (*likelihood)(const ObjectiveKeys& keys) = nullptr;  // null: 0
};
// The first is supervised training.
std::span<const Objective> objectives();
// Null: there is none of that name.
const Objective* find_objective(std::string_view name);

// Whether it reads the log-probabilities of a reference.
bool reads_reference(const Objective& objective, const ObjectiveKeys& keys);
// The keys, of which none is open that the objective has a default for.
ObjectiveKeys with_defaults(const Objective& objective, ObjectiveKeys keys);
// The loss that the keys ask for. REQUIRES: check_objective(); it compares something.
const LossType& loss_type_of(const Objective& objective, const ObjectiveKeys& keys);
double likelihood_of(const Objective& objective, const ObjectiveKeys& keys);
// Refuses a loss that the objective has not, keys that it does not read, and values that its loss cannot
// have. `given`: names of the keys that are not at their defaults, without "objective.".
Status check_objective(const Objective& objective, const ObjectiveKeys& keys,
                       std::span<const std::string_view> given);

}  // namespace sluice::core
