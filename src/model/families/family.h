// SPDX-License-Identifier: Apache-2.0
// The families there are, and the parts of a config.json that are read apart: rotary embedding, and what
// differs from layer to layer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "model/spec.h"

namespace sluice::core {

// Whether an architecture has a part: as a key of config.json says, or by the family.
struct OptionalPart {
  const char* key = nullptr;  // a bool of config.json; null: `fixed`
  bool fixed = false;         // or what holds when the key is not there
};

// Which layers have a window, of `sliding_window` tokens.
enum class Windows : uint8_t {
  None,
  All,       // every layer, unless sliding_window is null
  Upper,     // with use_sliding_window those from max_window_layers on
  Unrotated  // with use_sliding_window those that are not rotated
};

// Sizes and other values that config.json need not say. 0: it has to, or as beside.
struct FamilyDefaults {
  int64_t dim, ffn, layers, heads;
  int64_t kv_heads;  // 0: as many as heads
  int64_t head_dim;  // 0: dim / heads
  int64_t vocab, context, window;
  bool tied;
  double norm_eps, theta;
  int64_t pad_token = -1;  // -1: none
};

struct Family {
  std::string_view model_type, architecture;
  OptionalPart qkv_bias, o_bias, mlp_bias;
  bool head_norm;
  Windows windows;
  bool unrotated_layers;  // some are not rotated: no_rope_layers, no_rope_layer_interval
  FamilyDefaults defaults;
};

// Null: there is no such family.
const Family* find_family(std::string_view model_type);
// "llama, mistral, ..."
std::string family_names();

// `context` is max_position_embeddings.
Status read_rope(const nlohmann::json& root, int64_t context, Rope& rope);
void write_rope(const Rope& rope, nlohmann::json& root);

// What layers differ in: windows and rotation. `spec` has its layers.
Status read_layers(const nlohmann::json& root, const Family& family, ModelSpec& spec);
void write_layers(const ModelSpec& spec, const Family& family, nlohmann::json& root);

}  // namespace sluice::core
