// SPDX-License-Identifier: Apache-2.0
// The table of families whose layers have experts.
#include "model/families/own_keys.h"
#include "model/families/rows.h"

namespace sluice::core {
namespace {

constexpr Renamed kLfm2MoeRenamed[] = {{"tie_embedding", "tie_word_embeddings"}};

// Gemma 4's two types, which differ in a few defaults and in what their own keys say.
constexpr Family gemma4(std::string_view type, std::string_view architecture, AboutFamily about,
                        const OwnKeys* own, int64_t context, int64_t window) {
  return {.model_type = type,
          .architecture = architecture,
          .about = about,
          .qkv_bias = {"attention_bias"},
          .o_bias = {"attention_bias"},
          .qk_norm = QkNorm::Heads,
          .windows = Windows::Pattern,
          .norms = Norms::Around,
          .window_rope = {.has = true,
                          .theta = 10000,
                          .otherwise = R"({"sliding_attention": {"rope_theta": 10000.0},
                                           "full_attention": {"rope_type": "proportional",
                                                              "rope_theta": 1000000.0,
                                                              "partial_rotary_factor": 0.25}})"},
          .activation_key = "hidden_activation",
          .names = {.router = "router.proj", .experts = "experts", .experts_in_one = TensorNames::Stacked},
          .own = own,
          .defaults = {.dim = 2304,
                       .ffn = 9216,
                       .layers = 30,
                       .heads = 8,
                       .kv_heads = 4,
                       .head_dim = 256,
                       .vocab = 262144,
                       .context = context,
                       .window = window,
                       .tied = true,
                       .norm_eps = 1e-6,
                       .theta = 1000000,
                       .pad_token = 0,
                       .window_pattern = 6,
                       .activation = GateActivation::GeluTanh}};
}

// Defaults are those of transformers' configuration classes.
constexpr Family kFamiliesWithExperts[] = {
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .about = {.models = "Mixtral 8x7B and 8x22B (experts)",
               .keys = "`num_local_experts`, `num_experts_per_tok`; `router_aux_loss_coef` where "
                       "`output_router_logits` is true; `sliding_window` in every layer; `null`: none"},
     .windows = Windows::All,
     .names = {.router = "block_sparse_moe.gate",
               .experts = "block_sparse_moe.experts",
               .expert_gate = "w1",
               .expert_up = "w3",
               .expert_down = "w2"},
     .own = &kMixtralOwnKeys,
     .defaults = {.dim = 4096,
                  .ffn = 14336,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .vocab = 32000,
                  .context = 131072,
                  .norm_eps = 1e-5,
                  .theta = 1000000}},
    {.model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .about = {.models = "OLMoE (experts; norms of q and k, all heads together)",
               .keys = "`num_experts`, `num_experts_per_tok`, `norm_topk_prob`; `router_aux_loss_coef` where "
                       "`output_router_logits` is true; `attention_bias`"},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Whole,
     .own = &kOlmoeOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 2048,
                  .layers = 16,
                  .heads = 16,
                  .vocab = 50304,
                  .context = 4096,
                  .norm_eps = 1e-5,
                  .theta = 10000,
                  .pad_token = 1}},
    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .about = {.models =
                   "Qwen1.5-MoE and Qwen2, with experts, one of them for every token (biases of q, k, v)",
               .keys = "`num_experts`, `num_experts_per_tok`, `moe_intermediate_size`, `norm_topk_prob`, "
                       "`shared_expert_intermediate_size`; `decoder_sparse_step`, `mlp_only_layers`: layers "
                       "without experts; `router_aux_loss_coef` where `output_router_logits` is true; "
                       "`qkv_bias`"},
     .qkv_bias = {"qkv_bias", true},
     .windows = Windows::Off,
     .own = &kQwen2MoeOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 5632,
                  .layers = 24,
                  .heads = 16,
                  .kv_heads = 16,
                  .vocab = 151936,
                  .context = 32768,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .about = {.models = "Qwen3 with experts: 30B-A3B, 235B-A22B, Coder (norms of heads)",
               .keys = "as in `qwen2_moe`, but for an expert for every token, and `attention_bias`"},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Heads,
     .windows = Windows::Off,
     .own = &kQwen3MoeOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 6144,
                  .layers = 24,
                  .heads = 32,
                  .kv_heads = 4,
                  .vocab = 151936,
                  .context = 32768,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .about = {.models = "Qwen3.5 and 3.6 with experts: 35B-A3B, text, or the text part of `qwen3_5_moe` "
                         "(one expert for every token)",
               .keys = "as in `qwen3_5_text`; `num_experts`, `num_experts_per_tok`, `moe_intermediate_size`, "
                       "`shared_expert_intermediate_size`; `router_aux_loss_coef` where "
                       "`output_router_logits` is true"},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Heads,
     .norm_offset = 1,
     .partial = {"partial_rotary_factor", 0.25},
     .deltas = true,
     .own = &kQwen35MoeOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 5632,
                  .layers = 40,
                  .heads = 16,
                  .kv_heads = 2,
                  .head_dim = 256,
                  .vocab = 248320,
                  .context = 32768,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    {.model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .about = {.models = "Qwen3-Next 80B-A3B (experts, one of them for every token)",
               .keys =
                   "as in `qwen3_5_moe_text`; `norm_topk_prob`, `decoder_sparse_step`, `mlp_only_layers`"},
     .qkv_bias = {"attention_bias"},
     .o_bias = {"attention_bias"},
     .qk_norm = QkNorm::Heads,
     .norm_offset = 1,
     .partial = {"partial_rotary_factor", 0.25},
     .names = {.delta_by_heads = true},
     .deltas = true,
     .own = &kQwen3NextOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 5632,
                  .layers = 48,
                  .heads = 16,
                  .kv_heads = 2,
                  .head_dim = 256,
                  .vocab = 151936,
                  .context = 32768,
                  .norm_eps = 1e-6,
                  .theta = 10000}},
    gemma4("gemma4_text", "Gemma4ForCausalLM",
           {.models =
                "Gemma 4 E2B, E4B, 26B-A4B and 31B, text, or the text part of `gemma4` (heads of two sizes, "
                "rows of tables for tokens in every layer, experts beside an MLP)",
            .keys = "`layer_types`, `sliding_window`; `global_head_dim`, `num_global_key_value_heads` or "
                    "`per_layer_config`; `rope_parameters`, also `proportional`; `attention_k_eq_v`; "
                    "`num_kv_shared_layers`, `use_double_wide_mlp`; `hidden_size_per_layer_input`; "
                    "`enable_moe_block`, `num_experts`, `top_k_experts`, `moe_intermediate_size`; "
                    "`final_logit_softcapping`, `hidden_activation`, `attention_bias`"},
           &kGemma4OwnKeys, 131072, 512),
    gemma4("gemma4_unified_text", "Gemma4UnifiedForCausalLM",
           {.models = "Gemma 4 12B, text, or the text part of `gemma4_unified`",
            .keys = "as in `gemma4_text`, without tables and experts"},
           &kGemma4UnifiedOwnKeys, 262144, 1024),
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .about =
         {.models = "gpt-oss 20B and 120B (experts with biases, all of a layer in one tensor; sinks)",
          .keys =
              "`num_local_experts`, `num_experts_per_tok`, `swiglu_limit`; `sliding_window` in every other "
              "layer, or where `layer_types` says so; `attention_bias`; `router_aux_loss_coef` where "
              "`output_router_logits` is true; `quantization_config` `mxfp4`: experts are read from MXFP4, "
              "and written as what is computed in"},
     .qkv_bias = {"attention_bias", true},
     .o_bias = {"attention_bias", true},
     .mlp_bias = {nullptr, true},
     .windows = Windows::Pattern,
     .names = {.router = "mlp.router", .experts_in_one = TensorNames::Turned},
     .own = &kGptOssOwnKeys,
     .defaults = {.dim = 2880,
                  .ffn = 2880,
                  .layers = 36,
                  .heads = 64,
                  .kv_heads = 8,
                  .head_dim = 64,
                  .vocab = 201088,
                  .context = 131072,
                  .window = 128,
                  .norm_eps = 1e-5,
                  .theta = 150000,
                  .window_pattern = 2}},
    {.model_type = "lfm2_moe",
     .architecture = "Lfm2MoeForCausalLM",
     .about = {.models =
                   "LFM2 with experts: 8B-A1B (convolutions as in `lfm2`; a bias of choices, not trained)",
               .keys =
                   "`layer_types`, `conv_L_cache` and `norm_eps` as in `lfm2`; `num_experts`, "
                   "`num_experts_per_tok`, `moe_intermediate_size`, `norm_topk_prob`, "
                   "`routed_scaling_factor`; `use_expert_bias`: of choices; `num_dense_layers`: the first "
                   "ones, without experts; `conv_bias` must be false"},
     .qk_norm = QkNorm::Heads,
     .norm_eps_key = "norm_eps",
     .names = kLfm2Names,
     .convolves = true,
     .renamed = kLfm2MoeRenamed,
     .own = &kLfm2MoeOwnKeys,
     .defaults = {.dim = 2048,
                  .ffn = 7168,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .vocab = 65536,
                  .context = 128000,
                  .tied = true,
                  .norm_eps = 1e-5,
                  .theta = 1000000,
                  .pad_token = 0}},
};

}  // namespace

std::span<const Family> families_with_experts() {
  return kFamiliesWithExperts;
}

}  // namespace sluice::core
