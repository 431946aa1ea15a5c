// SPDX-License-Identifier: Apache-2.0
#include "model/families/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/nearest.h"
#include "model/families/family.h"
#include "model/families/keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// By their names in config.json; to_json() writes the first name of each.
using NamedActivation = std::pair<std::string_view, GateActivation>;
constexpr std::array<NamedActivation, 4> kActivations{{{"silu", GateActivation::Silu},
                                                       {"swish", GateActivation::Silu},
                                                       {"gelu_pytorch_tanh", GateActivation::GeluTanh},
                                                       {"gelu_new", GateActivation::GeluTanh}}};

// Defaults are those of transformers' configuration classes.
constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .head_norm = false,
     .windows = Windows::None,
     .unrotated_layers = false,
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 0,
                  .head_dim = 0,
                  .vocab = 32000,
                  .context = 2048,
                  .window = 0,
                  .tied = false,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .qkv_bias = {},
     .o_bias = {},
     .mlp_bias = {},
     .head_norm = false,
     .windows = Windows::All,
     .unrotated_layers = false,
     .defaults = {.dim = 4096,
                  .ffn = 14336,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .head_dim = 0,
                  .vocab = 32000,
                  .context = 131072,
                  .window = 4096,
                  .tied = false,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = {nullptr, true},
     .o_bias = {},
     .mlp_bias = {},
     .head_norm = false,
     .windows = Windows::Upper,
     .unrotated_layers = false,
     .defaults = {.dim = 4096,
                  .ffn = 22016,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 32,
                  .head_dim = 0,
                  .vocab = 151936,
                  .context = 32768,
                  .window = 4096,
                  .tied = false,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {},
     .head_norm = true,
     .windows = Windows::Upper,
     .unrotated_layers = false,
     .defaults = {.dim = 4096,
                  .ffn = 22016,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 32,
                  .head_dim = 128,
                  .vocab = 151936,
                  .context = 32768,
                  .window = 4096,
                  .tied = false,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .head_norm = false,
     .windows = Windows::Unrotated,
     .unrotated_layers = true,
     .defaults = {.dim = 2048,
                  .ffn = 11008,
                  .layers = 36,
                  .heads = 16,
                  .kv_heads = 4,
                  .head_dim = 0,
                  .vocab = 128256,
                  .context = 32768,
                  .window = 0,
                  .tied = true,
                  .norm_eps = 1e-6,
                  .theta = 2000000,
                  .pad_token = 128004}},
};

// Keys with which the arithmetic would be another; with this value, or null, it is not.
struct Neutral {
  const char* key;
  double value;
};
constexpr Neutral kNeutral[] = {
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"attention_dropout", 0},
    {"hidden_dropout", 0},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"num_nextn_predict_layers", 0},
    {"num_kv_shared_layers", 0},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"rope_interleaved", 0},
    {"attn_output_gate", 0},
};
// Of Llama's class alone: others carry the key, too, and nothing reads it.
constexpr Neutral kNeutralInLlama[] = {{"pretraining_tp", 1}};
// And keys of which only null does not change it.
constexpr const char* kAbsent[] = {"quantization_config",     "compression_config",
                                   "attention_multiplier",    "attn_logit_softcapping",
                                   "final_logit_softcapping", "attention_chunk_size"};

Status refuse_unless_neutral(const json& root, std::span<const Neutral> keys) {
  for (const auto& [key, neutral] : keys) {
    for (const json* object : {&root, root.contains("rope_parameters") ? &root["rope_parameters"] : nullptr,
                               root.contains("rope_scaling") ? &root["rope_scaling"] : nullptr}) {
      if (object == nullptr || !object->is_object() || !says(*object, key)) continue;
      const json& value = (*object)[key];
      const bool same = value.is_boolean() ? value.get<bool>() == (neutral != 0)
                                           : value.is_number() && value.get<double>() == neutral;
      if (!same)
        return error("model config: {} is {}; Sluice supports {} only", key, in_words(value), neutral);
    }
  }
  return {};
}

Status refuse_other_arithmetic(const json& root, std::string_view model_type) {
  SLUICE_TRY(refuse_unless_neutral(root, kNeutral));
  if (model_type == "llama") SLUICE_TRY(refuse_unless_neutral(root, kNeutralInLlama));
  for (const char* key : kAbsent) {
    if (says(root, key))
      return error("model config: {} is {}; Sluice supports models without it only", key,
                   in_words(root[key]));
  }
  // Arithmetic that comes as Python beside the weights.
  if (says(root, "auto_map") && root["auto_map"].is_object() &&
      says(root["auto_map"], "AutoModelForCausalLM")) {
    return error("model config: auto_map.AutoModelForCausalLM is {}; Sluice does not run a model's own code",
                 in_words(root["auto_map"]["AutoModelForCausalLM"]));
  }
  return {};
}

