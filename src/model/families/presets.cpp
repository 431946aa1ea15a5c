// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/nearest.h"
#include "model/families/families.h"

namespace sluice::core {
namespace {

struct Preset {
  std::string_view name;
  std::string_view billions;  // by which it was called before; empty: it was not
  EqualLayers shape;
  bool tied;
  double theta;
};

// 1B, 8B and 70B are Llama-3.2-1B, Llama-3-8B and Llama-3-70B; 15B and 32B keep the family's proportions at
// the widths that the published measurements of other systems use. small to 2.7B are those of a course on
// systems (SwiGLU, untied).
constexpr Preset kPresets[] = {
    {"tiny", "", {320, 8, 5, 5, 64, 864, 256}, false, 10000},
    {"llama3-1b", "1", {2048, 16, 32, 8, 64, 8192, 128256}, true, 500000},
    {"llama3-8b", "8", {4096, 32, 32, 8, 128, 14336, 128256}, false, 500000},
    {"llama3-15b", "15", {5120, 40, 40, 8, 128, 17408, 128256}, false, 500000},
    {"llama3-32b", "32", {5120, 64, 64, 8, 128, 25600, 128256}, false, 500000},
    {"llama3-70b", "", {8192, 80, 64, 8, 128, 28672, 128256}, false, 500000},
    {"small", "", {768, 12, 12, 12, 64, 3072, 10000}, false, 10000},
    {"medium", "", {1024, 24, 16, 16, 64, 4096, 10000}, false, 10000},
    {"large", "", {1280, 36, 20, 20, 64, 5120, 10000}, false, 10000},
    {"xl", "", {1600, 48, 25, 25, 64, 6400, 10000}, false, 10000},
    {"2.7B", "", {2560, 32, 32, 32, 80, 10240, 10000}, false, 10000},
};

// Models of other families, as their config.json has them: what is left out is as in transformers' classes.
struct ConfigPreset {
  std::string_view name, config;
};
constexpr ConfigPreset kConfigPresets[] = {
    {"qwen3-14b",
     R"({"model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40,
         "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
         "rope_theta": 1000000, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960})"},
    {"olmoe-7b-a1b",
     R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
         "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 50304, "num_experts": 64,
         "num_experts_per_tok": 8, "norm_topk_prob": false})"},
    {"qwen3-30b-a3b",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
         "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
         "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
         "rope_theta": 1000000, "rms_norm_eps": 1e-6})"},
    {"qwen3.5-4b",
     R"({"model_type": "qwen3_5_text", "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
         "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
         "vocab_size": 248320, "tie_word_embeddings": true, "rope_theta": 10000000})"},
    {"qwen3.5-9b",
     R"({"model_type": "qwen3_5_text", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
         "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
         "vocab_size": 248320, "rope_theta": 10000000})"},
    {"qwen3.6-27b",
     R"({"model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
         "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48,
         "vocab_size": 248320, "rope_theta": 10000000})"},
    {"qwen3.6-35b-a3b",
     R"({"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40,
         "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_value_heads": 32,
         "vocab_size": 248320, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "rope_theta": 10000000})"},
    {"gemma3-27b",
     R"({"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
         "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262208,
         "query_pre_attn_scalar": 168, "sliding_window": 1024, "rope_theta": 1000000,
         "rope_local_base_freq": 10000, "rope_scaling": {"rope_type": "linear", "factor": 8}})"},
    {"gemma4-e4b",
     R"({"model_type": "gemma4_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
         "num_attention_heads": 8, "num_key_value_heads": 2, "num_kv_shared_layers": 18, "vocab_size": 262144,
         "final_logit_softcapping": 30.0})"},
    {"gemma4-12b",
     R"({"model_type": "gemma4_unified_text", "hidden_size": 3840, "intermediate_size": 15360,
         "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8,
         "num_global_key_value_heads": 1, "attention_k_eq_v": true, "vocab_size": 262144,
         "final_logit_softcapping": 30.0})"},
    {"gemma4-26b-a4b",
     R"({"model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
         "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
         "attention_k_eq_v": true, "sliding_window": 1024, "hidden_size_per_layer_input": 0,
         "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
         "vocab_size": 262144, "final_logit_softcapping": 30.0})"},
    {"gemma4-31b",
     R"({"model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
         "num_attention_heads": 32, "num_key_value_heads": 16, "num_global_key_value_heads": 4,
         "attention_k_eq_v": true, "sliding_window": 1024, "hidden_size_per_layer_input": 0,
         "vocab_size": 262144, "final_logit_softcapping": 30.0})"},
    {"gpt-oss-20b",
     R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
         "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128})"},
};

}  // namespace

std::string preset_meant_by(std::string_view name) {
  const std::string plain = plain_name(name);
  const auto has_point = [](std::string_view text) { return text.find('.') != text.npos; };
  for (const Preset& p : kPresets) {
    const std::string billions = std::string(p.billions);
    const bool old = !billions.empty() && (plain == billions || plain == billions + "b");
    // 27B is not 2.7B.
    const bool same = plain == plain_name(p.name) && has_point(name) == has_point(p.name);
    if (old || same) return std::string(p.name);
  }
  for (const ConfigPreset& p : kConfigPresets) {
    if (plain == plain_name(p.name)) return std::string(p.name);
  }
  return {};
}

std::string other_models(std::string_view text) {
  const auto digits = [](std::string name) {
    std::erase_if(name, [](char c) { return c < '0' || c > '9'; });
    return name;
  };
  // Another number is no slip but another model.
  const std::string plain = plain_name(text), near = nearest(plain, model_presets());
  if (similar(plain, plain_name(near)) && digits(plain) == digits(near))
    return fmt::format("; did you mean {}?", near);
  if (text.find('=') != text.npos)
    return fmt::format(
        "; a number of parameters has no layers to plan: sluice estimate {} counts with it, and a "
        "model of that size is planned by a preset or by its config.json",
        text);
  if (text.find('/') != text.npos)
    return "; there is no such file, and nothing is downloaded. Give the path of the model's folder, or of "
           "its "
           "config.json";
  return "; a model of another shape is its config.json, by its path";
}

Result<ModelSpec> model_preset(std::string_view name) {
  const std::string meant = preset_meant_by(name);
  for (const Preset& p : kPresets) {
    if (p.name != meant) continue;
    ModelSpec spec = model_of(p.shape);
    spec.tied_embeddings = p.tied;
    spec.rope.theta = p.theta;
    return spec;
  }
  for (const ConfigPreset& p : kConfigPresets) {
    if (p.name == meant) return parse_model_config(p.config);
  }
  return error("model '{}': allowed are {}{}", name, fmt::join(model_presets(), ", "), other_models(name));
}

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  for (const ConfigPreset& p : kConfigPresets) names.emplace_back(p.name);
  return names;
}

}  // namespace sluice::core
