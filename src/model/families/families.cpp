// SPDX-License-Identifier: Apache-2.0
#include "model/families/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::core {
namespace {

using nlohmann::json;

// Whether an architecture has a part: as a key of config.json says, or by the family.
struct Part {
  const char* key = nullptr;  // a bool of config.json; null: `fixed`
  bool fixed = false;         // or what holds when the key is not there
};

struct Family {
  std::string_view model_type, architecture;
  Part qkv_bias, o_bias, mlp_bias;
  bool head_norm = false;
  int64_t head_dim = 0;    // when config.json has none; 0: hidden_size / num_attention_heads
  bool tied = false;       // when config.json does not say
  double norm_eps, theta;  // likewise
};

// Defaults are those of transformers' configuration classes.
constexpr Family kFamilies[] = {
    {"llama",
     "LlamaForCausalLM",
     {"attention_bias"},
     {"attention_bias"},
     {"mlp_bias"},
     false,
     0,
     false,
     1e-6,
     10000},
    {"qwen2", "Qwen2ForCausalLM", {nullptr, true}, {}, {}, false, 0, false, 1e-6, 10000},
    {"qwen3", "Qwen3ForCausalLM", {"attention_bias"}, {"attention_bias"}, {}, true, 128, false, 1e-6, 10000},
};

std::string family_names() {
  std::string out;
  for (const Family& f : kFamilies) out += fmt::format("{}{}", out.empty() ? "" : ", ", f.model_type);
  return out;
}

const Family* find_family(std::string_view model_type) {
  const auto* it = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                [&](const Family& f) { return f.model_type == model_type; });
  return it == std::end(kFamilies) ? nullptr : it;
}

// A value in words: as it stands where that is short, else what kind of value it is.
std::string in_words(const json& value) {
  constexpr size_t kMost = 60;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump();
  return text.size() <= kMost ? text : value.is_string() ? "a long text" : text.substr(0, kMost);
}

// Reads `key` into `out` when it is there and not null; an error when its type does not fit.
template <class T>
Status read(const json& object, const char* key, T& out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return {};
  const bool fits =
      std::is_same_v<T, bool> ? it->is_boolean()
      : std::is_same_v<T, int64_t>
          ? it->is_number_integer() && !(it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX)
      : std::is_same_v<T, double> ? it->is_number()
                                  : it->is_string();
  if (!fits) return error("model config: {} is {}, which is not of the expected type", key, in_words(*it));
  out = it->get<T>();
  return {};
}

// The same of a number that is one of `least` to `most`.
template <class T>
Status read(const json& object, const char* key, T& out, T least, T most) {
  SLUICE_TRY(read(object, key, out));
  if (out >= least && out <= most) return {};
  return error("model config: {} is {}; allowed are {} to {}", key, out, least, most);
}

constexpr double kMostTheta = 1e12;

Status read_llama3(const json& scaling, const char* name, Rope& rope) {
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    if (!scaling.contains(key) || scaling[key].is_null())
      return error("model config: {}.{} is missing, which rope_type llama3 needs", name, key);
  }
  constexpr double kMostFactor = 1e6;
  constexpr int64_t kMostContext = int64_t{1} << 31;
  SLUICE_TRY(read(scaling, "factor", rope.factor, 1.0, kMostFactor));
  SLUICE_TRY(read(scaling, "low_freq_factor", rope.low_freq_factor, 1e-6, kMostFactor));
  SLUICE_TRY(read(scaling, "high_freq_factor", rope.high_freq_factor, 1e-6, kMostFactor));
  SLUICE_TRY(
      read(scaling, "original_max_position_embeddings", rope.original_context, int64_t{1}, kMostContext));
  if (rope.low_freq_factor < rope.high_freq_factor) return {};
  return error("model config: {}.low_freq_factor is {}; it must be below high_freq_factor, {}", name,
               rope.low_freq_factor, rope.high_freq_factor);
}