// Keys that change no arithmetic here, and that others read of what is saved: what no program could read is
// refused. An end that the model cannot say is no error, and nothing ends there.
Status check_handed_on(const json& root, int64_t vocab, std::vector<std::string>& notices) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    std::string type = "float32";
    SLUICE_TRY(read(root, key, type));
    if (type != "float32" && type != "bfloat16" && type != "float16")
      return error("model config: {} is '{}'; allowed are float32, bfloat16 and float16", key, type);
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!says(root, key)) continue;
    for (const json& token : root[key].is_array() ? root[key] : json::array({root[key]})) {
      if (!token.is_number_integer() || token < -1 || token > INT32_MAX)
        return error("model config: {} is {}; allowed are the number of a token, or a list of some", key,
                     in_words(root[key]));
      if (token >= vocab && std::string_view(key) == "eos_token_id")
        notices.push_back(
            fmt::format("config.json: its eos_token_id {} is no token of the model's {}: no text ends there",
                        token.dump(), vocab));
    }
  }
  return {};
}

// Families that people will try, and what of them is not there.
struct Relative {
  std::string_view model_type, lacks;
};
constexpr Relative kRelatives[] = {
    {"gemma", "norms with 1 + w, scaled embeddings and GELU"},
    {"gemma2", "norms with 1 + w and behind each part, scaled embeddings, soft caps and GELU"},
    {"gemma3", "norms with 1 + w and behind each part, scaled embeddings, GELU and images"},
    {"gemma3_text", "norms with 1 + w and behind each part, scaled embeddings and GELU"},
    {"phi", "attention beside the MLP, LayerNorm, GELU and partial rotation"},
    {"phi3", "joint tensors of q, k and v and of gate and up, and rotation longrope"},
    {"mixtral", "experts"},
    {"qwen2_moe", "experts"},
    {"qwen3_moe", "experts"},
    {"qwen3_next", "experts and linear attention"},
    {"olmoe", "experts"},
    {"gpt_oss", "experts and attention sinks"},
    {"deepseek_v2", "experts and latent attention"},
    {"deepseek_v3", "experts and latent attention"},
    {"llama4", "experts, chunked attention and images"},
    {"llama4_text", "experts and chunked attention"},
    {"mllama", "images"},
    {"mistral3", "images"},
    {"ministral", "windows that alternate with whole attention"},
    {"granite", "multipliers of embeddings, residuals, scores and logits"},
    {"olmo", "LayerNorm without weights"},
    {"olmo2", "norms behind attention and MLP"},
    {"cohere", "attention beside the MLP, LayerNorm and a scale of logits"},
    {"stablelm", "LayerNorm and partial rotation"},
    {"starcoder2", "LayerNorm and an MLP without gate"},
    {"gpt2", "LayerNorm, GELU and learnt positions"},
    {"gpt_neox", "attention beside the MLP, LayerNorm, GELU and partial rotation"},
};

Error unknown_family(std::string_view type) {
  for (const Relative& relative : kRelatives) {
    if (relative.model_type != type) continue;
    return error("model config: model_type is '{}', and Sluice lacks its {}; allowed are {}", type,
                 relative.lacks, family_names());
  }
  return error("model config: model_type is '{}'; allowed are {}", type, family_names());
}

// Sizes, which decide how large a model is: who writes a config.json by hand forgets one of them, or
// misspells it.
constexpr const char* kSizes[] = {"hidden_size",         "num_hidden_layers", "num_attention_heads",
                                  "num_key_value_heads", "intermediate_size", "vocab_size"};
// And the other keys of the root that are read here, those above of the arithmetic apart.
constexpr const char* kOthers[] = {"model_type",
                                   "head_dim",
                                   "rms_norm_eps",
                                   "tie_word_embeddings",
                                   "max_position_embeddings",
                                   "original_max_position_embeddings",
                                   "rope_theta",
                                   "rope_scaling",
                                   "rope_parameters",
                                   "attention_bias",
                                   "mlp_bias",
                                   "hidden_act",
                                   "sliding_window",
                                   "use_sliding_window",
                                   "max_window_layers",
                                   "layer_types",
                                   "no_rope_layers",
                                   "no_rope_layer_interval"};

