// SPDX-License-Identifier: Apache-2.0
#include "model/families/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/families/family.h"
#include "model/families/keys.h"
#include "model/families/known.h"
#include "text/json.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// By their names in config.json; to_json() writes the first name of each.
using NamedActivation = std::pair<std::string_view, GateActivation>;
constexpr std::array<NamedActivation, 7> kActivations{{{"silu", GateActivation::Silu},
                                                       {"swish", GateActivation::Silu},
                                                       {"gelu_pytorch_tanh", GateActivation::GeluTanh},
                                                       {"gelu_new", GateActivation::GeluTanh},
                                                       {"gelu_fast", GateActivation::GeluTanh},
                                                       {"gelu", GateActivation::Gelu},
                                                       {"quick_gelu", GateActivation::QuickGelu}}};

std::string_view name_in_config(GateActivation activation) {
  return std::ranges::find(kActivations, activation, &NamedActivation::second)->first;
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
                     describe(root[key]));
      if (token >= vocab && std::string_view(key) == "eos_token_id")
        notices.push_back(
            fmt::format("config.json: its eos_token_id {} is no token of the model's {}: no text ends there",
                        token.dump(), vocab));
    }
  }
  return {};
}

// A model that has a text model among others, and the family of that where its part does not say it. The
// module is what the text model is in the class that transformers has for causal language models. Empty: the
// class is the text model's own.
struct Wrapper {
  std::string_view model_type, text, module;
};
constexpr std::string_view kInside = "model.language_model";
constexpr Wrapper kWrappers[] = {
    {"gemma3", "gemma3_text", kInside}, {"gemma4", "gemma4_text", kInside},
    {"mistral3", "mistral", kInside},   {"gemma4_unified", "gemma4_unified_text", kInside},
    {"qwen3_5", "qwen3_5_text", ""},    {"qwen3_5_moe", "qwen3_5_moe_text", ""}};

const Wrapper* find_wrapper(std::string_view type) {
  const Wrapper* it = std::ranges::find(kWrappers, type, &Wrapper::model_type);
  return it == std::end(kWrappers) ? nullptr : it;
}

// The config.json that the text part would have alone: with what the whole says of it, too.
Result<json> text_part(const json& root, const Wrapper& wrapper) {
  if (!root.contains("text_config") || !root["text_config"].is_object())
    return error("model config: model_type is '{}'; then text_config, an object, is needed",
                 wrapper.model_type);
  json part = root["text_config"];
  if (!says(part, "model_type")) part["model_type"] = wrapper.text;
  // A file could nest as many wrappers as it has bytes.
  if (!part["model_type"].is_string() || find_wrapper(part["model_type"].get<std::string>()) != nullptr)
    return error("model config: text_config.model_type is {}; a text model's is needed",
                 describe(part["model_type"]));
  for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id",
                          "quantization_config", "compression_config", "auto_map"}) {
    if (says(root, key) && !says(part, key)) part[key] = root[key];
  }
  // The head is the whole's, and so is whether it is the embedding.
  if (says(root, "tie_word_embeddings")) part["tie_word_embeddings"] = root["tie_word_embeddings"];
  return part;
}

// Notes sizes that a configuration leaves to its family.
void note_sizes_left_out(const json& root, const ModelSpec& spec, std::vector<std::string>& notices) {
  const LayerSpec& layer = spec.layers.front();
  const Attention& a = spec.attention();
  const int64_t values[] = {spec.dim,  int64_t(spec.layers.size()), a.heads, a.kv_heads, layer.mlp().ffn,
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
  const bool holds = std::string_view(key) == "mlp_bias" ? family.mlp_bias.fixed : family.qkv_bias.fixed;
  bool set = holds;
  SLUICE_TRY(read(root, key, set));
  if (set != holds)
    return error("model config: {} is {}; {} models have {} only", key, set, family.model_type, holds);
  return {};
}

void rename_to_own(json& root, const Family& family) {
  for (const auto& [own, general, either] : family.renamed) {
    if (!root.contains(general)) continue;
    root[own] = root[general];
    root.erase(general);
  }
}

// Has the keys that the family calls otherwise by their general names.
Status read_renamed(json& root, const Family& family) {
  for (const auto& [own, general, either] : family.renamed) {
    if (!either && says(root, general))
      return error("model config: {} is {}; {} models have {} for it", general, describe(root[general]),
                   family.model_type, own);
    if (!root.contains(own)) continue;
    if (says(root, general) && root[general] != root[own])
      return error("model config: {} is {} and {}, which is the same, {}", own, describe(root[own]), general,
                   describe(root[general]));
    root[general] = root[own];
    root.erase(own);
  }
  return {};
}

// Which frequencies are of which of a token's three positions, in models that also see. A text's tokens have
// these all alike, so that nothing follows but how many frequencies there are; -1: nothing is said.
Result<int64_t> take_mrope(json& root) {
  int64_t out = -1;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!says(root, name) || !root[name].is_object()) continue;
    root[name].erase("mrope_interleaved");
    if (!says(root[name], "mrope_section")) continue;
    const json sections = root[name]["mrope_section"];
    root[name].erase("mrope_section");
    int64_t sum = 0;
    bool fits = sections.is_array() && sections.size() == 3;
    for (const json& section : fits ? sections : json::array()) {
      fits = fits && section.is_number_unsigned() && section <= kMostWidth;
      if (fits) sum += section.get<int64_t>();
    }
    if (!fits || (out >= 0 && out != sum))
      return error("model config: {}.mrope_section is {}; three sizes are needed, everywhere the same", name,
                   sections.dump());
    out = sum;
  }
  return out;
}

