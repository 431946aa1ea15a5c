// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights: where each comes from in a checkpoint, its shape, how it begins and how it
// is trained. Everything that makes, loads, saves or updates weights goes by it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/spec.h"

namespace sluice::core {

// A tensor of a Hugging Face checkpoint.
struct WeightSource {
  std::string tensor;  // "model.layers.3.self_attn.k_proj.weight"
  int64_t rows, cols;
  // Of a tensor that several weights share, by rows, in their order: where these rows begin, and how many it
  // has.
  int64_t first_row = 0, tensor_rows = 0;  // 0 rows: these alone

  int64_t first() const { return first_row * cols; }  // element of the tensor
  int64_t elements() const { return rows * cols; }
  int64_t all_rows() const { return tensor_rows == 0 ? rows : tensor_rows; }
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

// Every weight, in the order of the forward pass. The roles are those that model/layers.h asks for. What
// spec.freeze names is not trained; a weight of several tensors is not if that holds of each.
std::vector<Weight> weights_of(const ModelSpec& spec);

// Whether patterns freeze a tensor. A pattern is as a shell has them (*, ?, [0-7]; * takes dots, too) and
// names tensors, or what they are parts of: "model.layers.3" has all of that layer. One that begins with !
// takes back what those before it froze. The last that names the tensor decides.
bool frozen(std::span<const std::string> patterns, std::string_view tensor);

// Has the patterns freeze tensors of the model. An error if one of them names no tensor, if tensors that are
// one weight are not frozen together, or if nothing is left to train. `key` stands for the list.
Status freeze(ModelSpec& spec, std::vector<std::string> patterns, std::string_view key);

}  // namespace sluice::core
