// SPDX-License-Identifier: Apache-2.0
// The table of families.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/families/families.h"
#include "model/families/family.h"
#include "model/families/keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr double kMostScale = 1e6;

// Of Llama's class alone: others carry the key, too, and nothing reads it.
constexpr Neutral kLlamaNeutral[] = {{"pretraining_tp", 1}};
constexpr OwnKeys kLlama{{}, kLlamaNeutral, nullptr, nullptr};

constexpr const char* kStarcoder2Reads[] = {"mlp_type", "norm_type"};
constexpr Neutral kStarcoder2Neutral[] = {{"residual_dropout", 0}, {"embedding_dropout", 0}};
// What transformers' class is whatever they say.
Status read_starcoder2(const json& root, ModelSpec& /*spec*/) {
  for (const auto& [key, only] : {std::pair{"mlp_type", "default"}, {"norm_type", "layer_norm"}}) {
    std::string value = only;
    SLUICE_TRY(read(root, key, value));
    if (value != only)
      return error("model config: {} is '{}'; starcoder2 models have {} only", key, value, only);
  }
  return {};
}
constexpr OwnKeys kStarcoder2{kStarcoder2Reads, kStarcoder2Neutral, read_starcoder2, nullptr};

constexpr Neutral kPhi3Neutral[] = {{"resid_pdrop", 0}, {"embd_pdrop", 0}};
constexpr OwnKeys kPhi3{{}, kPhi3Neutral, nullptr, nullptr};

Status read_granite(const json& root, ModelSpec& spec) {
  double scores = 1, divisor = 1;
  const std::pair<const char*, double*> keys[] = {{"embedding_multiplier", &spec.embedding_scale},
                                                  {"residual_multiplier", &spec.residual_scale},
                                                  {"attention_multiplier", &scores},
                                                  {"logits_scaling", &divisor}};
  for (const auto& [key, value] : keys) SLUICE_TRY(read(root, key, *value, 1 / kMostScale, kMostScale));
  spec.logit_scale = 1 / divisor;
  for (LayerSpec& layer : spec.layers) layer.attention.scale = scores;
  return {};
}
void write_granite(const ModelSpec& spec, json& root) {
  root["embedding_multiplier"] = spec.embedding_scale;
  root["residual_multiplier"] = spec.residual_scale;
  root["attention_multiplier"] = spec.layers.front().attention.scale;
  root["logits_scaling"] = 1 / spec.logit_scale;
}
constexpr const char* kGraniteReads[] = {"embedding_multiplier", "residual_multiplier",
                                         "attention_multiplier", "logits_scaling"};
constexpr OwnKeys kGranite{kGraniteReads, {}, read_granite, write_granite};

constexpr Neutral kGemmaNeutral[] = {{"use_bidirectional_attention", 0}};

Status read_gemma(const json& root, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(double(spec.dim));
  // Early files say "gelu" and mean its approximation, as transformers has it; what they say beside must
  // agree.
  std::string activation = "gelu_pytorch_tanh";
  SLUICE_TRY(read(root, "hidden_activation", activation));
  if (activation == "gelu_pytorch_tanh") return {};
  return error("model config: hidden_activation is '{}'; gemma models have gelu_pytorch_tanh only",
               activation);
}
constexpr const char* kGemmaReads[] = {"hidden_activation"};
constexpr OwnKeys kGemma{kGemmaReads, kGemmaNeutral, read_gemma, nullptr};