// Sizes of the layers, which are alike in these.
Status read_layer(const json& root, const Family& family, const FamilyDefaults& defaults, int64_t dim,
                  LayerSpec& layer) {
  Attention& a = *layer.attention();
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
  if (family.head_dim_follows && a.heads > 0 && (dim % a.heads != 0 || a.head_dim != dim / a.heads))
    return error(
        "model config: head_dim is {}; {} models have hidden_size / num_attention_heads, which are {} and {}",
        a.head_dim, family.model_type, dim, a.heads);
  for (const char* key : {"attention_bias", "mlp_bias"}) SLUICE_TRY(refuse_bias(root, family, key));
  SLUICE_ASSIGN(a.qkv_bias, read_part(root, family.qkv_bias));
  SLUICE_ASSIGN(a.o_bias, read_part(root, family.o_bias));
  SLUICE_ASSIGN(layer.mlp().bias, read_part(root, family.mlp_bias));
  a.qk_norm = family.qk_norm;
  layer.norms = family.norms;
  layer.mlp().gated = family.gated;
  layer.mlp().ffn = defaults.ffn;
  SLUICE_TRY(read(root, "intermediate_size", layer.mlp().ffn));
  std::string act(name_in_config(defaults.activation));
  SLUICE_TRY(read(root, family.activation_key, act));
  if (family.gelu_is_tanh && act == "gelu") act = name_in_config(GateActivation::GeluTanh);
  const auto known = std::ranges::find(kActivations, act, &NamedActivation::first);
  if (known == kActivations.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, activation] : kActivations) names.push_back(name);
    return error("model config: {} is '{}'; allowed are {}", family.activation_key, act,
                 fmt::join(names, ", "));
  }
  layer.mlp().activation = known->second;
  return {};
}

}  // namespace

bool wraps_text(std::string_view text) {
  const json root = json::parse(text, nullptr, false);
  return root.is_object() && root.contains("model_type") && root["model_type"].is_string() &&
         find_wrapper(root["model_type"].get<std::string>()) != nullptr;
}

