// SPDX-License-Identifier: Apache-2.0
// The Programs of a step of a Llama, written by hand: forward, backward and updates in the order in which
// they run. The derived ones must equal them to the last bit of their hashes. It changes only when an op
// itself changes, by hand.
#pragma once

#include "base/numerics.h"
#include "program/program.h"
#include "program/shape.h"

namespace sluice::core::oracle {

struct LlamaConfig {
  int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  double norm_eps = 1e-5;
  bool tied_embeddings = false;

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
};

struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.95;
  float eps = 1e-8f, weight_decay = 0.1f;
  float clip_norm = 1.0f;
  int64_t part_elements = 16 << 20;
  bool deferred = false, late_moments = false;
};

struct Programs {
  Program training, flush, evaluation;
};
// Evaluation is of one sequence.
Programs build(const LlamaConfig& config, const StepShape& shape, const Numerics& numerics,
               const OptimizerConfig& optimizer);

}  // namespace sluice::core::oracle