Status read_gemma3(const json& root, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(double(spec.dim));
  double scalar = 256;
  SLUICE_TRY(read(root, "query_pre_attn_scalar", scalar, 1.0, kMostScale));
  if (scalar != std::round(scalar))
    return error("model config: query_pre_attn_scalar is {}; transformers takes whole numbers only", scalar);
  for (LayerSpec& layer : spec.layers) layer.attention.scale = 1 / std::sqrt(scalar);
  return {};
}
void write_gemma3(const ModelSpec& spec, json& root) {
  const double scale = spec.layers.front().attention.scale;
  root["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
}
// hidden_act stands beside hidden_activation, and transformers passes it over.
constexpr const char* kGemma3Reads[] = {"query_pre_attn_scalar", "hidden_act"};
constexpr OwnKeys kGemma3{kGemma3Reads, kGemmaNeutral, read_gemma3, write_gemma3};

// A soft cap that is null is none.
Status read_softcap(const json& root, const char* key, double& cap) {
  if (!root.contains(key) || !root[key].is_null()) return read(root, key, cap, 1 / kMostScale, kMostScale);
  cap = 0;
  return {};
}
Status read_gemma2(const json& root, ModelSpec& spec) {
  SLUICE_TRY(read_gemma3(root, spec));
  double scores = 50;
  spec.logit_softcap = 30;
  SLUICE_TRY(read_softcap(root, "attn_logit_softcapping", scores));
  SLUICE_TRY(read_softcap(root, "final_logit_softcapping", spec.logit_softcap));
  for (LayerSpec& layer : spec.layers) layer.attention.softcap = scores;
  return {};
}
void write_gemma2(const ModelSpec& spec, json& root) {
  write_gemma3(spec, root);
  const std::pair<const char*, double> caps[] = {
      {"attn_logit_softcapping", spec.layers.front().attention.softcap},
      {"final_logit_softcapping", spec.logit_softcap}};
  for (const auto& [key, cap] : caps) root[key] = cap == 0 ? json(nullptr) : json(cap);
}
constexpr const char* kGemma2Reads[] = {"query_pre_attn_scalar", "hidden_act", "attn_logit_softcapping",
                                        "final_logit_softcapping"};
constexpr OwnKeys kGemma2{kGemma2Reads, kGemmaNeutral, read_gemma2, write_gemma2};

constexpr const char* kCohere2Reads[] = {"logit_scale"};
Status read_cohere2(const json& root, ModelSpec& spec) {
  spec.logit_scale = 0.0625;
  for (LayerSpec& layer : spec.layers) layer.parallel = true, layer.norm2 = false;
  return read(root, "logit_scale", spec.logit_scale, 1 / kMostScale, kMostScale);
}
void write_cohere2(const ModelSpec& spec, json& root) {
  root["logit_scale"] = spec.logit_scale;
}
constexpr OwnKeys kCohere2{kCohere2Reads, {}, read_cohere2, write_cohere2};

constexpr const char* kGptNeoxReads[] = {"use_parallel_residual"};
Status read_gpt_neox(const json& root, ModelSpec& spec) {
  bool parallel = true;
  SLUICE_TRY(read(root, "use_parallel_residual", parallel));
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    const Attention& a = layer.attention;
    if (a.kv_heads == a.heads) continue;
    return error(
        "model config: num_key_value_heads is {}; gpt_neox models have as many as num_attention_heads, {}",
        a.kv_heads, a.heads);
  }
  return {};
}
void write_gpt_neox(const ModelSpec& spec, json& root) {
  root["use_parallel_residual"] = spec.layers.front().parallel;
}
constexpr OwnKeys kGptNeox{kGptNeoxReads, {}, read_gpt_neox, write_gpt_neox};

constexpr Renamed kGpt2Renamed[] = {{"n_embd", "hidden_size"},
                                    {"n_layer", "num_hidden_layers"},
                                    {"n_head", "num_attention_heads"},
                                    {"n_inner", "intermediate_size", false},
                                    {"n_positions", "max_position_embeddings"}};
// What says nothing of the arithmetic here.
constexpr const char* kGpt2Reads[] = {"n_ctx",
                                      "reorder_and_upcast_attn",
                                      "summary_activation",
                                      "summary_first_dropout",
                                      "summary_proj_to_labels",
                                      "summary_type",
                                      "summary_use_proj"};
constexpr Neutral kGpt2Neutral[] = {{"resid_pdrop", 0},         {"embd_pdrop", 0},
                                    {"attn_pdrop", 0},          {"scale_attn_weights", 1},
                                    {"add_cross_attention", 0}, {"scale_attn_by_inverse_layer_idx", 0}};