Status read_rope(const json& root, Rope& rope) {
  SLUICE_TRY(read(root, "rope_theta", rope.theta, 1.0, kMostTheta));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = root.find(key);
    if (it == root.end() || it->is_null()) continue;
    if (!it->is_object())
      return error("model config: {} is {}; allowed are null and an object", key, in_words(*it));
    std::string type;
    SLUICE_TRY(read(*it, "type", type));
    SLUICE_TRY(read(*it, "rope_type", type));
    SLUICE_TRY(read(*it, "rope_theta", rope.theta, 1.0, kMostTheta));
    if (type == "llama3") {
      SLUICE_TRY(read_llama3(*it, key, rope));
    } else if (!type.empty() && type != "default") {
      return error("model config: {}.rope_type is '{}'; allowed are default, llama3", key, type);
    } else if (it->contains("factor")) {
      return error(
          "model config: {}.factor is {} without a rope_type that says how; allowed are default, llama3", key,
          in_words((*it)["factor"]));
    }
  }
  return {};
}

// Keys with which the arithmetic would be another; with this value, or null, it is not.
struct Neutral {
  const char* key;
  double value;
};
constexpr Neutral kNeutral[] = {
    {"partial_rotary_factor", 1}, {"rotary_pct", 1},        {"pretraining_tp", 1},
    {"attention_dropout", 0},     {"hidden_dropout", 0},    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},   {"logits_scaling", 1},    {"logit_scale", 1},
    {"num_experts", 0},           {"num_local_experts", 0}, {"num_nextn_predict_layers", 0},
};
// And keys of which only null does not change it.
constexpr const char* kAbsent[] = {"quantization_config",     "compression_config",
                                   "attention_multiplier",    "attn_logit_softcapping",
                                   "final_logit_softcapping", "attention_chunk_size"};

Status refuse_other_arithmetic(const json& root) {
  for (const auto& [key, neutral] : kNeutral) {
    for (const json* object : {&root, root.contains("rope_parameters") ? &root["rope_parameters"] : nullptr,
                               root.contains("rope_scaling") ? &root["rope_scaling"] : nullptr}) {
      if (object == nullptr || !object->is_object() || !object->contains(key)) continue;
      const json& value = (*object)[key];
      if (value.is_null() || (value.is_number() && value.get<double>() == neutral)) continue;
      return error("model config: {} is {}; Sluice supports {} only", key, in_words(value), neutral);
    }
  }
  for (const char* key : kAbsent) {
    if (root.contains(key) && !root[key].is_null())
      return error("model config: {} is {}; Sluice supports models without it only", key,
                   in_words(root[key]));
  }
  return {};
}

Result<bool> read_part(const json& root, const Part& part) {
  bool has = part.fixed;
  if (part.key != nullptr) SLUICE_TRY(read(root, part.key, has));
  return has;
}

// A key of some family that this one does not have must not be set: it would change the arithmetic.
Status refuse_bias(const json& root, const Family& family, const char* key) {
  for (const Part* part : {&family.qkv_bias, &family.o_bias, &family.mlp_bias}) {
    if (part->key != nullptr && std::string_view(part->key) == key) return {};
  }
  bool set = false;
  SLUICE_TRY(read(root, key, set));
  if (set) return error("model config: {} is true; {} models have false only", key, family.model_type);
  return {};
}

// Llama's transformers class knows no window, so a number there is somebody else's; Qwen's have a number that
// use_sliding_window turns on.
Status refuse_window(const json& root, const Family& family) {
  bool window = false;
  SLUICE_TRY(read(root, "use_sliding_window", window));
  if (window) return error("model config: use_sliding_window is true; Sluice supports false only");
  const auto width = root.find("sliding_window");
  const bool turned_off = family.model_type != "llama" || root.contains("use_sliding_window");
  if (width != root.end() && !width->is_null() && !turned_off) {
    return error("model config: sliding_window is {}; Sluice supports null only, or use_sliding_window false",
                 in_words(*width));
  }
  const auto types = root.find("layer_types");
  if (types == root.end() || types->is_null()) return {};
  if (!types->is_array()) return error("model config: layer_types is {}; a list is needed", in_words(*types));
  for (const json& type : *types) {
    if (type != "full_attention")
      return error("model config: layer_types has {}; Sluice supports full_attention only", in_words(type));
  }
  return {};
}

}  // namespace

