// SPDX-License-Identifier: Apache-2.0
// Which keys of a config.json are known: those that are read, those that must say what holds anyway, and
// those that say nothing of the arithmetic. The table of a family is what is here with its own keys
// (OwnKeys).
#include "model/families/known.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "model/families/families.h"
#include "model/families/keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

// Keys with which the arithmetic would be another; with this value, or null, it is not.
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
    {"use_mrope", 0},
    {"lm_head_bias", 0},
    {"full_attn_mod", 1},
    {"interpolate_factor", 1},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"rope_interleaved", 0},
    {"attn_output_gate", 0},
    {"is_causal", 1},
    {"use_bidirectional_attention", 0},
    {"add_cross_attention", 0},
    {"alibi", 0},
};
// And keys of which only null, or an empty list or object, does not change it.
constexpr const char* kAbsent[] = {"compression_config",
                                   "attention_multiplier",
                                   "attn_logit_softcapping",
                                   "final_logit_softcapping",
                                   "clip_qkv",
                                   "attention_chunk_size",
                                   "pruned_heads"};

// Keys of the root that are read of every family, sizes and those above apart.
constexpr const char* kOthers[] = {"model_type",
                                   "quantization_config",
                                   "head_dim",
                                   "tie_word_embeddings",
                                   "max_position_embeddings",
                                   "original_max_position_embeddings",
                                   "rope_theta",
                                   "rope_scaling",
                                   "rope_parameters",
                                   "attention_bias",
                                   "mlp_bias",
                                   "sliding_window",
                                   "use_sliding_window",
                                   "max_window_layers",
                                   "layer_types",
                                   "no_rope_layers",
                                   "no_rope_layer_interval"};
// And keys that say nothing of the arithmetic here: what others do with the model, and what is said once
// more.
constexpr const char* kPassed[] = {"_name_or_path",
                                   "_sliding_window_pattern",
                                   "architectures",
                                   "auto_map",
                                   "bos_token_id",
                                   "cache_implementation",
                                   "chunk_size_feed_forward",
                                   "classifier_dropout",
                                   "decoder_start_token_id",
                                   "dtype",
                                   "eos_token_id",
                                   "finetuning_task",
                                   "forced_bos_token_id",
                                   "forced_eos_token_id",
                                   "id2label",
                                   "initializer_range",
                                   "is_decoder",
                                   "is_encoder_decoder",
                                   "is_llama_config",
                                   "keys_to_ignore_at_inference",
                                   "label2id",
                                   "max_length",
                                   "mlp_dropout",
                                   "output_attentions",
                                   "output_hidden_states",
                                   "pad_token_id",
                                   "prefix",
                                   "pretraining_tp",
                                   "problem_type",
                                   "return_dict",
                                   "sep_token_id",
                                   "task_specific_params",
                                   "tokenizer_class",
                                   "torch_dtype",
                                   "transformers.js_config",
                                   "transformers_version",
                                   "unsloth_fixed",
                                   "unsloth_version",
                                   "use_cache",
                                   "use_reentrant"};

// Keys of the whole where a model wraps a text model: its other parts, and their joints.
constexpr const char* kOfWholes[] = {"audio_config",         "audio_token_id",
                                     "boa_token_id",         "eoa_token_index",
                                     "boi_token_id",         "boi_token_index",
                                     "compression_config",   "eoi_token_id",
                                     "eoi_token_index",      "image_token_id",
                                     "image_token_index",    "mm_tokens_per_image",
                                     "model_type",           "multimodal_projector_bias",
                                     "projector_hidden_act", "quantization_config",
                                     "spatial_merge_size",   "text_config",
                                     "tie_word_embeddings",  "video_token_id",
                                     "vision_config",        "vision_end_token_id",
                                     "vision_feature_layer", "vision_start_token_id"};

void note_unknown(const std::vector<std::string>& unknown, std::vector<std::string>& notices) {
  if (!unknown.empty())
    notices.push_back(fmt::format("config.json has keys that Sluice does not know, and passes over: {}",
                                  fmt::join(unknown, ", ")));
}

bool is_in(const auto& names, std::string_view key) {
  return std::find(std::begin(names), std::end(names), key) != std::end(names);
}

bool reads(const Family& family, std::string_view key) {
  // By its name in the object of the rotation, too.
  if (family.partial.key != nullptr && (key == family.partial.key || key == "partial_rotary_factor"))
    return true;
  return family.own != nullptr && is_in(family.own->reads, key);
}

