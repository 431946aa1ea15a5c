// SPDX-License-Identifier: Apache-2.0
// Keys of Gemma 4: shapes by the types of layers, keys that layers share, tables of layers, and experts.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/families/keys.h"
#include "model/families/own_keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

bool is_full(const LayerSpec& layer) {
  return layer.attention()->window == 0;
}

// transformers saves which sizes of heads a layer has apart from the others, by its number.
Status read_shapes_by_layers(const json& shapes, ModelSpec& spec) {
  for (const auto& [number, shape] : shapes.items()) {
    int layer = -1;
    const auto [end, wrong] = std::from_chars(number.data(), number.data() + number.size(), layer);
    const bool fits = wrong == std::errc() && end == number.data() + number.size() && layer >= 0 &&
                      layer < int(spec.layers.size()) && shape.is_object();
    if (!fits)
      return error("model config: per_layer_config has {}: {}; numbers of layers and objects are needed",
                   number, describe(shape));
    Attention& a = *spec.layers[size_t(layer)].attention();
    for (const auto& [key, value] : shape.items()) {
      if (key != "head_dim" && key != "num_key_value_heads")
        return error(
            "model config: per_layer_config.{}.{} is {}; allowed are head_dim and num_key_value_heads",
            number, key, describe(value));
    }
    SLUICE_TRY(read(shape, "head_dim", a.head_dim));
    SLUICE_TRY(read(shape, "num_key_value_heads", a.kv_heads));
  }
  return {};
}

// The published form: heads of all layers without a window.
Status read_global_shape(const json& root, bool own_count, ModelSpec& spec) {
  int64_t head_dim = 512, kv_heads = 0;
  SLUICE_TRY(read(root, "global_head_dim", head_dim));
  SLUICE_TRY(read(root, "num_global_key_value_heads", kv_heads));
  for (LayerSpec& layer : spec.layers) {
    if (!is_full(layer)) continue;
    layer.attention()->head_dim = head_dim;
    if (own_count && says(root, "num_global_key_value_heads")) layer.attention()->kv_heads = kv_heads;
  }
  if (!own_count && says(root, "num_global_key_value_heads"))
    spec.notices.push_back(
        "config.json: num_global_key_value_heads counts only where attention_k_eq_v is true, and is passed "
        "over");
  return {};
}

// The last layers read keys and values of the last one before them that has a window, or none, as they have.
Status read_shared_keys(const json& root, ModelSpec& spec) {
  const auto layers = int64_t(spec.layers.size());
  int64_t shared = 0;
  bool wide = false;
  SLUICE_TRY(read(root, "num_kv_shared_layers", shared, int64_t{0}, layers));
  SLUICE_TRY(read(root, "use_double_wide_mlp", wide));
  for (int64_t l = layers - shared; l < layers; ++l) {
    LayerSpec& layer = spec.layers[size_t(l)];
    for (int64_t of = 0; of < layers - shared; ++of) {
      if (is_full(spec.layers[size_t(of)]) == is_full(layer)) layer.attention()->keys_of = int(of);
    }
    if (layer.attention()->keys_of < 0)
      return error(
          "model config: num_kv_shared_layers is {}; no layer before the last {} is a {} one, whose keys "
          "layer {} "
          "would read",
          shared, shared, is_full(layer) ? "full_attention" : "sliding_attention", l);
    if (wide) layer.mlp().ffn *= 2;
  }
  return {};
}

Status read_tables(const json& root, ModelSpec& spec) {
  int64_t width = 256, vocab = 262144;
  SLUICE_TRY(read(root, "hidden_size_per_layer_input", width, int64_t{0}, kMostWidth));
  if (root.contains("hidden_size_per_layer_input") && root["hidden_size_per_layer_input"].is_null())
    width = 0;
  SLUICE_TRY(read(root, "vocab_size_per_layer_input", vocab));
  if (width > 0 && vocab != spec.vocab)
    return error("model config: vocab_size_per_layer_input is {}, and vocab_size {}; the same is needed",
                 vocab, spec.vocab);
  for (LayerSpec& layer : spec.layers) layer.input = width;
  return {};
}

Status read_mixture(const json& root, ModelSpec& spec) {
  bool mixes = false;
  SLUICE_TRY(read(root, "enable_moe_block", mixes));
  if (!mixes) return {};
  Experts e{.score = RouterScore::Chosen, .gate_scales = true};
  int64_t ffn = 0;
  for (const auto& [key, value] :
       {std::pair{"num_experts", &e.count}, {"top_k_experts", &e.top_k}, {"moe_intermediate_size", &ffn}}) {
    if (!says(root, key)) return error("model config: {} is missing, which enable_moe_block needs", key);
    SLUICE_TRY(read(root, key, *value, int64_t{1}, kMostWidth));
  }
  for (LayerSpec& layer : spec.layers) {
    e.each = layer.mlp();
    e.beside = e.each.ffn;
    e.each.ffn = ffn;
    e.group = group_of(e.count, e.each.up_dim() * spec.dim);
    layer.feed_forward = e;
  }
  return {};
}