Result<ModelSpec> parse_model_config(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return error("model config: not a JSON object");
  SLUICE_TRY(refuse_other_arithmetic(root));
  std::string type = "llama";
  SLUICE_TRY(read(root, "model_type", type));
  const Family* family = find_family(type);
  if (family == nullptr) {
    return error("model config: model_type is '{}'; allowed are {}", type, family_names());
  }
  ModelSpec spec;
  spec.family = family->model_type;
  spec.tied_embeddings = family->tied;
  spec.norm_eps = family->norm_eps;
  spec.rope.theta = family->theta;
  int64_t layers = 0;
  LayerSpec layer;
  Attention& a = layer.attention;
  SLUICE_TRY(read(root, "hidden_size", spec.dim));
  SLUICE_TRY(read(root, "num_hidden_layers", layers));
  SLUICE_TRY(read(root, "num_attention_heads", a.heads));
  a.kv_heads = a.heads;
  SLUICE_TRY(read(root, "num_key_value_heads", a.kv_heads));
  SLUICE_TRY(read(root, "intermediate_size", layer.mlp.ffn));
  SLUICE_TRY(read(root, "vocab_size", spec.vocab));
  SLUICE_TRY(read(root, "rms_norm_eps", spec.norm_eps));
  SLUICE_TRY(read(root, "tie_word_embeddings", spec.tied_embeddings));
  SLUICE_TRY(read(root, "head_dim", a.head_dim));
  if (a.head_dim == 0) a.head_dim = family->head_dim;
  if (a.head_dim == 0 && a.heads > 0) {
    if (spec.dim % a.heads != 0) {
      return error("model: hidden_size {} is not a multiple of num_attention_heads {}; give head_dim",
                   spec.dim, a.heads);
    }
    a.head_dim = spec.dim / a.heads;
  }
  SLUICE_TRY(read_rope(root, spec.rope));
  for (const char* key : {"attention_bias", "mlp_bias"}) SLUICE_TRY(refuse_bias(root, *family, key));
  SLUICE_TRY(refuse_window(root, *family));
  SLUICE_ASSIGN(a.qkv_bias, read_part(root, family->qkv_bias));
  SLUICE_ASSIGN(a.o_bias, read_part(root, family->o_bias));
  SLUICE_ASSIGN(layer.mlp.bias, read_part(root, family->mlp_bias));
  a.head_norm = family->head_norm;
  std::string act = "silu";
  SLUICE_TRY(read(root, "hidden_act", act));
  if (act != "silu") return error("model config: hidden_act is '{}'; allowed is silu", act);
  // A number of layers that cannot be is refused before anything of that many is made.
  if (layers > kMostLayers) {
    return error("model: num_hidden_layers is {}; allowed are 1 to {}", layers, kMostLayers);
  }
  spec.layers.assign(size_t(std::max<int64_t>(layers, 0)), layer);
  SLUICE_TRY(validate(spec));
  return spec;
}

std::string to_json(const ModelSpec& spec) {
  const Family* family = find_family(spec.family);
  SLUICE_CHECK(family != nullptr, "no model family {}", spec.family);
  const LayerSpec& layer = spec.layers.front();
  const Attention& a = layer.attention;
  json root = {{"architectures", {family->architecture}},
               {"model_type", spec.family},
               {"hidden_act", "silu"},
               {"hidden_size", spec.dim},
               {"num_hidden_layers", spec.layers.size()},
               {"num_attention_heads", a.heads},
               {"num_key_value_heads", a.kv_heads},
               {"head_dim", a.head_dim},
               {"intermediate_size", layer.mlp.ffn},
               {"vocab_size", spec.vocab},
               {"rms_norm_eps", spec.norm_eps},
               {"rope_theta", spec.rope.theta},
               {"tie_word_embeddings", spec.tied_embeddings}};
  // Keys that only say what the family is anyway are left out.
  const std::pair<const Part*, bool> parts[] = {
      {&family->qkv_bias, a.qkv_bias}, {&family->o_bias, a.o_bias}, {&family->mlp_bias, layer.mlp.bias}};
  for (const auto& [part, has] : parts) {
    if (part->key != nullptr && has != part->fixed) root[part->key] = has;
  }
  if (spec.rope.factor != 1) {
    root["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", spec.rope.factor},
                            {"low_freq_factor", spec.rope.low_freq_factor},
                            {"high_freq_factor", spec.rope.high_freq_factor},
                            {"original_max_position_embeddings", spec.rope.original_context}};
  }
  return root.dump(2);
}

}  // namespace sluice::core
