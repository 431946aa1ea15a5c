// SPDX-License-Identifier: Apache-2.0
// Steps that learn from answers by their rewards: the answers of a step, sampled or recorded, its rows, and
// its loss.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "objective/policy.h"
#include "run/data/prompts.h"
#include "run/data/rewards.h"
#include "run/loaded/counted_texts.h"
#include "run/session/engine.h"

namespace sluice::core {

// Samples `count` answers to each prompt, whose rewards are not known. An answer is a function of the
// weights, the seed, `step`, and the numbers of prompt and answer. REQUIRES: sampling was planned, with a
// window that holds prompt and answer.
struct AnswerRequest {
  int64_t count = 1, max_tokens = 1, step = 0;
  double temperature = 1;
  uint64_t seed = 0;
  std::vector<int32_t> ends = {};
};
Status sample_answers(Engine& engine, const AnswerRequest& request, std::vector<PromptGroup>& groups);

class Rollout {
 public:
  // Borrows engine and data. `saved`: the checksum of the reference's weights, of a run that goes on; empty:
  // it begins. REQUIRES: as reference_of().
  static Result<std::unique_ptr<Rollout>> open(Engine& engine, const RunData& data, const std::string& saved,
                                               Observer& observer);
  // Removes the file of the weights that the run began with: one that goes on makes it again.
  ~Rollout();

  // The checksum of the reference's weights; empty: none is read.
  const std::string& weights() const { return weights_; }
  // One optimizer step on the answers that it is due.
  Result<StepResult> step(double learning_rate, std::vector<Interval>* timeline);

 private:
  Rollout(Engine& engine, const RunData& data);
  // The answers that a step learns from.
  struct Answers {
    int64_t step = -1;  // for which they were sampled
    std::vector<PromptGroup> groups;
    std::vector<int64_t> numbers;  // of their prompts
    Advantages advantages;         // in the order of groups and their answers
    // By group and answer, log-probabilities of each token by the reference; empty: none is read.
    std::vector<std::vector<std::vector<float>>> reference;
  };
  // Has the answers of this step: those of the step before, where that is what iterations are for.
  Status have_answers(int64_t step);
  // Has the groups of the prompts, of which the numbers are there.
  Status draw(Answers& answers);
  // Scores answers that are recorded; keeps the weights that will score those that are sampled.
  Status make_reference(const std::string& content, const std::string& saved, Observer& observer);
  // Log-probabilities of answers by the weights as they are, as Answers::reference has them.
  Status score(const std::vector<PromptGroup>& groups, std::vector<std::vector<std::vector<float>>>& out);
  // The same by those that the run began with.
  Status score_by_beginning(Answers& answers);
  std::vector<sluice::NamedValue> values_of(const PolicySums& sums) const;
  std::filesystem::path file() const;  // of the newest answers
  // Files of the weights that the run began with, and of the trained ones while those are in their place.
  std::filesystem::path file_of_beginning() const { return file().replace_filename("reference.bin"); }
  std::filesystem::path file_of_trained() const { return file().replace_filename("trained.bin"); }

  Engine& engine_;
  const RunConfig& config_;
  const Prompts& prompts_;
  const ObjectiveKeys keys_;
  const LossType& loss_;
  std::unique_ptr<RewardFunction> rewards_;  // null: they are recorded
  std::string weights_;
  // By prompt, as Answers::reference: scores of recorded answers.
  std::vector<std::vector<std::vector<float>>> reference_;
  KeptWeights beginning_;
  Answers answers_;
  double sampling_s_ = 0, rewards_s_ = 0, reference_s_ = 0;  // of the step in progress
};

}  // namespace sluice::core
