// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that one family alone has, and what reads and writes them. A row of the table points
// at its own.
#pragma once

#include "model/families/family.h"

namespace sluice::core {

extern const OwnKeys kLlamaOwnKeys, kStarcoder2OwnKeys, kPhi3OwnKeys, kGraniteOwnKeys, kGemmaOwnKeys,
    kGemma3OwnKeys, kGemma2OwnKeys, kCohere2OwnKeys, kGptNeoxOwnKeys, kGpt2OwnKeys, kLfm2OwnKeys,
    kQwen35OwnKeys, kQwen35MoeOwnKeys, kQwen3NextOwnKeys, kMixtralOwnKeys, kOlmoeOwnKeys, kQwen2MoeOwnKeys,
    kQwen3MoeOwnKeys, kLfm2MoeOwnKeys, kGptOssOwnKeys, kGemma4OwnKeys, kGemma4UnifiedOwnKeys;

// Keys of families that have gated delta rules: attention is gated, and other keys say what holds anyway. The
// last ones are of weights that are carried and not trained, and of positions in images.
constexpr const char* kDeltaReads[] = {
    "attn_output_gate",     "full_attention_interval", "linear_conv_kernel_dim",      "linear_key_head_dim",
    "linear_num_key_heads", "linear_num_value_heads",  "linear_value_head_dim",       "mamba_ssm_dtype",
    "output_gate_type",     "mtp_num_hidden_layers",   "mtp_use_dedicated_embeddings"};
constexpr Neutral kDeltaNeutral[] = {{"attn_output_gate", 1}};
// How many experts' gates and up projections, of so many elements each, are one object: a quarter of a GiB in
// bf16 at most, and one expert at least.
int64_t group_of(int64_t experts, int64_t elements);
// A soft cap that is null is none.
Status read_softcap(const nlohmann::json& root, const char* key, double& cap);
Status read_delta_keys(const nlohmann::json& root, ModelSpec& spec);
// For families whose gates have silu alone: the error names another activation that was read.
Status check_silu(const nlohmann::json& root, const ModelSpec& spec);

}  // namespace sluice::core