// A key that is one letter off is a slip: what it says would be passed over, and a default hold.
Status refuse_misspelt(const json& root) {
  std::vector<std::string_view> known(std::begin(kSizes), std::end(kSizes));
  known.insert(known.end(), std::begin(kOthers), std::end(kOthers));
  for (const Neutral& neutral : kNeutral) known.emplace_back(neutral.key);
  known.insert(known.end(), std::begin(kAbsent), std::end(kAbsent));
  for (const auto& [key, value] : root.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    for (const std::string_view meant : known) {
      if (root.contains(meant) || edit_distance(key, meant) != 1) continue;
      return error("model config: {} is {}; there is no such key. Did you mean {}?", key, in_words(value),
                   meant);
    }
  }
  return {};
}

// What a configuration that names its family leaves to the family.
void note_sizes_left_out(const json& root, const ModelSpec& spec, std::vector<std::string>& notices) {
  const LayerSpec& layer = spec.layers.front();
  const int64_t values[] = {
      spec.dim,  int64_t(spec.layers.size()), layer.attention.heads, layer.attention.kv_heads, layer.mlp.ffn,
      spec.vocab};
  static_assert(std::size(values) == std::size(kSizes));
  const Family& family = *find_family(spec.family);
  std::string list;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const bool as_heads =
        kSizes[i] == std::string_view("num_key_value_heads") && family.defaults.kv_heads == 0;
    if (root.contains(kSizes[i]) || as_heads) continue;
    list += fmt::format("{}{} = {}", list.empty() ? "" : ", ", kSizes[i], values[i]);
  }
  if (list.empty()) return;
  notices.push_back(fmt::format(
      "config.json leaves sizes out, and takes transformers' defaults for {} models: {}", spec.family, list));
}

Result<bool> read_part(const json& root, const OptionalPart& part) {
  bool has = part.fixed;
  if (part.key != nullptr) SLUICE_TRY(read(root, part.key, has));
  return has;
}

// A key of some family that this one does not have must not be set: it would change the arithmetic.
Status refuse_bias(const json& root, const Family& family, const char* key) {
  for (const OptionalPart* part : {&family.qkv_bias, &family.o_bias, &family.mlp_bias}) {
    if (part->key != nullptr && std::string_view(part->key) == key) return {};
  }
  bool set = false;
  SLUICE_TRY(read(root, key, set));
  if (set) return error("model config: {} is true; {} models have false only", key, family.model_type);
  return {};
}

// Sizes of the layers, which are alike in these.
Status read_layer(const json& root, const Family& family, const FamilyDefaults& defaults, int64_t dim,
                  LayerSpec& layer) {
  Attention& a = layer.attention;
  a.heads = defaults.heads;
  SLUICE_TRY(read(root, "num_attention_heads", a.heads));
  // null is as many as heads, whatever the default.
  const bool own = root.contains("num_key_value_heads") || defaults.kv_heads == 0;
  a.kv_heads = own ? a.heads : defaults.kv_heads;
  SLUICE_TRY(read(root, "num_key_value_heads", a.kv_heads));
  a.head_dim = defaults.head_dim;
  SLUICE_TRY(read(root, "head_dim", a.head_dim));
  if (!says(root, "head_dim") && a.head_dim == 0 && a.heads > 0) {
    if (dim % a.heads != 0) {
      return error("model: hidden_size {} is not a multiple of num_attention_heads {}; give head_dim", dim,
                   a.heads);
    }
    a.head_dim = dim / a.heads;
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) SLUICE_TRY(refuse_bias(root, family, key));
  SLUICE_ASSIGN(a.qkv_bias, read_part(root, family.qkv_bias));
  SLUICE_ASSIGN(a.o_bias, read_part(root, family.o_bias));
  SLUICE_ASSIGN(layer.mlp.bias, read_part(root, family.mlp_bias));
  a.head_norm = family.head_norm;
  layer.mlp.ffn = defaults.ffn;
  SLUICE_TRY(read(root, "intermediate_size", layer.mlp.ffn));
  std::string act(kActivations.front().first);
  SLUICE_TRY(read(root, "hidden_act", act));
  const auto known = std::ranges::find(kActivations, act, &NamedActivation::first);
  if (known == kActivations.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, activation] : kActivations) names.push_back(name);
    return error("model config: hidden_act is '{}'; allowed are {}", act, fmt::join(names, ", "));
  }
  layer.mlp.activation = known->second;
  return {};
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto* it = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                [&](const Family& f) { return f.model_type == model_type; });
  return it == std::end(kFamilies) ? nullptr : it;
}