// The root, and what it and its parts say of rotary embedding.
std::vector<const json*> objects_of(const json& root) {
  std::vector<const json*> out{&root};
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (!root.contains(name) || !root[name].is_object()) continue;
    out.push_back(&root[name]);
    for (const auto& [key, value] : root[name].items()) {
      if (value.is_object()) out.push_back(&value);
    }
  }
  return out;
}

}  // namespace

std::vector<Neutral> neutral_keys(const Family& family) {
  std::vector<Neutral> out;
  for (const Neutral& neutral : kNeutral) {
    if (!reads(family, neutral.key)) out.push_back(neutral);
  }
  if (family.own != nullptr) out.insert(out.end(), family.own->neutral.begin(), family.own->neutral.end());
  return out;
}

std::vector<std::string_view> absent_keys(const Family& family) {
  std::vector<std::string_view> out;
  for (const char* key : kAbsent) {
    if (!reads(family, key)) out.emplace_back(key);
  }
  return out;
}

Status refuse_other_arithmetic(const json& root, const Family& family) {
  for (const auto& [key, neutral] : neutral_keys(family)) {
    for (const json* object : objects_of(root)) {
      if (!says(*object, key)) continue;
      const json& value = (*object)[key];
      const bool same = value.is_boolean() ? value.get<bool>() == (neutral != 0)
                                           : value.is_number() && value.get<double>() == neutral;
      if (!same)
        return error("model config: {} is {}; Sluice supports {} only{}", key, describe(value),
                     value.is_boolean() ? (neutral != 0 ? "true" : "false") : fmt::format("{}", neutral),
                     std::string_view(key).find("drop") == std::string_view::npos
                         ? ""
                         : ": it trains without dropout, and takes 0 for that");
    }
  }
  for (const std::string_view key : absent_keys(family)) {
    if (!says(root, key.data()) || (root[key].is_structured() && root[key].empty())) continue;
    return error("model config: {} is {}; Sluice supports models without it only", key, describe(root[key]));
  }
  // Arithmetic that comes as Python beside the weights.
  if (!family.own_code_too && says(root, "auto_map") && root["auto_map"].is_object() &&
      says(root["auto_map"], "AutoModelForCausalLM")) {
    return error("model config: auto_map.AutoModelForCausalLM is {}; Sluice does not run a model's own code",
                 describe(root["auto_map"]["AutoModelForCausalLM"]));
  }
  return {};
}

std::vector<std::string_view> known_keys(const Family& family) {
  std::vector<std::string_view> known(std::begin(kSizes), std::end(kSizes));
  known.insert(known.end(), std::begin(kOthers), std::end(kOthers));
  for (const Neutral& neutral : kNeutral) known.emplace_back(neutral.key);
  known.insert(known.end(), std::begin(kAbsent), std::end(kAbsent));
  if (family.own != nullptr) {
    known.insert(known.end(), family.own->reads.begin(), family.own->reads.end());
    for (const Neutral& neutral : family.own->neutral) known.emplace_back(neutral.key);
  }
  for (const char* key :
       {family.qkv_bias.key, family.o_bias.key, family.mlp_bias.key, family.activation_key,
        family.norm_eps_key, family.window_rope.key, family.theta_key, family.partial.key}) {
    if (key != nullptr) known.emplace_back(key);
  }
  for (const Renamed& renamed : family.renamed) known.emplace_back(renamed.own);
  if (family.windows == Windows::Pattern) known.emplace_back("sliding_window_pattern");
  return known;
}

Status check_unknown(const json& root, const Family& family, std::vector<std::string>& notices) {
  const std::vector<std::string_view> known = known_keys(family);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : root.items()) {
    if (is_in(known, key) || is_in(kPassed, key)) continue;
    for (const std::string_view meant : known) {
      if (root.contains(meant) || edit_distance(key, meant) != 1) continue;
      return error("model config: {} is {}; there is no such key. Did you mean {}?", key, describe(value),
                   meant);
    }
    unknown.push_back(key);
  }
  note_unknown(unknown, notices);
  return {};
}

Status check_whole(const json& whole, const json& part, const Family& family,
                   std::vector<std::string>& notices) {
  const std::vector<std::string_view> known = known_keys(family);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : whole.items()) {
    if (is_in(kOfWholes, key) || is_in(kPassed, key) || value.is_null()) continue;
    if (!is_in(known, key)) {
      unknown.push_back(key);
    } else if (!part.contains(key) || part[key] != value) {
      return error("model config: {} of the root is {}, and text_config, which decides, {}", key,
                   describe(value),
                   part.contains(key) ? fmt::format("has {}", describe(part[key])) : "does not say it");
    }
  }
  note_unknown(unknown, notices);
  return {};
}

}  // namespace sluice::core