std::string wrapper_names() {
  std::vector<std::string_view> names;
  for (const Wrapper& wrapper : kWrappers) names.push_back(wrapper.model_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<ModelSpec> parse_model_config(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed.ok()) return error_at("model config", parsed.error());
  json root = std::move(*parsed);
  if (!root.is_object())
    return error("model config: not a JSON object; a model is a preset, its folder, or its config.json");
  std::string type = "llama";
  SLUICE_TRY(read(root, "model_type", type));
  if (const Wrapper* wrapper = find_wrapper(type)) {
    SLUICE_ASSIGN(const json part, text_part(root, *wrapper));
    SLUICE_ASSIGN(ModelSpec spec, parse_model_config(part.dump(2) + "\n"));
    SLUICE_TRY(check_whole(root, part, *find_family(spec.family), spec.notices));
    spec.text_module = wrapper->module;
    spec.notices.push_back(
        fmt::format("config.json: of this {} model its text part alone, which is {}; sluice export puts its "
                    "other tensors back",
                    type, spec.family));
    return spec;
  }
  const Family* family = find_family(type);
  if (family == nullptr) return unknown_family(type);
  ModelSpec spec;
  SLUICE_TRY(read_renamed(root, *family));
  SLUICE_TRY(refuse_other_arithmetic(root, *family));
  std::vector<std::string> unknown;
  SLUICE_TRY(check_unknown(root, *family, unknown));
  SLUICE_TRY(read_quantization(root, spec));
  int64_t frequencies = -1;
  if (family->deltas) {
    SLUICE_ASSIGN(frequencies, take_mrope(root));
  }
  FamilyDefaults defaults = family->defaults;
  // Any JSON would be a model otherwise.
  if (!says(root, "model_type"))
    defaults.dim = defaults.ffn = defaults.layers = defaults.heads = defaults.vocab = 0;
  spec.family = family->model_type;
  spec.dim = defaults.dim;
  spec.vocab = defaults.vocab;
  spec.tied_embeddings = defaults.tied;
  spec.norm_eps = defaults.norm_eps;
  spec.norm_offset = family->norm_offset;
  spec.norm = family->norm;
  spec.names = family->names;
  spec.rope.theta = defaults.theta;
  int64_t layers = defaults.layers, context = defaults.context;
  SLUICE_TRY(read(root, "hidden_size", spec.dim));
  SLUICE_TRY(read(root, "num_hidden_layers", layers));
  SLUICE_TRY(read(root, "vocab_size", spec.vocab));
  if (family->norm_eps_key != nullptr) SLUICE_TRY(read(root, family->norm_eps_key, spec.norm_eps));
  SLUICE_TRY(read(root, "tie_word_embeddings", spec.tied_embeddings));
  SLUICE_TRY(read(root, "max_position_embeddings", context));
  if (says(root, "max_position_embeddings")) spec.context = context;
  SLUICE_TRY(read_rope(root, *family, context, spec));
  if (spec.rope.temperature != 0 && !family->tempered)
    return error("model config: llama_4_scaling_beta is {}; {} models have no such key",
                 spec.rope.temperature, type);
  LayerSpec layer;
  SLUICE_TRY(read_layer(root, *family, defaults, spec.dim, layer));
  // A number of layers that cannot be is refused before anything of that many is made.
  if (layers > kMostLayers) {
    return error("model: num_hidden_layers is {}; allowed are 1 to {}", layers, kMostLayers);
  }
  spec.layers.assign(size_t(std::max<int64_t>(layers, 0)), layer);
  if (family->own != nullptr && family->own->read != nullptr) SLUICE_TRY(family->own->read(root, spec));
  if (!spec.layers.empty()) SLUICE_TRY(read_rotated_rows(root, *family, spec));
  const int64_t rotated = spec.rotated_rows(spec.attention());
  if (frequencies >= 0 && 2 * frequencies != rotated)
    return error("model config: mrope_section sums up to {}; {} frequencies rotate a head", frequencies,
                 rotated / 2);
  spec.config = text;
  if (!spec.layers.empty()) note_sizes_left_out(root, spec, spec.notices);
  if (const Status valid = validate(spec); !valid.ok()) {
    if (spec.notices.empty()) return valid.error();
    return error("{}. {}", valid.message(), spec.notices.front());
  }
  SLUICE_TRY(read_layers(root, *family, spec));
  if (family->own != nullptr && family->own->read_layers != nullptr) {
    SLUICE_TRY(family->own->read_layers(root, spec));
    SLUICE_TRY(validate(spec));
  }
  SLUICE_TRY(check_handed_on(root, spec.vocab, spec.notices));
  spec.notices.insert(spec.notices.end(), unknown.begin(), unknown.end());
  return spec;
}

std::string to_json(const ModelSpec& spec) {
  const Family* family = find_family(spec.family);
  SLUICE_CHECK(family != nullptr, "no model family {}", spec.family);
  const LayerSpec& layer = spec.layers.front();
  const Attention& a = spec.attention();
  json root = {{"architectures", {family->architecture}},
               {"model_type", spec.family},
               {family->activation_key, name_in_config(layer.mlp().activation)},
               {"hidden_size", spec.dim},
               {"num_hidden_layers", spec.layers.size()},
               {"intermediate_size", layer.mlp().ffn},
               {"vocab_size", spec.vocab},
               {"tie_word_embeddings", spec.tied_embeddings}};
  if (a.heads > 0)
    root.update(
        {{"num_attention_heads", a.heads}, {"num_key_value_heads", a.kv_heads}, {"head_dim", a.head_dim}});
  if (family->norm_eps_key != nullptr) root[family->norm_eps_key] = spec.norm_eps;
  // Keys that only say what the family is anyway are left out.
  const std::pair<const OptionalPart*, bool> parts[] = {
      {&family->qkv_bias, a.qkv_bias}, {&family->o_bias, a.o_bias}, {&family->mlp_bias, layer.mlp().bias}};
  for (const auto& [part, has] : parts) {
    if (part->key != nullptr && has != part->fixed) root[part->key] = has;
  }
  // Readers would take the family's, and refuse one that the vocabulary does not have.
  if (family->defaults.pad_token >= spec.vocab) root["pad_token_id"] = nullptr;
  if (!family->learns_positions) write_rope(spec, root);
  write_layers(spec, *family, root);
  if (family->own != nullptr && family->own->write != nullptr) family->own->write(spec, root);
  rename_to_own(root, *family);
  return root.dump(2);
}

std::string with_own_keys(std::string_view text) {
  json root = json::parse(text);
  const Family* const family = find_family(root.at("model_type").get<std::string>());
  SLUICE_CHECK(family != nullptr, "no family {}", root["model_type"].dump());
  rename_to_own(root, *family);
  return root.dump(2);
}

}  // namespace sluice::core