std::vector<std::string> model_families() {
  std::vector<std::string> out;
  for (const Family& f : kFamilies) out.emplace_back(f.model_type);
  return out;
}

std::string family_names() {
  return fmt::format("{}", fmt::join(model_families(), ", "));
}

Result<ModelSpec> parse_model_config(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return error("model config: not a JSON object");
  std::string type = "llama";
  SLUICE_TRY(read(root, "model_type", type));
  const Family* family = find_family(type);
  if (family == nullptr) return unknown_family(type);
  SLUICE_TRY(refuse_other_arithmetic(root, type));
  SLUICE_TRY(refuse_misspelt(root));
  FamilyDefaults defaults = family->defaults;
  // Any JSON would be a model otherwise.
  if (!says(root, "model_type"))
    defaults.dim = defaults.ffn = defaults.layers = defaults.heads = defaults.vocab = 0;
  ModelSpec spec;
  spec.family = family->model_type;
  spec.dim = defaults.dim;
  spec.vocab = defaults.vocab;
  spec.tied_embeddings = defaults.tied;
  spec.norm_eps = defaults.norm_eps;
  spec.rope.theta = defaults.theta;
  int64_t layers = defaults.layers, context = defaults.context;
  SLUICE_TRY(read(root, "hidden_size", spec.dim));
  SLUICE_TRY(read(root, "num_hidden_layers", layers));
  SLUICE_TRY(read(root, "vocab_size", spec.vocab));
  SLUICE_TRY(read(root, "rms_norm_eps", spec.norm_eps));
  SLUICE_TRY(read(root, "tie_word_embeddings", spec.tied_embeddings));
  SLUICE_TRY(read(root, "max_position_embeddings", context));
  SLUICE_TRY(read_rope(root, context, spec.rope));
  LayerSpec layer;
  SLUICE_TRY(read_layer(root, *family, defaults, spec.dim, layer));
  // A number of layers that cannot be is refused before anything of that many is made.
  if (layers > kMostLayers) {
    return error("model: num_hidden_layers is {}; allowed are 1 to {}", layers, kMostLayers);
  }
  spec.layers.assign(size_t(std::max<int64_t>(layers, 0)), layer);
  spec.config = text;
  if (!spec.layers.empty()) note_sizes_left_out(root, spec, spec.notices);
  if (const Status valid = validate(spec); !valid.ok()) {
    if (spec.notices.empty()) return valid.error();
    return error("{}. {}", valid.message(), spec.notices.front());
  }
  SLUICE_TRY(read_layers(root, *family, spec));
  SLUICE_TRY(check_handed_on(root, spec.vocab, spec.notices));
  return spec;
}

std::string to_json(const ModelSpec& spec) {
  const Family* family = find_family(spec.family);
  SLUICE_CHECK(family != nullptr, "no model family {}", spec.family);
  const LayerSpec& layer = spec.layers.front();
  const Attention& a = layer.attention;
  json root = {
      {"architectures", {family->architecture}},
      {"model_type", spec.family},
      {"hidden_act", std::ranges::find(kActivations, layer.mlp.activation, &NamedActivation::second)->first},
      {"hidden_size", spec.dim},
      {"num_hidden_layers", spec.layers.size()},
      {"num_attention_heads", a.heads},
      {"num_key_value_heads", a.kv_heads},
      {"head_dim", a.head_dim},
      {"intermediate_size", layer.mlp.ffn},
      {"vocab_size", spec.vocab},
      {"rms_norm_eps", spec.norm_eps},
      {"tie_word_embeddings", spec.tied_embeddings}};
  // Keys that only say what the family is anyway are left out.
  const std::pair<const OptionalPart*, bool> parts[] = {
      {&family->qkv_bias, a.qkv_bias}, {&family->o_bias, a.o_bias}, {&family->mlp_bias, layer.mlp.bias}};
  for (const auto& [part, has] : parts) {
    if (part->key != nullptr && has != part->fixed) root[part->key] = has;
  }
  // Readers would take the family's, and refuse one that the vocabulary does not have.
  if (family->defaults.pad_token >= spec.vocab) root["pad_token_id"] = nullptr;
  write_rope(spec.rope, root);
  write_layers(spec, *family, root);
  return root.dump(2);
}

}  // namespace sluice::core