// Reads keys that models of both types have.
Status read_common(const json& root, ModelSpec& spec) {
  std::string both = "vision";
  SLUICE_TRY(read(root, "use_bidirectional_attention", both));
  if (both != "vision")
    return error(
        "model config: use_bidirectional_attention is '{}'; allowed are null and 'vision', which are causal "
        "for "
        "text",
        both);
  spec.embedding_scale = std::sqrt(double(spec.dim));
  if (says(root, "final_logit_softcapping"))
    SLUICE_TRY(read_softcap(root, "final_logit_softcapping", spec.logit_softcap));
  if (!is_full(spec.layers.back())) {
    spec.layers.back().attention()->window = 0;
    spec.notices.push_back(
        "config.json: the last layer attends to all tokens, whatever layer_types says of it");
  }
  bool keys_are_values = false;
  SLUICE_TRY(read(root, "attention_k_eq_v", keys_are_values));
  for (LayerSpec& layer : spec.layers) {
    Attention& a = *layer.attention();
    a.scale = 1;
    a.values = keys_are_values && is_full(layer) ? BehindHeads::Again : BehindHeads::Normed;
    layer.scaled = true;
  }
  if (!root.contains("per_layer_config")) {
    SLUICE_TRY(read_global_shape(root, keys_are_values, spec));
  } else {
    for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) {
      if (says(root, key))
        return error("model config: {} is {} beside per_layer_config, which decides; leave it out", key,
                     describe(root[key]));
    }
    if (!root["per_layer_config"].is_null() && !root["per_layer_config"].is_object())
      return error("model config: per_layer_config is {}; an object is needed",
                   describe(root["per_layer_config"]));
    SLUICE_TRY(read_shapes_by_layers(root["per_layer_config"], spec));
  }
  return read_shared_keys(root, spec);
}

Status read_gemma4(const json& root, ModelSpec& spec) {
  SLUICE_TRY(read_common(root, spec));
  SLUICE_TRY(read_tables(root, spec));
  return read_mixture(root, spec);
}

void write_common(const ModelSpec& spec, json& root) {
  root["per_layer_config"] = json::object();
  const Attention& first = spec.attention();
  int64_t shared = 0;
  bool again = false, wide = false;
  const auto ffn_of = [](const LayerSpec& layer) {
    return layer.experts() != nullptr ? layer.experts()->beside : layer.mlp().ffn;
  };
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const Attention& a = *spec.layers[l].attention();
    if (a.head_dim != first.head_dim || a.kv_heads != first.kv_heads)
      root["per_layer_config"][std::to_string(l)] = {{"head_dim", a.head_dim},
                                                     {"num_key_value_heads", a.kv_heads}};
    shared += a.keys_of >= 0 ? 1 : 0;
    again |= a.values == BehindHeads::Again;
    wide |= ffn_of(spec.layers[l]) != ffn_of(spec.layers.front());
  }
  root["intermediate_size"] = ffn_of(spec.layers.front());
  root["num_kv_shared_layers"] = shared;
  root["attention_k_eq_v"] = again;
  root["use_double_wide_mlp"] = wide;
  root["final_logit_softcapping"] = spec.logit_softcap == 0 ? json(nullptr) : json(spec.logit_softcap);
}
void write_gemma4(const ModelSpec& spec, json& root) {
  write_common(spec, root);
  const LayerSpec& layer = spec.layers.front();
  root["hidden_size_per_layer_input"] = layer.input;
  root["vocab_size_per_layer_input"] = spec.vocab;
  if (layer.experts() == nullptr) return;
  root.update({{"enable_moe_block", true},
               {"num_experts", layer.experts()->count},
               {"top_k_experts", layer.experts()->top_k},
               {"moe_intermediate_size", layer.mlp().ffn}});
}

constexpr const char* kReads[] = {"use_bidirectional_attention",
                                  "final_logit_softcapping",
                                  "attention_k_eq_v",
                                  "global_head_dim",
                                  "num_global_key_value_heads",
                                  "per_layer_config",
                                  "num_kv_shared_layers",
                                  "use_double_wide_mlp",
                                  "partial_rotary_factor",
                                  "hidden_size_per_layer_input",
                                  "vocab_size_per_layer_input",
                                  "enable_moe_block",
                                  "num_experts",
                                  "top_k_experts",
                                  "moe_intermediate_size"};
constexpr size_t kOfBoth = 9;
// Keys of one type alone: the other has neither tables nor experts.
constexpr Neutral kUnifiedNeutral[] = {{"enable_moe_block", 0}, {"hidden_size_per_layer_input", 0}};

}  // namespace

const OwnKeys kGemma4OwnKeys{kReads, {}, nullptr, write_gemma4, read_gemma4};
const OwnKeys kGemma4UnifiedOwnKeys{std::span(kReads).first(kOfBoth), kUnifiedNeutral, nullptr, write_common,
                                    read_common};

}  // namespace sluice::core
