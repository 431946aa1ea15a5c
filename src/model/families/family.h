// SPDX-License-Identifier: Apache-2.0
// The families there are, and the parts of a config.json that are read apart: rotary embedding, and what
// differs from layer to layer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "model/families/families.h"
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
  Off,        // its files have the keys, and use_sliding_window, which would turn them on, must be false
  All,        // every layer, unless sliding_window is null
  Upper,      // with use_sliding_window those from max_window_layers on
  Unrotated,  // with use_sliding_window those that are not rotated
  Pattern,    // all but every so manieth, unless layer_types says which
};

// A family's own name of a shared key: `general` is how the rest of its reader knows it.
struct Renamed {
  const char *own, *general;
  bool either = true;  // transformers reads the general one, too
};

// A key of config.json with which the arithmetic would be another, and the value with which it is not; null
// is as good.
struct Neutral {
  const char* key;
  double value;
};

// Keys of one family alone: keys that it reads, those that it must have with one value, and what reads and
// writes them. Its models' layers are there, alike.
struct OwnKeys {
  std::span<const char* const> reads;
  std::span<const Neutral> neutral;
  // Null: there is nothing to read, or to write.
  Status (*read)(const nlohmann::json& root, ModelSpec& spec);
  void (*write)(const ModelSpec& spec, nlohmann::json& root);
  // Reads what follows from the types of layers, once these are known.
  Status (*read_layers)(const nlohmann::json& root, ModelSpec& spec) = nullptr;
};

// Whether layers with a window are rotated in a way of their own, and how where the file is of transformers
// 4. It is by `key` where there is one, else by `theta`, or as the others if that is 0.
struct WindowRope {
  bool has = false;
  const char* key = nullptr;
  double theta = 0;
  const char* otherwise = nullptr;  // rope_parameters of files that have none; null: as beside
};

// Which part of a head is rotated: a number of config.json, in the object of the rotation called
// partial_rotary_factor and at the root by `key`, or else `factor`.
struct PartialRotation {
  const char* key = nullptr;  // null: all of it
  double factor = 1;
};

// Sizes and other values that config.json need not say. 0: it has to, or as beside.
struct FamilyDefaults {
  int64_t dim, ffn, layers, heads;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: dim / heads
  int64_t vocab, context;
  int64_t window = 0;
  bool tied = false;
  double norm_eps, theta;
  int64_t pad_token = -1;      // -1: none
  int64_t window_pattern = 0;  // of Windows::Pattern: each so manieth layer has none
  // original_max_position_embeddings of the root, which wins over what the object of the rotation says; 0:
  // there is none.
  int64_t original_context = 0;
  GateActivation activation = GateActivation::Silu;
};

struct Family {
  std::string_view model_type, architecture;
  AboutFamily about;
  OptionalPart qkv_bias, o_bias, mlp_bias;
  QkNorm qk_norm = QkNorm::None;
  Windows windows = Windows::None;
  bool unrotated_layers = false;  // some are not rotated: no_rope_layers, no_rope_layer_interval
  bool windows_alone_rotate = false;
  Norms norms = Norms::Before;
  double norm_offset = 0;
  WindowRope window_rope = {};
  PartialRotation partial = {};
  bool tempered = false;            // queries are multiplied by a number that grows with their position
  bool rotates_neighbours = false;  // else halves of a head
  const char* theta_key = "rope_theta";
  const char* activation_key = "hidden_act";
  const char* norm_eps_key = "rms_norm_eps";  // null: it is always the default
  NormKind norm = {};
  TensorNames names = {};
  bool gated = true;
  bool head_dim_follows = false;  // it is hidden_size / num_attention_heads, whatever a key says
  bool own_code_too = false;  // its files carry code of their own, beside transformers' class of the family
  bool gelu_is_tanh = false;  // what is called gelu is its approximation
  bool convolves = false;     // layers may have a convolution in place of attention
  bool deltas = false;        // or a gated delta rule
  bool learns_positions = false;  // as many as max_position_embeddings; nothing is rotated
  std::span<const Renamed> renamed = {};
  const OwnKeys* own = nullptr;
  FamilyDefaults defaults;
};

// Null: there is no such family.
const Family* find_family(std::string_view model_type);
// "llama, mistral, ..."
std::string family_names();

// Reads what the file says of weights that are codes; an error if they are not read.
Status read_quantization(const nlohmann::json& root, ModelSpec& spec);

// `context` is max_position_embeddings.
Status read_rope(const nlohmann::json& root, const Family& family, int64_t context, ModelSpec& spec);
void write_rope(const ModelSpec& spec, nlohmann::json& root);
// The factor of Yarn's cosines and sines, by the paper: 0.1 ln(factor) + 1, or the quotient of two such with
// weights.
double yarn_attention_factor(double factor, double weight = 0, double weight_all = 0);
// Which rows of a head are rotated. `spec` has its layers.
Status read_rotated_rows(const nlohmann::json& root, const Family& family, ModelSpec& spec);

// Reads differences of layers: windows and rotation. `spec` has its layers.
Status read_layers(const nlohmann::json& root, const Family& family, ModelSpec& spec);
void write_layers(const ModelSpec& spec, const Family& family, nlohmann::json& root);

}  // namespace sluice::core
