// SPDX-License-Identifier: Apache-2.0
// Answers that are compared in steps and evaluations: the reference's log-probabilities, the loss of a step
// with the weights of its tokens, and what people are told of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/data/data.h"
#include "run/session/engine.h"

namespace sluice::core {

// Log-probabilities of the sides of documents by the model as a run begins: two of each document. Of marked
// answers the second is that of another answer to the prompt.
struct Reference {
  std::string weights;  // their checksum; empty: the objective reads none
  std::vector<double> train, heldout;
};
// Passes of evaluation programs, as evaluate_each() asks for them.
EvaluationPass pass_of(Engine& engine);
std::function<int64_t(int64_t)> sequences_of(const Engine& engine);

// A part of the data for whose tokens a reference has values: so many, which `make` makes where the cache
// does not have them. `network`: null: this process alone makes them.
struct ReferencePart {
  std::string_view side;
  std::vector<double>* values;
  size_t count;
  Network* network;
  std::function<Status()> make;
};
// Has the values of all parts, by the weights that a run begins with, and returns their checksum; `content`
// names the data. The rest is reference_of()'s.
Result<std::string> have_reference(Engine& engine, const std::string& content, const std::string& saved,
                                   Observer& observer, std::span<const ReferencePart> parts);

// Has the weights that a run begins with, and returns their checksum. `saved`: that of a run that goes on,
// which they have to have; empty: they are there.
Result<std::string> weights_of_reference(Engine& engine, const std::string& saved);

// From the cache, or made by evaluation passes and kept there. `saved`: Reference::weights of a run that goes
// on; empty: it begins with the weights that the engine has. REQUIRES: no step was made; evaluation was
// planned. Errors: weights that are not there any more.
Result<Reference> reference_of(Engine& engine, const RunData& data, const std::string& saved,
                               Observer& observer);

// Sums over a row's comparisons; those of a step or of an evaluation are added in the order of rows.
struct ComparedSums {
  double loss = 0, chosen_reward = 0, rejected_reward = 0, chosen_log_prob = 0, rejected_log_prob = 0;
  double log_likelihood = 0;                   // of what likelihood_of() counts
  double count = 0, chosen = 0, rejected = 0;  // comparisons, and those that have each side
  double right = 0;                            // pairs in which the chosen answer has the higher reward
  double tokens = 0;                           // of log_likelihood

  void add(const ComparedSums& other);
};

class Comparison {
 public:
  // Borrows all of it.
  Comparison(Engine& engine, const RunData& data, Reference reference);

  const std::string& weights() const { return reference_.weights; }
  // One optimizer step on these rows, which are those of the data's next step.
  Result<StepResult> step(const Rows& rows, double learning_rate, std::vector<Interval>* timeline);
  // As evaluate_rows(): a row's targets are its comparisons, and its hits the right ones.
  Result<Evaluation> evaluate(int64_t rows, const std::function<bool()>& stop);

 private:
  // The step in the making: the sides of its own rows, its divisors, and what its rounds said so far.
  struct Step;
  // How much likelier other answers to these prompts are than by the reference, in the mean, from 0 up.
  Result<double> kl_of(const BatchSource& source, const std::vector<std::vector<RowSide>>& rows,
                       const std::vector<double>& reference);
  // Compares the answers of a row, `log_probs` of its targets. With `weights`, sets those of its tokens, for
  // a step of so many comparisons and tokens.
  ComparedSums compare(const std::vector<RowSide>& sides, std::span<const float> log_probs,
                       const std::vector<double>& reference, double kl, const ComparedSums& all,
                       std::span<float> weights) const;
  double loss_of(const ComparedSums& sums) const;
  std::vector<sluice::NamedValue> values_of(const ComparedSums& sums, std::optional<double> kl) const;

  Engine& engine_;
  const RunData& data_;
  const Reference reference_;
  const Objective& objective_;
  const ObjectiveKeys keys_;
  const LossType& loss_;
};

}  // namespace sluice::core
