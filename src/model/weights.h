// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights: where each comes from in a checkpoint, its shape, how it begins and how it
// is trained. Everything that makes, loads, saves or updates weights goes by it.
#pragma once

#include "model/spec.h"

namespace sluice::core {

// A tensor of a Hugging Face checkpoint.
struct WeightSource {
  std::string tensor;  // "model.layers.3.self_attn.k_proj.weight"
  int64_t rows, cols;
};

// How a weight begins where it is not loaded.
struct Init {
  enum Kind : uint8_t { Zeros, Ones, Normal } kind = Zeros;
  float deviation = 0;  // Normal
};

// One weight object of a program: tensors stacked by rows.
struct Weight {
  std::string object;  // "wkv.L3"
  std::string role;    // "wkv"
  int layer = -1;
  std::vector<WeightSource> sources;
  bool matrix = true;  // tensors are [rows, cols], else [rows]
  Init init;
  bool decay = true;  // under weight decay
  bool trainable = true;
  std::optional<Format> format = {};  // nothing: that of the type that is computed in

  int64_t elements() const;
};

// Every weight, in the order of the forward pass. The roles are those that model/layers.h asks for.
std::vector<Weight> weights_of(const ModelSpec& spec);

}  // namespace sluice::core
