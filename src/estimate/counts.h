// SPDX-License-Identifier: Apache-2.0
// What a model has and does, counted: weights by the table of weights, bytes by the objects of a Program,
// arithmetic and traffic by the ops of its tasks. No formula of its own.
#pragma once

#include <string>
#include <vector>

#include "base/numerics.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "optimizer/optimizer.h"

namespace sluice::core {

// Parameters by part.
struct Parts {
  int64_t embedding = 0, head = 0, attention = 0, ffn = 0, norms = 0, biases = 0, adapters = 0;

  int64_t all() const { return matrices() + norms + biases; }
  // Without norms and biases, as rules of thumb count.
  int64_t matrices() const { return embedding + head + attention + ffn + adapters; }
  int64_t& of(ModelPart part);
};
Parts parameter_parts(const ModelSpec& spec);

// `rows` sequences of seq_len tokens, in one pass.
struct BatchShape {
  int64_t seq_len = 0, rows = 1;
  int64_t tokens() const { return seq_len * rows; }
};

// A pass forward with its loss, of an evaluation.
struct ForwardCounts {
  double flops = 0, attention_flops = 0;  // the latter of scores and values alone
  double layer_flops = 0;                 // of the first layer
  double traffic_bytes = 0;               // operands of every op once, and logits between its products
  int64_t kv_bytes = 0;                   // of keys and values of all layers
};
ForwardCounts count_forward(const ModelSpec& spec, const BatchShape& shape, DType compute);

// Activations of one role in all layers.
struct KeptRole {
  std::string role;
  int64_t objects = 0, bytes = 0;
};

// The kept objects of a way to recompute, and its repeated tasks for the rest.
struct Kept {
  int64_t bytes = 0;
  double again_flops = 0;
};

// One training step of one round and one chunk.
struct TrainingCounts {
  double flops = 0;         // forward and backward
  double update_flops = 0;  // of products that updates make; however many tokens a step has
  double again_flops = 0;   // that ops compute a second time within themselves
  double traffic_bytes = 0, update_traffic_bytes = 0;
  int64_t weight_bytes = 0, grad_bytes = 0, state_bytes = 0;  // masters are state
  // Activations that the forward pass of the layers leaves for the backward pass.
  std::vector<KeptRole> roles;
  Kept everything;  // nothing is computed again
  Kept sublayers;   // the input of every attention and every FFN is kept
  Kept blocks;      // the input of every layer is kept
  // Most bytes of other activations and of gradients of activations at one moment, in the program's order and
  // with everything kept.
  int64_t temporary_bytes = 0;
  int64_t logits_bytes = 0;     // f32, of the rows that exist at once
  int64_t workspace_bytes = 0;  // largest of a task on a GPU, without logits
};
TrainingCounts count_training(const ModelSpec& spec, const BatchShape& shape, const Numerics& numerics,
                              const Optimizer& optimizer);

// A matrix product of a training step: m x n sums of k products.
struct MatrixProduct {
  std::string name;
  int64_t m = 0, n = 0, k = 0, count = 0;
  SharedOp op;  // that does it, the first of its size

  double flops() const { return 2 * double(m) * double(n) * double(k) * double(count); }
};
std::vector<MatrixProduct> products_of(const ModelSpec& spec, const BatchShape& shape,
                                       const Numerics& numerics);

}  // namespace sluice::core
