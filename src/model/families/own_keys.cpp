// SPDX-License-Identifier: Apache-2.0
// Keys that one family alone has.
#include "model/families/own_keys.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families/keys.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr double kMostScale = 1e6;

// Llama's class alone reads this key; others carry it without effect.
constexpr Neutral kLlamaNeutral[] = {{"pretraining_tp", 1}};

constexpr const char* kStarcoder2Reads[] = {"mlp_type", "norm_type"};
constexpr Neutral kStarcoder2Neutral[] = {{"residual_dropout", 0}, {"embedding_dropout", 0}};
// Values that transformers' class has whatever the keys say.
Status read_starcoder2(const json& root, ModelSpec& /*spec*/) {
  for (const auto& [key, only] : {std::pair{"mlp_type", "default"}, {"norm_type", "layer_norm"}}) {
    std::string value = only;
    SLUICE_TRY(read(root, key, value));
    if (value != only)
      return error("model config: {} is '{}'; starcoder2 models have {} only", key, value, only);
  }
  return {};
}

constexpr Neutral kPhi3Neutral[] = {{"resid_pdrop", 0}, {"embd_pdrop", 0}};

Status read_granite(const json& root, ModelSpec& spec) {
  double scores = 1, divisor = 1;
  const std::pair<const char*, double*> keys[] = {{"embedding_multiplier", &spec.embedding_scale},
                                                  {"residual_multiplier", &spec.residual_scale},
                                                  {"attention_multiplier", &scores},
                                                  {"logits_scaling", &divisor}};
  for (const auto& [key, value] : keys) SLUICE_TRY(read(root, key, *value, 1 / kMostScale, kMostScale));
  spec.logit_scale = 1 / divisor;
  for (LayerSpec& layer : spec.layers) layer.attention()->scale = scores;
  return {};
}
void write_granite(const ModelSpec& spec, json& root) {
  root["embedding_multiplier"] = spec.embedding_scale;
  root["residual_multiplier"] = spec.residual_scale;
  root["attention_multiplier"] = spec.attention().scale;
  root["logits_scaling"] = 1 / spec.logit_scale;
}
constexpr const char* kGraniteReads[] = {"embedding_multiplier", "residual_multiplier",
                                         "attention_multiplier", "logits_scaling"};

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

Status read_gemma3(const json& root, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(double(spec.dim));
  double scalar = 256;
  SLUICE_TRY(read(root, "query_pre_attn_scalar", scalar, 1.0, kMostScale));
  if (scalar != std::round(scalar))
    return error("model config: query_pre_attn_scalar is {}; transformers takes whole numbers only", scalar);
  for (LayerSpec& layer : spec.layers) layer.attention()->scale = 1 / std::sqrt(scalar);
  return {};
}
void write_gemma3(const ModelSpec& spec, json& root) {
  const double scale = spec.attention().scale;
  root["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
}
// hidden_act stands beside hidden_activation, and transformers passes it over.
constexpr const char* kGemma3Reads[] = {"query_pre_attn_scalar", "hidden_act"};

Status read_gemma2(const json& root, ModelSpec& spec) {
  SLUICE_TRY(read_gemma3(root, spec));
  double scores = 50;
  spec.logit_softcap = 30;
  SLUICE_TRY(read_softcap(root, "attn_logit_softcapping", scores));
  SLUICE_TRY(read_softcap(root, "final_logit_softcapping", spec.logit_softcap));
  for (LayerSpec& layer : spec.layers) layer.attention()->softcap = scores;
  return {};
}
void write_gemma2(const ModelSpec& spec, json& root) {
  write_gemma3(spec, root);
  const std::pair<const char*, double> caps[] = {{"attn_logit_softcapping", spec.attention().softcap},
                                                 {"final_logit_softcapping", spec.logit_softcap}};
  for (const auto& [key, cap] : caps) root[key] = cap == 0 ? json(nullptr) : json(cap);
}
constexpr const char* kGemma2Reads[] = {"query_pre_attn_scalar", "hidden_act", "attn_logit_softcapping",
                                        "final_logit_softcapping"};

constexpr const char* kCohere2Reads[] = {"logit_scale"};
Status read_cohere2(const json& root, ModelSpec& spec) {
  spec.logit_scale = 0.0625;
  for (LayerSpec& layer : spec.layers) layer.parallel = true, layer.norm2 = false;
  return read(root, "logit_scale", spec.logit_scale, 1 / kMostScale, kMostScale);
}
void write_cohere2(const ModelSpec& spec, json& root) {
  root["logit_scale"] = spec.logit_scale;
}

constexpr const char* kGptNeoxReads[] = {"use_parallel_residual"};
Status read_gpt_neox(const json& root, ModelSpec& spec) {
  bool parallel = true;
  SLUICE_TRY(read(root, "use_parallel_residual", parallel));
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    const Attention& a = *layer.attention();
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

// Keys without effect on the arithmetic.
constexpr const char* kGpt2Reads[] = {"n_ctx",
                                      "reorder_and_upcast_attn",
                                      "summary_activation",
                                      "summary_first_dropout",
                                      "summary_proj_to_labels",
                                      "summary_type",
                                      "summary_use_proj"};
constexpr Neutral kGpt2Neutral[] = {{"resid_pdrop", 0},
                                    {"embd_pdrop", 0},
                                    {"attn_pdrop", 0},
                                    {"scale_attn_weights", 1},
                                    {"scale_attn_by_inverse_layer_idx", 0}};
Status read_gpt2(const json& root, ModelSpec& spec) {
  spec.positions = 1024;
  SLUICE_TRY(read(root, "max_position_embeddings", spec.positions));
  for (LayerSpec& layer : spec.layers) {
    if (!says(root, "intermediate_size")) layer.mlp().ffn = 4 * spec.dim;
    layer.attention()->rotated = false;
    const Attention& a = *layer.attention();
    if (a.kv_heads != a.heads)
      return error("model config: num_key_value_heads is {}; gpt2 models have as many as n_head, {}",
                   a.kv_heads, a.heads);
  }
  return {};
}
void write_gpt2(const ModelSpec& spec, json& root) {
  root["max_position_embeddings"] = spec.positions;
}

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
  SLUICE_TRY(check_silu(root, spec));
  for (LayerSpec& layer : spec.layers) {
    Mlp& mlp = layer.mlp();
    if (!adjusts) continue;
    mlp.ffn = int64_t(2 * double(mlp.ffn) / 3);
    if (multiplies) mlp.ffn = (int64_t(factor * double(mlp.ffn)) + multiple - 1) / multiple * multiple;
  }
  return {};
}
void write_lfm2(const ModelSpec&, json& root) {
  root["block_auto_adjust_ff_dim"] = false;
}

}  // namespace

