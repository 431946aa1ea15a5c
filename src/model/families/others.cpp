// SPDX-License-Identifier: Apache-2.0
// Families that there are not: what of them is missing, and which family is nearest.
#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "model/families/families.h"
#include "model/families/known.h"

namespace sluice::core {
namespace {

// The first row that has a model_type among its own, which spaces part, decides. What makes no text from text
// has no family that is near.
struct Lack {
  std::string_view types, lacks, near;
};
constexpr Lack kLacks[] = {
    {"phi", "bias of the head", "phi3"},
    {"cohere cohere_compass_text", "norms with weights of every head", "cohere2"},
    {"stablelm", "LayerNorm of heads", "gpt_neox"},
    {"llama4_text", "chunked attention", "mixtral"},
    {"llama4", "chunked attention and images", "mixtral"},
    {"gemma3n gemma3n_text", "streams beside each other, and activations of the largest gates alone",
     "gemma4_text"},
    {"gemma4_assistant gemma4_unified_assistant", "attention to another model's keys", "gemma4_text"},
    {"vaultgemma", "norms of Gemma 2 in part", "gemma2"},
    {"minimax bailing_hybrid kimi_linear", "linear attention", "qwen3_next"},
    {"qwen4_exp qwen4_exp_text", "delta rule with decays of every key", "qwen3_5_moe_text"},
    {"olmo_hybrid", "linear attention", "qwen3_5_text"},
    {"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 kimi_k2 kimi_k25 minicpm3 longcat_flash glm4_moe_lite "
     "glm_moe_dsa youtu axk1 axk2 sarvam_mla mistral4 mistral_large4",
     "latent attention", "qwen3_moe"},
    {"nemotron_h granitemoehybrid jamba bamba zamba zamba2 falcon_h1 nemotron_h_omni",
     "layers of state spaces (Mamba)", "lfm2"},
    {"mamba mamba2 falcon_mamba", "state spaces (Mamba) in place of attention", "lfm2"},
    {"rwkv recurrent_gemma xlstm", "recurrence in place of attention", "lfm2"},
    {"glm4_moe dots1 ernie4_5_moe exaone_moe solar_open afmoe minimax_m2 mimo_v2_flash "
     "sarvam_moe bailing_moe",
     "layout of experts, whose router has a bias of choices", "qwen3_moe"},
    {"granitemoe granitemoeshared granitemoe_swa phimoe dbrx jetmoe flex_olmo cohere2_moe hunyuan_v1_moe",
     "router and layout of experts", "mixtral"},
    {"qwen2_vl qwen2_5_vl qwen2_5_omni_thinker qwen2_5_omni", "images, and rotation by three positions",
     "qwen2"},
    {"qwen3_vl qwen3_vl_moe qwen3_omni_moe qwen3_omni_moe_thinker", "images, and rotation by three positions",
     "qwen3"},
    {"llava llava_next llava_next_video llava_onevision video_llava vipllava internvl aya_vision aria "
     "cohere2_vision perception_lm fast_vlm granite4_vision janus molmo2 ovis2 smolvlm idefics idefics2 "
     "idefics3 "
     "paligemma shieldgemma2 lfm2_vl mllama chameleon emu3 fuyu florence2 glm4v glm46v glm4v_moe got_ocr2 "
     "instructblip kosmos-2 blip blip-2 git deepseek_vl deepseek_ocr2 ernie4_5_vl_moe minicpmv",
     "images", "gemma3_text"},
    {"whisper qwen2_audio voxtral voxtral_realtime granite_speech moshi musicgen musicgen_melody "
     "audioflamingo3 "
     "phi4_multimodal csm qwen3_asr",
     "sound", ""},
    {"bert roberta xlm-roberta xlm-roberta-xl camembert electra deberta deberta-v2 distilbert albert "
     "modernbert "
     "ernie longformer mpnet mobilebert esm nomic_bert eurobert megatron-bert rembert roformer big_bird "
     "bert-generation data2vec-text squeezebert funnel fnet layoutlm luke xlm xmod gte jina_embeddings_v3",
     "attention in both directions: it is no decoder", ""},
    {"t5 mt5 umt5 longt5 t5gemma t5gemma2 switch_transformers bart mbart pegasus pegasus_x marian m2m_100 "
     "nllb-moe led blenderbot blenderbot-small prophetnet plbart mvp bigbird_pegasus fsmt trocr "
     "encoder-decoder",
     "encoder: it is no decoder alone", ""},
    {"falcon", "attention and MLP beside each other with keys of groups in one tensor", "gpt_neox"},
    {"gptj codegen", "attention and MLP beside each other with a bias of the head", "gpt_neox"},
    {"gpt_neox_japanese", "biases of its attention", "gpt_neox"},
    {"bloom mpt", "positions as slopes of scores (ALiBi)", "gpt2"},
    {"opt xglm biogpt ctrl openai-gpt gpt-sw3 jais2", "positions and norms of its own", "gpt2"},
    {"gpt_neo", "windows of every other layer, and scores without scale", "gpt2"},
    {"gpt_bigcode", "one head of keys in one tensor with the queries", "starcoder2"},
    {"nemotron arcee persimmon nanochat", "squared ReLU", "llama"},
    {"apertus", "activation xIELU", "llama"},
    {"bitnet", "weights of three values", "llama"},
    {"glm", "norms before attention and MLP alone", "glm4"},
    {"exaone4", "norms behind both halves beside norms of heads", "olmo3"},
    {"exaone internlm3 helium ernie4_5 seed_oss hyperclovax mellum", "layout of tensors and biases", "llama"},
    {"hunyuan_v1_dense", "norms of heads behind the rotation", "qwen3"},
    {"ministral", "windows by layers", "ministral3"},
    {"granite_swa", "windows", "granite"},
    {"diffllama", "differential attention", "llama"},
    {"blt", "patches of bytes", "llama"},
    {"chatglm baichuan internlm internlm2 minicpm orion xverse yi telechat mimo phi-msft qwen",
     "own code, which comes as Python beside the weights", "llama"},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

Error unknown_family(std::string_view type) {
  std::string missing;
  for (const Lack& lack : kLacks) {
    if (!missing.empty() || !has_word(lack.types, type)) continue;
    missing = fmt::format(", and Sluice lacks its {}", lack.lacks);
    if (!lack.near.empty()) missing += fmt::format("; the nearest family is {}", lack.near);
  }
  if (missing.empty()) {
    const std::string near = nearest(type, model_families());
    if (similar(type, near)) missing = fmt::format("; did you mean {}?", near);
  }
  return error(
      "model config: model_type is '{}'{}; allowed are {}. What a model of that size takes says sluice "
      "estimate params=8B, with its number of parameters",
      type, missing, family_names());
}

}  // namespace sluice::core
