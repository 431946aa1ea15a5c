// SPDX-License-Identifier: Apache-2.0
// From a model and a shape to its Programs: training, evaluation, the pending update, and passes that
// generate text.
#pragma once

#include <vector>

#include "base/batch.h"
#include "base/numerics.h"
#include "model/spec.h"
#include "model/weights.h"
#include "optimizer/optimizer.h"
#include "optimizer/placement.h"
#include "program/program.h"
#include "program/shape.h"

namespace sluice::core {

// Sums of a training step over its targets, see HeadLoss.
struct LossSums {
  double loss, hits;
};

// Inputs and outputs of a training step's loss beside its sums.
struct LossForm {
  bool weighted = false;   // batches have a weight for every token
  bool log_probs = false;  // BuiltProgram::log_probs
  // A caller's own loss of each round's log-probabilities may give its weights while the step runs:
  // BuiltProgram::asked. It takes the product with the head once more. Batches are weighted then, and
  // log-probabilities are left.
  bool asked = false;
  int64_t top = 0;  // other tokens beside each target that the caller's loss reads: HeadLoss::top
};

// A Program, the objects that the trainer needs, and the shape and the table of weights it was made from.
struct BuiltProgram {
  // Compiled once, in build.cpp, as it has many parts.
  BuiltProgram();
  BuiltProgram(const BuiltProgram&);
  BuiltProgram(BuiltProgram&&) noexcept;
  BuiltProgram& operator=(const BuiltProgram&);
  BuiltProgram& operator=(BuiltProgram&&) noexcept;
  ~BuiltProgram();

  Program program;
  StepShape shape;
  std::vector<Weight> weights;
  std::vector<ParamObjects> params;  // by weight
  // Written once, before the first step.
  struct Constant {
    ObjectId object;
    std::vector<float> values;
  };
  std::vector<Constant> constants;
  ObjectId args;                             // StepArgs, or DropoutArgs
  std::vector<std::vector<ObjectId>> batch;  // [round][chunk]; empty: nothing reads it
  BatchLayout layout = kPlainBatch;          // of each
  std::vector<ObjectId> loss;  // by replica: metric, LossSums: over the counted targets (training)
  // metrics, f64[2][tokens] by chunk: of each token alone, see HeadLoss (evaluation)
  std::vector<ObjectId> losses;
  // metrics, [round][chunk], f32[tokens]: see HeadLoss (training, where LossForm asks for them)
  std::vector<std::vector<ObjectId>> log_probs;
  // [round], f32[2, tokens * (1 + LossForm::top)]: see GatherWeights (training, where LossForm asks for them)
  std::vector<ObjectId> asked;
  // By layer, metrics, f64, see LoadLayout: what routers did; none of layers without experts, and none at all
  // of models without (training).
  std::vector<ObjectId> router_load;
  ObjectId clip;          // metric, f32[2]: gradient norm, scale (training)
  ObjectId logits;        // metric, f32[rows, vocab] (generation without draws)
  ObjectId draws, drawn;  // input and metric, see DrawTokens (generation with draws)
  int64_t capacity = 0;   // tokens of a text, prompt and all (generation)
  ObjectId spans;         // i32[rows, 2], see ops/generation.h (generation)
  ObjectId slots;         // i32[rows]: the row of the cache that each text has (GenerationShape::slots)
  ObjectId copies;        // i32[cache rows], see CopyRows (GenerationShape::copies)
  std::vector<Weight> looked_up;  // weights that it has rows of alone (generation)
  // Rows of the embedding, [rows * new_tokens, dim] of the computing type, and behind them of the other
  // weights that are looked up (generation).
  ObjectId embedded;
};

// One optimizer step. REQUIRES: the arguments are valid, and a weight is trainable.
BuiltProgram build_training(const ModelSpec& spec, const StepShape& shape, const Numerics& numerics,
                            const OptimizerConfig& optimizer, const LossForm& loss = {});
// The pending update of a deferred step, alone.
BuiltProgram build_flush(const ModelSpec& spec, const Numerics& numerics, const OptimizerConfig& optimizer);
// Losses of the tokens of one round, no gradients. With `pending`, the update of a deferred step of that
// optimizer on its way: each weight's just before its first use.
BuiltProgram build_evaluation(const ModelSpec& spec, const StepShape& shape, const Numerics& numerics,
                              const OptimizerConfig* pending = nullptr);

// A pass over several texts at once, up to new_tokens tokens of each, behind what the cache holds of it.
struct GenerationShape {
  int64_t rows = 1, new_tokens = 1;
  int64_t capacity = 0;  // tokens of a text, prompt and all
  int64_t slots = 0;     // rows of the cache, of which each text says its own; 0: as many as texts, in order
  bool copies = false;   // behind it, rows of the cache become copies of others
  bool draws = false;    // instead of logits there are tokens, up to one for each row of the cache

  int64_t cache_rows() const { return slots > 0 ? slots : rows; }
};
// Logits after the last new token of each row. The embedding's rows are an input, and those of tables of
// layers: as a weight it is there only where it is the head, too, and batches need no tokens. The cache's
// objects, like the weights, are the same in passes of every new_tokens.
BuiltProgram build_generation(const ModelSpec& spec, const GenerationShape& shape, const Numerics& numerics);

}  // namespace sluice::core
