// SPDX-License-Identifier: Apache-2.0
// The table of [train]: what a step computes, and how many there are.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/numerics.h"
#include "config/row.h"
#include "config/values.h"
#include "update/optimizer.h"

namespace sluice::core {

constexpr GoesOn kOtherSteps = refused("other steps");
constexpr GoesOn kOtherEnd = allowed_by("steps", "the learning rate's decay ends elsewhere", "train.steps");
constexpr GoesOn kOtherRate = allowed_by("learning_rate",
                                         "another rate. Left open, they are the checkpoint's; "
                                         "`train.min_learning_rate` while `train.learning_rate` is");
constexpr GoesOn kOtherUpdate = refused("another update");
constexpr GoesOn kOtherFormats = allowed_by("formats", "other number formats: the state is rounded to them");

struct TrainKeys {
  int64_t seq_len = 256;
  int64_t tokens_per_step = 4096;
  int64_t steps = 100;
  double epochs = 0;  // 0: `steps` says how many there are
  int64_t seed = 1;
  std::optional<double> learning_rate;      // none: choose_rate() of plans/learning_rate.h
  std::optional<double> min_learning_rate;  // none: a tenth of learning_rate
  std::optional<int64_t> warmup_steps;      // none: warmup_steps() of plans/learning_rate.h
  std::string schedule = "cosine";
  int64_t decay_steps = 0;
  std::string optimizer = std::string(optimizers().front()->name);
  std::map<std::string, double, std::less<>> hyperparameters;  // of the optimizer: those that were given
  double clip_norm = 1.0;
  double router_z_loss = 0;
  int64_t max_skipped = 10;
  std::optional<DType> compute, grad, state;        // none: by the machine
  std::optional<MasterWeights> master;              // none: by these
  std::optional<bool> stochastic, deferred_update;  // none: by these and the machine
  std::vector<std::string> freeze;                  // see frozen() in model/weights.h
};

inline Choices optimizer_names() {
  Choices names;
  for (const Optimizer* o : optimizers()) names.emplace_back(o->name);
  return names;
}
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_train_keys(Keys& c, F&& key) {
  key("train.seq_len", c.seq_len, Tokens{{2, 16777216}},
      {"tokens per sequence", kOtherSteps, Recorded::Otherwise, KeyOf::Step});
  key("train.tokens_per_step", c.tokens_per_step, Tokens{{1, most::kTokens}},
      {"tokens per optimizer step", kOtherSteps, Recorded::Always, KeyOf::Step});
  key("train.steps", c.steps, kCountsOfSteps, {"optimizer steps", kOtherEnd});
  key("train.epochs", c.epochs, Range{0, 1e6},
      {"how often the data is gone through, which sets train.steps; 0: as train.steps says", kOtherEnd});
  key("train.seed", c.seed, kNotNegative,
      {"of weights, data order and rounding", refused("other rows and rounding"), Recorded::Always,
       KeyOf::Step});
  key("train.learning_rate", c.learning_rate, Range{0, kMostLearningRate},
      {"peak, after warm-up; auto: by the model's size, its weights, tokens per step and optimizer",
       kOtherRate});
  key("train.min_learning_rate", c.min_learning_rate, Range{0, kMostLearningRate},
      {"at the end, but of a constant schedule; auto: a tenth of train.learning_rate", kOtherRate});
  key("train.warmup_steps", c.warmup_steps, kCountsOfSteps,
      {"steps of linear warm-up; auto: 10, or all steps of a shorter run", kOtherRate});
  key("train.schedule", c.schedule, Choices{"cosine", "linear", "constant", "wsd"},
      {"the learning rate after warm-up; wsd stays, and decays linearly in the last steps", kOtherRate});
  key("train.decay_steps", c.decay_steps, kCountsOfSteps, {"of wsd; 0: a tenth of the steps", kOtherRate});
  key("train.optimizer", c.optimizer, optimizer_names(),
      {"how gradients change the weights", kOtherUpdate, Recorded::Always, KeyOf::Step});
  key("train.clip_norm", c.clip_norm, Range{0, kMostClipNorm},
      {"global gradient norm; 0: no clipping", kOtherUpdate, Recorded::Otherwise, KeyOf::Step});
  key("train.router_z_loss", c.router_z_loss, Range{0, kMostClipNorm},
      {"how much the z-loss of routers is trained beside the loss: the square of log-sum-exp of a token's "
       "router logits, summed over the layers with experts; 0: not",
       refused("another loss of routers"), Recorded::Changed, KeyOf::Step});
  key("train.max_skipped", c.max_skipped, Range{1, most::kAny},
      {"steps in a row whose gradient is not finite, so that no update was made, that end the run"});
  key("train.compute", c.compute, Numbers(),
      {"type of weights and activations", refused("another number format of the weights"), Recorded::Always,
       KeyOf::Step});
  key("train.grad", c.grad, Numbers(),
      {"type in which weight gradients accumulate", kOtherFormats, Recorded::Always, KeyOf::Step});
  key("train.state", c.state, StateNumbers(),
      {"type of the optimizer's state; i8: a byte an element, and a scale for every 32", kOtherFormats,
       Recorded::Always, KeyOf::Step});
  key("train.master", c.master, MasterNumbers(),
      {"type of master weights beside bf16 weights; i8: what bf16 lacks of 24 bits, in a byte an element",
       kOtherFormats, Recorded::Always, KeyOf::Step});
  key("train.stochastic", c.stochastic, Toggle(),
      {"stochastic rounding of bf16 weights and state", kOtherFormats, Recorded::Always, KeyOf::Step});
  key("train.deferred_update", c.deferred_update, Toggle(),
      {"update each weight just before its next use", {}, Recorded::Otherwise, KeyOf::Step});
  key("train.freeze", c.freeze, nullptr,
      {"patterns over the names of the model's tensors: what they name stays as it is; ! before one takes "
       "back",
       allowed_by("freeze", "other weights change. What is trained anew begins with moments of zero"),
       Recorded::Changed, KeyOf::Step});
}

}  // namespace sluice::core