Status read_softcap(const json& root, const char* key, double& cap) {
  if (!root.contains(key) || !root[key].is_null()) return read(root, key, cap, 1 / kMostScale, kMostScale);
  cap = 0;
  return {};
}

Status check_silu(const json& root, const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mlp().activation == GateActivation::Silu) continue;
    std::string said;
    SLUICE_TRY(read(root, "hidden_act", said));
    return error("model config: hidden_act is '{}'; {} models have silu only", said, spec.family);
  }
  return {};
}

Status read_delta_keys(const json& root, ModelSpec& spec) {
  for (const auto& [key, only] : {std::pair{"output_gate_type", "swish"}, {"mamba_ssm_dtype", "float32"}}) {
    std::string value = only;
    SLUICE_TRY(read(root, key, value));
    if (value != only)
      return error("model config: {} is '{}'; {} models have {} only", key, value, spec.family, only);
  }
  for (LayerSpec& layer : spec.layers) layer.attention()->gated = true;
  return check_silu(root, spec);
}

const OwnKeys kQwen35OwnKeys{kDeltaReads, kDeltaNeutral, read_delta_keys, nullptr};
const OwnKeys kLlamaOwnKeys{{}, kLlamaNeutral, nullptr, nullptr};
const OwnKeys kStarcoder2OwnKeys{kStarcoder2Reads, kStarcoder2Neutral, read_starcoder2, nullptr};
const OwnKeys kPhi3OwnKeys{{}, kPhi3Neutral, nullptr, nullptr};
const OwnKeys kGraniteOwnKeys{kGraniteReads, {}, read_granite, write_granite};
const OwnKeys kGemmaOwnKeys{kGemmaReads, {}, read_gemma, nullptr};
const OwnKeys kGemma3OwnKeys{kGemma3Reads, {}, read_gemma3, write_gemma3};
const OwnKeys kGemma2OwnKeys{kGemma2Reads, {}, read_gemma2, write_gemma2};
const OwnKeys kCohere2OwnKeys{kCohere2Reads, {}, read_cohere2, write_cohere2};
const OwnKeys kGptNeoxOwnKeys{kGptNeoxReads, {}, read_gpt_neox, write_gpt_neox};
const OwnKeys kGpt2OwnKeys{kGpt2Reads, kGpt2Neutral, read_gpt2, write_gpt2};
const OwnKeys kLfm2OwnKeys{kLfm2Reads, kLfm2Neutral, read_lfm2, write_lfm2};

}  // namespace sluice::core
