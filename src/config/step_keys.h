// SPDX-License-Identifier: Apache-2.0
// The tables of [model], [adapter], [train], [objective] and [shape]: what a step computes, and how it is
// cut.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/numerics.h"
#include "config/row.h"
#include "config/values.h"
#include "objective/objective.h"
#include "optimizer/optimizer.h"

namespace sluice::core {

constexpr GoesOn kOtherModel = refused("another model; only what is in the file counts, not where it is");

struct ModelKeys {
  std::string preset = "tiny";  // ignored when `config` is given
  std::string path;             // of a Hugging Face folder: `config` and `weights`, where these are not given
  std::string config;           // path of a Hugging Face config.json
  std::string weights;          // path of a checkpoint to start from
  std::string unread = "refuse";
  std::string base_format = "auto";
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_model_keys(Keys& c, F&& key) {
  key("model.preset", c.preset, ModelPresets(), {"shapes by name", kOtherModel});
  key("model.path", c.path, InputPath(),
      {"folder of a Hugging Face model: config.json, weights, tokenizer; or a run's directory", kOtherModel});
  key("model.config", c.config, InputPath(),
      {"path of a Hugging Face config.json, instead of a preset", kOtherModel});
  key("model.weights", c.weights, InputPath(),
      {"checkpoint to start from; empty: random weights",
       refused("another beginning. The file itself is not needed any more")});
  key("model.unread", c.unread, Choices{"refuse", "drop"},
      {"tensors of model.weights that the model does not read: an error, or they are left out"});
  key("model.base_format", c.base_format, Choices{"auto", "bf16", "fp8", "mxfp4", "nf4"},
      {"number format of layers' matrices that are not trained; auto: codes of the folder stay codes, unless "
       "train.freeze names them, and others are as train.compute",
       allowed_by("formats", "the base is rounded to another number format"), Recorded::Changed,
       KeyOf::Step});
}

constexpr GoesOn kOtherAdapters = refused("other adapters");
constexpr GoesOn kOtherStrength = allowed_by("adapter", "other weights of what was learnt");

struct AdapterKeys {
  int64_t rank = 0;             // 0: none
  std::optional<double> alpha;  // none: twice the rank
  bool rslora = false, dora = false, decay = false;
  double dropout = 0;
  std::vector<std::string> targets, exclude;             // see names_part() in model/weights.h
  std::vector<std::string> rank_pattern, alpha_pattern;  // "pattern=number"
  std::vector<std::string> modules_to_save;
  std::vector<std::string> tokens, head_tokens;  // ids; in files and settings the text of an added token, too
  std::string path;                              // an adapter's folder
  std::string base;  // the folder of its base, where its own file names another place
};
template <class Keys, class F>
void visit_adapter_keys(Keys& c, F&& key) {
  key("adapter.rank", c.rank, Range{0, 4096},
      {"rank of low-rank adapters (LoRA), which are trained in place of the weights; 0: the weights are",
       kOtherAdapters, Recorded::Always, KeyOf::Step});
  key("adapter.alpha", c.alpha, Range{1e-3, 1e6},
      {"what LoRA adapters add is times this over the rank; auto: twice the rank", kOtherStrength,
       Recorded::Always, KeyOf::Step});
  key("adapter.rslora", c.rslora, nullptr,
      {"over the root of the rank instead (rank-stabilised LoRA)", kOtherStrength, Recorded::Always,
       KeyOf::Step});
  key("adapter.dora", c.dora, nullptr,
      {"magnitudes of a product's rows are trained beside A and B (DoRA)", kOtherAdapters, Recorded::Changed,
       KeyOf::Step});
  key("adapter.targets", c.targets, nullptr,
      {"patterns over names of tensors, or ends of them such as q_proj, that LoRA adapters are for; empty, "
       "or all-linear: every product of a layer, without experts and head",
       kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.exclude", c.exclude, nullptr,
      {"patterns of what of these has no LoRA adapter", kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.rank_pattern", c.rank_pattern, nullptr,
      {"other ranks of some LoRA adapters, as pattern=rank; the last that names a tensor decides",
       kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.alpha_pattern", c.alpha_pattern, nullptr,
      {"the same of alpha of LoRA adapters, as pattern=alpha", kOtherStrength, Recorded::Changed,
       KeyOf::Step});
  key("adapter.modules_to_save", c.modules_to_save, nullptr,
      {"patterns of weights that are trained as they are, beside LoRA adapters of others", kOtherAdapters,
       Recorded::Changed, KeyOf::Step});
  key("adapter.tokens", c.tokens, nullptr,
      {"ids of tokens, or texts of those that were added to the tokenizer, whose rows of the embedding are "
       "trained beside LoRA adapters",
       kOtherAdapters, Recorded::Changed, KeyOf::Step});
  key("adapter.head_tokens", c.head_tokens, nullptr,
      {"the same of the head's rows, where it is not the embedding", kOtherAdapters, Recorded::Changed,
       KeyOf::Step});
  key("adapter.decay", c.decay, nullptr,
      {"whether train.weight_decay shrinks LoRA adapters, too", kOtherStrength, Recorded::Always,
       KeyOf::Step});
  key("adapter.dropout", c.dropout, Range{0, 0.99},
      {"share of what a LoRA adapter reads that is 0 in training, each time another",
       refused("other products: with it each target reads a mask of its own"), Recorded::Changed,
       KeyOf::Step});
  key("adapter.path", c.path, InputPath(),
      {"folder of a LoRA adapter (PEFT) that a run starts from; it says rank, alpha and targets",
       refused("another beginning. The folder itself is not needed any more"), Recorded::Changed});
  key("adapter.base", c.base, InputPath(),
      {"folder of the model that a LoRA adapter was made for, where its adapter_config.json names another "
       "place",
       same_bits("the base of a run with adapters may be moved: its values are compared, not its path")});
}

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
  std::string objective = std::string(objectives().front().name);
  std::optional<double> learning_rate;      // none: choose_rate() of setup/learning_rate.h
  std::optional<double> min_learning_rate;  // none: a tenth of learning_rate
  std::optional<int64_t> warmup_steps;      // none: warmup_steps() of setup/learning_rate.h
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
  // See keep_wide() there; "auto" stands alone for what gains too little.
  std::vector<std::string> fp8_except{"auto"};
  std::string fp8_gradients = "e4m3";
  bool fp8_head = false;
};

inline Choices optimizer_names() {
  Choices names;
  for (const Optimizer* o : optimizers()) names.emplace_back(o->name);
  return names;
}
inline Choices objective_names() {
  Choices names;
  for (const Objective& o : objectives()) names.emplace_back(o.name);
  return names;
}
// The name in manifests of what products read, where that is not what is computed in.
constexpr std::string_view kNarrowProducts = "train.products";
constexpr GoesOn kOtherObjective = refused("another loss");
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
  key("train.objective", c.objective, objective_names(),
      {"what is learnt: supervised, the likelihood; dpo, simpo and orpo, which of two answers is better; "
       "kto, "
       "which are good; grpo, which sampled ones have the higher rewards; distillation, what a teacher "
       "recorded",
       kOtherObjective, Recorded::Changed});
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
  key("train.compute", c.compute, Numbers{DType::F32, DType::BF16, DType::F8E4M3},
      {"type of weights and activations; fp8: bf16, of which products of dense layers read copies in 8 bits",
       allowed_by("formats", "products round otherwise; f32: refused", kNarrowProducts), Recorded::Always,
       KeyOf::Step});
  key("train.fp8_except", c.fp8_except, nullptr,
      {"with train.compute = fp8: patterns over the names of the model's tensors whose products stay bf16; "
       "auto: those that would gain less than 5 %",
       allowed_by("formats", "products round otherwise"), Recorded::Changed, KeyOf::Step, "[]"});
  key("train.fp8_gradients", c.fp8_gradients, Choices{"e4m3", "e5m2"},
      {"with train.compute = fp8: in which 8 bits products read gradients; e5m2 has more of the exponent and "
       "less of the mantissa",
       allowed_by("formats", "products round otherwise"), Recorded::Changed, KeyOf::Step});
  key("train.fp8_head", c.fp8_head, nullptr,
      {"with train.compute = fp8: the head's products read 8 bits, too; gradients of logits are e5m2 then",
       allowed_by("formats", "products round otherwise"), Recorded::Changed, KeyOf::Step});
  key("train.grad", c.grad, Numbers{DType::F32, DType::BF16},
      {"type in which weight gradients accumulate", kOtherFormats, Recorded::Always, KeyOf::Step});
  key("train.state", c.state, Numbers{DType::F32, DType::BF16, DType::I8},
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

template <class Keys, class F>
void visit_objective_keys(Keys& c, F&& key) {
  key("objective.loss_type", c.loss_type, nullptr,
      {"dpo: sigmoid, hinge, ipo or robust; kto: kto or apo_zero_unpaired; grpo: dapo, grpo, bnpo, dr_grpo, "
       "luspo, cispo or sapo; distillation: jsd; empty: the first of these",
       kOtherObjective, Recorded::Changed});
  key("objective.beta", c.beta, Range{0, 1e3},
      {"dpo, kto, grpo: how little the model is to leave the reference; simpo: how much a margin counts; "
       "orpo: how much odds count beside the likelihood; distillation: 0 forward KL, 1 "
       "reverse KL, between them Jensen-Shannon; auto: 0.1, and 0 of grpo and distillation",
       kOtherObjective, Recorded::Changed, KeyOf::Run, "0.1"});
  key("objective.label_smoothing", c.label_smoothing, Range{0, 0.999},
      {"dpo with sigmoid or robust, simpo: how probable it is that the better answer is marked as the worse",
       kOtherObjective, Recorded::Changed});
  key("objective.desirable_weight", c.desirable_weight, Range{0, 1e3},
      {"kto: how much an answer counts that is marked as good", kOtherObjective, Recorded::Changed});
  key("objective.undesirable_weight", c.undesirable_weight, Range{0, 1e3},
      {"kto: how much an answer counts that is marked as bad", kOtherObjective, Recorded::Changed});
  key("objective.simpo_gamma", c.simpo_gamma, Range{0, 1e3},
      {"simpo: the margin of rewards that is aimed at", kOtherObjective, Recorded::Changed});
  key("objective.cpo_alpha", c.cpo_alpha, Range{0, 1e3},
      {"simpo: how much the likelihood of the better answer counts beside it", kOtherObjective,
       Recorded::Changed});
  key("objective.epsilon", c.epsilon, Range{0, 1},
      {"grpo: how far below 1 the ratio of a token's probabilities counts, now and when it was sampled",
       kOtherObjective, Recorded::Changed});
  key("objective.epsilon_high", c.epsilon_high, Range{0, 1e3},
      {"grpo: how far above 1 it does; of cispo the most that it is; auto: epsilon", kOtherObjective,
       Recorded::Changed});
  key("objective.delta", c.delta, Range{1, 1e3},
      {"grpo: the most that a ratio counts of answers with a negative advantage; auto: no bound",
       kOtherObjective, Recorded::Changed});
  key("objective.sapo_temperature_neg", c.sapo_temperature_neg, Range{1e-3, 1e3},
      {"grpo with sapo: how steep its bound is for negative advantages", kOtherObjective, Recorded::Changed});
  key("objective.sapo_temperature_pos", c.sapo_temperature_pos, Range{1e-3, 1e3},
      {"grpo with sapo: the same for positive ones", kOtherObjective, Recorded::Changed});
  key("objective.importance_sampling_level", c.importance_sampling_level, Choices{"token", "sequence"},
      {"grpo: whether a token has a ratio of its own, or the mean of its answer's, of logarithms",
       kOtherObjective, Recorded::Changed});
  key("objective.scale_rewards", c.scale_rewards, Choices{"group", "batch", "none"},
      {"grpo: what advantages are divided by: the deviation of the rewards of the prompt, or of the step",
       kOtherObjective, Recorded::Changed});
  key("objective.loss_top_k", c.loss_top_k, Range{0, 1024},
      {"distillation: how many of the teacher's likeliest tokens are read in each place", kOtherObjective,
       Recorded::Changed});
  key("objective.loss_add_tail", c.loss_add_tail, nullptr,
      {"distillation: whether all other tokens count as one more; otherwise the read ones are all that there "
       "is",
       kOtherObjective, Recorded::Changed});
  key("objective.temperature", c.temperature, Range{1e-2, 1e3},
      {"distillation without a tail: what logarithms of both are divided by", kOtherObjective,
       Recorded::Changed});
}

constexpr GoesOn kOtherShape = refused("another order of sums. Left open, they are the checkpoint's");

struct ShapeKeys {
  int64_t chunk_tokens = 0, rounds = 0, first_round_chunks = 0, head_tokens = 0;  // 0: chosen
};
template <class Keys, class F>
void visit_shape_keys(Keys& c, F&& key) {
  key("shape.chunk_tokens", c.chunk_tokens, kTokensOrChosen,
      {"tokens processed together; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
  key("shape.rounds", c.rounds, kCountsOfSteps,
      {"forward and backward passes of a step; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
  key("shape.first_round_chunks", c.first_round_chunks, kCountsOfSteps,
      {"chunks of the first of them, which updates the weights, too; 0: chosen", kOtherShape,
       Recorded::Otherwise, KeyOf::Step});
  key("shape.head_tokens", c.head_tokens, kTokensOrChosen,
      {"rows of logits that exist at once; 0: chosen", kOtherShape, Recorded::Otherwise, KeyOf::Step});
}

}  // namespace sluice::core