Status read_gpt2(const json& root, ModelSpec& spec) {
  spec.positions = 1024;
  SLUICE_TRY(read(root, "max_position_embeddings", spec.positions));
  for (LayerSpec& layer : spec.layers) {
    if (!says(root, "intermediate_size")) layer.mlp.ffn = 4 * spec.dim;
    layer.attention.rotated = false;
    const Attention& a = layer.attention;
    if (a.kv_heads != a.heads)
      return error("model config: num_key_value_heads is {}; gpt2 models have as many as n_head, {}",
                   a.kv_heads, a.heads);
  }
  return {};
}
void write_gpt2(const ModelSpec& spec, json& root) {
  root["max_position_embeddings"] = spec.positions;
}
constexpr OwnKeys kGpt2{kGpt2Reads, kGpt2Neutral, read_gpt2, write_gpt2};

constexpr Renamed kLfm2Renamed[] = {{"block_ff_dim", "intermediate_size"},
                                    {"tie_embedding", "tie_word_embeddings"}};
// The last are of the first files, which say with them what is said elsewhere, or how weights began.
constexpr const char* kLfm2Reads[] = {"block_auto_adjust_ff_dim",
                                      "block_ffn_dim_multiplier",
                                      "block_multiple_of",
                                      "conv_L_cache",
                                      "full_attn_idxs",
                                      "block_dim",
                                      "block_mlp_init_scale",
                                      "block_norm_eps",
                                      "block_out_init_scale",
                                      "block_use_swiglu",
                                      "block_use_xavier_init",
                                      "conv_dim",
                                      "conv_dim_out",
                                      "conv_use_xavier_init",
                                      "num_heads",
                                      "use_pos_enc"};
constexpr Neutral kLfm2Neutral[] = {{"conv_bias", 0}};
Status read_lfm2(const json& root, ModelSpec& spec) {
  bool adjusts = true;
  double factor = 1;
  int64_t multiple = 256;
  SLUICE_TRY(read(root, "block_auto_adjust_ff_dim", adjusts));
  SLUICE_TRY(read(root, "block_ffn_dim_multiplier", factor, 1 / kMostScale, kMostScale));
  SLUICE_TRY(read(root, "block_multiple_of", multiple, int64_t{1}, kMostWidth));
  const bool multiplies =
      !root.contains("block_ffn_dim_multiplier") || says(root, "block_ffn_dim_multiplier");
  for (LayerSpec& layer : spec.layers) {
    Mlp& mlp = layer.mlp;
    if (mlp.activation != GateActivation::Silu)
      return error("model config: hidden_act; lfm2 models have silu only");
    if (!adjusts) continue;
    mlp.ffn = int64_t(2 * double(mlp.ffn) / 3);
    if (multiplies) mlp.ffn = (int64_t(factor * double(mlp.ffn)) + multiple - 1) / multiple * multiple;
  }
  return {};
}
void write_lfm2(const ModelSpec&, json& root) {
  root["block_auto_adjust_ff_dim"] = false;
}
constexpr OwnKeys kLfm2{kLfm2Reads, kLfm2Neutral, read_lfm2, write_lfm2};

// Defaults are those of transformers' configuration classes.
constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .about = {.models = "Llama 1 to 3.2, TinyLlama, SmolLM2 and what else is of that type",
               .keys = "`attention_bias`, `mlp_bias`",
               .fixtures = "llama_tiny llama_tiny_biases llama_tiny_dynamic llama_tiny_gelu llama_tiny_tied",
               .tokenizers = "llama3 mistral-v1 smollm2",
               .chat_templates = 4,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .own = &kLlama,
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 32000,
                  .context = 2048,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .about = {.models = "Mistral 7B, and others of the type, or the text part of `mistral3`",
               .keys = "`sliding_window` in every layer; `null`: none",
               .fixtures = "mistral_tiny mistral_tiny_yarn",
               .tokenizers = "mistral-v1 mistral-tekken",
               .chat_templates = 5,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .windows = Windows::All,
     .defaults = {.dim = 4096,
                  .ffn = 14336,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .vocab = 32000,
                  .context = 131072,
                  .window = 4096,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .about = {.models = "Qwen2, Qwen2.5 (biases of q, k, v)",
               .keys = "`use_sliding_window` with `sliding_window` in layers from `max_window_layers` on, or "
                       "where `layer_types` says so",
               .fixtures = "qwen2_tiny qwen2_tiny_window",
               .tokenizers = "qwen2",
               .chat_templates = 2,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {nullptr, true},
     .windows = Windows::Upper,
     .defaults = {.dim = 4096,
                  .ffn = 22016,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 32,
                  .vocab = 151936,
                  .context = 32768,
                  .window = 4096,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .about = {.models = "Qwen3, dense (norms of heads)",
               .keys = "as in `qwen2`, and `attention_bias`",
               .fixtures = "qwen3_tiny qwen3_tiny_tied qwen3_tiny_window",
               .tokenizers = "qwen2",
               .chat_templates = 2,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Heads,
     .windows = Windows::Upper,
     .defaults = {.dim = 4096,
                  .ffn = 22016,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 32,
                  .head_dim = 128,
                  .vocab = 151936,
                  .context = 32768,
                  .window = 4096,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .about = {.models = "SmolLM3",
               .keys = "`no_rope_layers` or `no_rope_layer_interval`: layers without rotation; "
                       "`use_sliding_window` in these, or by `layer_types`; `attention_bias`, `mlp_bias`",
               .fixtures = "smollm3_tiny",
               .alike = "llama3",
               .chat_templates = 1,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .windows = Windows::Unrotated,
     .unrotated_layers = true,
     .defaults = {.dim = 2048,
                  .ffn = 11008,
                  .layers = 36,
                  .heads = 16,
                  .kv_heads = 4,
                  .vocab = 128256,
                  .context = 32768,
                  .tied = true,
                  .norm_eps = 1e-6,
                  .theta = 2000000,
                  .pad_token = 128004}},
    {.model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .about = {.models = "OLMo 2 (norms behind attention and MLP; of q and k, all heads together)",
               .keys = "`attention_bias`",
               .fixtures = "olmo2_tiny",
               .alike = "cl100k",
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Whole,
     .norms = Norms::After,
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 50304,
                  .context = 2048,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .pad_token = 1}},
    {.model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .about = {.models = "OLMo 3 (norms as in OLMo 2)",
               .keys = "`sliding_window` in all layers but each fourth, or where `layer_types` says so; "
                       "their rotation; `attention_bias`",
               .fixtures = "olmo3_tiny",
               .alike = "cl100k",
               .llama_cpp = LlamaCpp::HeedsWindows},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Whole,
     .windows = Windows::Pattern,
     .norms = Norms::After,
     .window_rope = {.has = true},
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 50304,
                  .context = 2048,
                  .window = 4096,
                  .norm_eps = 1e-5,
                  .theta = 500000,
                  .pad_token = 1,
                  .window_pattern = 4}},
    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .about = {.models = "Granite 3 and 4.1, dense",
               .keys = "`embedding_multiplier`, `residual_multiplier`, `attention_multiplier`, "
                       "`logits_scaling`; `attention_bias`, `mlp_bias`",
               .fixtures = "granite_tiny",
               .alike = "starcoder2 cl100k",
               .chat_templates = 3,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .own = &kGranite,
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 32000,
                  .context = 2048,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .about = {.models = "Gemma 1 (norms with 1 + w, embeddings times the root of the width)",
               .keys = "`attention_bias`; `hidden_act` `gelu` means its approximation by tanh",
               .fixtures = "gemma_tiny",
               .alike = "gemma gemma3",
               .chat_templates = 1,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .norm_offset = 1,
     .gelu_is_tanh = true,
     .own = &kGemma,
     .defaults = {.dim = 3072,
                  .ffn = 24576,
                  .layers = 28,
                  .heads = 16,
                  .kv_heads = 16,
                  .head_dim = 256,
                  .vocab = 256000,
                  .context = 8192,
                  .tied = true,
                  .norm_eps = 1e-6,
                  .theta = 10000,
                  .activation = GateActivation::GeluTanh}},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .about = {.models = "Gemma 2 (norms before and behind attention and MLP)",
               .keys = "`attn_logit_softcapping` and `final_logit_softcapping`, `null`: none; "
                       "`sliding_window` in every other layer, or where `layer_types` says so; "
                       "`query_pre_attn_scalar`, `hidden_activation`, `attention_bias`",
               .fixtures = "gemma2_tiny",
               .alike = "gemma gemma3",
               .chat_templates = 1,
               .llama_cpp = LlamaCpp::HeedsWindows},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .windows = Windows::Pattern,
     .norms = Norms::Around,
     .norm_offset = 1,
     .activation_key = "hidden_activation",
     .own = &kGemma2,
     .defaults = {.dim = 2304,
                  .ffn = 9216,
                  .layers = 26,
                  .heads = 8,
                  .kv_heads = 4,
                  .head_dim = 256,
                  .vocab = 256000,
                  .context = 8192,
                  .window = 4096,
                  .tied = true,
                  .norm_eps = 1e-6,
                  .theta = 10000,
                  .window_pattern = 2,
                  .activation = GateActivation::GeluTanh}},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .about = {.models = "Gemma 3, text, or the text part of `gemma3` (norms before and behind attention and "
                         "MLP, of heads)",
               .keys = "`sliding_window` in all layers but each `sliding_window_pattern`-th, or where "
                       "`layer_types` says so; their rotation, `rope_local_base_freq` or by "
                       "`rope_parameters`; `query_pre_attn_scalar`, `hidden_activation`, `attention_bias`",
               .fixtures = "gemma3_tiny",
               .tokenizers = "gemma3",
               .chat_templates = 1,
               .llama_cpp = LlamaCpp::HeedsWindows},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Heads,
     .windows = Windows::Pattern,
     .norms = Norms::Around,
     .norm_offset = 1,
     .window_rope = {.has = true, .key = "rope_local_base_freq", .theta = 10000},
     .activation_key = "hidden_activation",
     .own = &kGemma3,
     .defaults = {.dim = 2304,
                  .ffn = 9216,
                  .layers = 26,
                  .heads = 8,
                  .kv_heads = 4,
                  .head_dim = 256,
                  .vocab = 262208,
                  .context = 131072,
                  .window = 4096,
                  .tied = true,
                  .norm_eps = 1e-6,
                  .theta = 1000000,
                  .window_pattern = 6,
                  .activation = GateActivation::GeluTanh}},
    {.model_type = "olmo",
     .architecture = "OlmoForCausalLM",
     .about = {.models = "OLMo 1 (LayerNorm without weights); `clip_qkv` must be `null`",
               .keys = "`attention_bias`",
               .fixtures = "olmo_tiny",
               .alike = "gpt-neox",
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .norm_eps_key = nullptr,
     .norm = {.centred = true, .weight = false},
     .defaults = {.dim = 4096,
                  .ffn = 11008,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 50304,
                  .context = 2048,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .pad_token = 1}},
    {.model_type = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .about = {.models = "StarCoder2 (LayerNorm, an MLP without gates)",
               .keys = "`use_bias`, `norm_epsilon`; `sliding_window` in every layer; `null`: none",
               .fixtures = "starcoder2_tiny",
               .tokenizers = "starcoder2",
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"use_bias", true},
     .o_bias = {"use_bias", true},
     .mlp_bias = {"use_bias", true},
     .windows = Windows::All,
     .norm_eps_key = "norm_epsilon",
     .norm = {.centred = true, .bias = true},
     .names = {.up = "mlp.c_fc", .down = "mlp.c_proj"},
     .gated = false,
     .own = &kStarcoder2,
     .defaults = {.dim = 3072,
                  .ffn = 12288,
                  .layers = 30,
                  .heads = 24,
                  .kv_heads = 2,
                  .vocab = 49152,
                  .context = 4096,
                  .tied = true,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .activation = GateActivation::GeluTanh}},
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .about = {.models = "Phi-3, Phi-3.5 and Phi-4, text; q, k and v are one tensor, gate and up another",
               .keys = "`sliding_window` in every layer; `null`: none; `partial_rotary_factor`",
               .fixtures = "phi3_tiny phi3_tiny_long phi3_tiny_partial phi3_tiny_partial_long",
               .tokenizers = "phi3",
               .alike = "cl100k",
               .chat_templates = 4,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .windows = Windows::All,
     .partial = {"partial_rotary_factor"},
     .names = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"},
     .own_code_too = true,
     .own = &kPhi3,
     .defaults = {.dim = 3072,
                  .ffn = 8192,
                  .layers = 32,
                  .heads = 32,
                  .vocab = 32064,
                  .context = 4096,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .pad_token = 32000,
                  .original_context = 4096}},
    {.model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .about =
         {.models =
              "GLM-4 0414, text (norms before and behind attention and MLP; gate and up are one tensor)",
          .keys = "`partial_rotary_factor`, of neighbours in a head; `attention_bias`",
          .fixtures = "glm4_tiny glm4_tiny_plain glm4_tiny_yarn",
          .alike = "cl100k",
          .chat_templates = 1,
          .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias", true},
     .norms = Norms::Around,
     .partial = {"partial_rotary_factor", 0.5},
     .rotates_neighbours = true,
     .names = {.gate_up = "mlp.gate_up_proj",
               .norm1_after = "post_self_attn_layernorm",
               .norm2 = "post_attention_layernorm",
               .norm2_after = "post_mlp_layernorm"},
     .defaults = {.dim = 4096,
                  .ffn = 13696,
                  .layers = 40,
                  .heads = 32,
                  .kv_heads = 2,
                  .head_dim = 128,
                  .vocab = 151552,
                  .context = 131072,
                  .norm_eps = 1.5625e-7,
                  .theta = 10000,
                  .pad_token = 151329}},
    {.model_type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .about = {.models = "Command R7B and A (LayerNorm without biases; attention and MLP beside each other, "
                         "with one norm)",
               .keys = "`sliding_window` in all layers but each `sliding_window_pattern`-th, or where "
                       "`layer_types` says so; these layers alone are rotated, neighbours in a head; "
                       "`logit_scale`, `attention_bias`",
               .fixtures = "cohere2_tiny cohere2_tiny_biases",
               .alike = "command-r",
               .chat_templates = 2,
               .llama_cpp = LlamaCpp::HeedsWindows},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .windows = Windows::Pattern,
     .windows_alone_rotate = true,
     .rotates_neighbours = true,
     .norm_eps_key = "layer_norm_eps",
     .norm = {.centred = true},
     .head_dim_follows = true,
     .own = &kCohere2,
     .defaults = {.dim = 8192,
                  .ffn = 22528,
                  .layers = 40,
                  .heads = 64,
                  .vocab = 256000,
                  .context = 8192,
                  .window = 4096,
                  .tied = true,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .pad_token = 0,
                  .window_pattern = 4}},
    {.model_type = "gpt_neox",
     .architecture = "GPTNeoXForCausalLM",
     .about =
         {.models = "Pythia, GPT-NeoX (LayerNorm, an MLP without gates; q, k and v are one tensor, by heads)",
          .keys = "`rotary_pct` or `partial_rotary_factor` in `rope_parameters`, `rotary_emb_base`, "
                  "`use_parallel_residual`, `attention_bias`",
          .fixtures = "gpt_neox_tiny gpt_neox_tiny_serial",
          .tokenizers = "gpt-neox",
          .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {"attention_bias", true},
     .o_bias = {"attention_bias", true},
     .mlp_bias = {nullptr, true},
     .partial = {"rotary_pct", 0.25},
     .theta_key = "rotary_emb_base",
     .norm_eps_key = "layer_norm_eps",
     .norm = {.centred = true, .bias = true},
     .names = {.embedding = "gpt_neox.embed_in",
               .layers = "gpt_neox.layers",
               .norm = "gpt_neox.final_layer_norm",
               .head = "embed_out",
               .o = "attention.dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h",
               .qkv = "attention.query_key_value",
               .qkv_by_heads = true},
     .gated = false,
     .head_dim_follows = true,
     .own = &kGptNeox,
     .defaults = {.dim = 6144,
                  .ffn = 24576,
                  .layers = 44,
                  .heads = 64,
                  .vocab = 50432,
                  .context = 2048,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .activation = GateActivation::Gelu}},
    {.model_type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .about = {.models = "Ministral 3, text, or the text part of `mistral3`",
               .keys = "`llama_4_scaling_beta` beside `yarn`: queries are multiplied by 1 + it times ln(1 + "
                       "floor(position / `original_max_position_embeddings`)); `sliding_window` in every "
                       "layer; `null`: none",
               .fixtures = "ministral3_tiny",
               .tokenizers = "mistral-tekken",
               .chat_templates = 1,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .windows = Windows::All,
     .tempered = true,
     .defaults = {.dim = 4096,
                  .ffn = 14336,
                  .layers = 34,
                  .heads = 32,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .vocab = 131072,
                  .context = 262144,
                  .norm_eps = 1e-5,
                  .theta = 1000000,
                  .pad_token = 11}},
    {.model_type = "lfm2",
     .architecture = "Lfm2ForCausalLM",
     .about = {.models = "LFM2 and LFM2.5, dense (gated short convolutions in place of attention in most "
                         "layers, norms of heads)",
               .keys =
                   "`layer_types` or `full_attn_idxs`, `conv_L_cache`: 2 to 8; `block_auto_adjust_ff_dim`, "
                   "`block_multiple_of`, `block_ffn_dim_multiplier`, `norm_eps`; `conv_bias` must be false",
               .fixtures = "lfm2_tiny",
               .alike = "llama3",
               .chat_templates = 5,
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qk_norm = QkNorm::Heads,
     .norm_eps_key = "norm_eps",
     .names = {.norm = "model.embedding_norm",
               .o = "self_attn.out_proj",
               .q_norm = "self_attn.q_layernorm",
               .k_norm = "self_attn.k_layernorm",
               .gate = "feed_forward.w1",
               .up = "feed_forward.w3",
               .down = "feed_forward.w2",
               .norm1 = "operator_norm",
               .norm2 = "ffn_norm"},
     .convolves = true,
     .renamed = kLfm2Renamed,
     .own = &kLfm2,
     .defaults = {.dim = 2560,
                  .ffn = 12288,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .vocab = 65536,
                  .context = 128000,
                  .tied = true,
                  .norm_eps = 1e-5,
                  .theta = 1000000,
                  .pad_token = 0}},
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .about = {.models = "GPT-2 (LayerNorm, an MLP without gates; positions are a table that is learnt)",
               .keys = "`n_embd`, `n_layer`, `n_head`, `n_inner` (`null`: four times the width), "
                       "`n_positions`: no sequence is longer; `layer_norm_epsilon`, `activation_function`. "
                       "Matrices of layers are kept as the folder has them, with a row for each input",
               .fixtures = "gpt2_tiny",
               .tokenizers = "gpt2",
               .llama_cpp = LlamaCpp::PassesWindowsOver},
     .qkv_bias = {nullptr, true},
     .o_bias = {nullptr, true},
     .mlp_bias = {nullptr, true},
     .activation_key = "activation_function",
     .norm_eps_key = "layer_norm_epsilon",
     .norm = {.centred = true, .bias = true},
     .names = {.embedding = "transformer.wte",
               .layers = "transformer.h",
               .norm = "transformer.ln_f",
               .o = "attn.c_proj",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj",
               .qkv = "attn.c_attn",
               .positions = "transformer.wpe",
               .transposed = true,
               .norm1 = "ln_1",
               .norm2 = "ln_2"},
     .gated = false,
     .head_dim_follows = true,
     .learns_positions = true,
     .renamed = kGpt2Renamed,
     .own = &kGpt2,
     .defaults = {.dim = 768,
                  .ffn = 3072,
                  .layers = 12,
                  .heads = 12,
                  .vocab = 50257,
                  .context = 1024,
                  .tied = true,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .activation = GateActivation::GeluTanh}},
};

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

std::vector<FamilyFacts> family_facts() {
  std::vector<FamilyFacts> out;
  for (const Family& f : kFamilies) out.push_back({f.model_type, f.about});
  return out;
}

std::string family_names() {
  return fmt::format("{}", fmt::join(model_families(), ", "));
}

}  // namespace sluice::core
