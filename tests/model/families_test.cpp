// SPDX-License-Identifier: Apache-2.0
// What a config.json becomes, and which are refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/families/family.h"
#include "model/families/known.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

TEST_F(ModelConfig, HeadsThatDoNotDivide) {
  expect_model_error(with("4", "3", "8"), {"num_attention_heads 4", "num_key_value_heads 3"});
  expect_model_error(with("5", "5", "null"), {"hidden_size 32", "num_attention_heads 5"});
}
TEST_F(ModelConfig, OddHeadSize) {
  expect_model_error(with("4", "2", "7"), {"head_dim is 7", "even"});
}
TEST_F(ModelConfig, SizesThatAreNotPositive) {
  expect_model_error(with("0", "2", "8"), {"num_attention_heads is 0"});
  expect_model_error(with("4", "-2", "8"), {"num_key_value_heads is -2"});
  expect_model_error(with("4", "0", "8"), {"num_key_value_heads is 0"});
  expect_model_error("{}", {"hidden_size is 0"});
}
// What somebody forgot or misspelt is not made up for in silence.
TEST_F(ModelConfig, SizesThatAreLeftOutAreNamed) {
  const auto notices = [](std::string_view json) { return parse_model_config(json)->notices; };
  EXPECT_TRUE(notices(with("4", "2", "8")).empty());
  EXPECT_EQ(notices(R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 97,
                        "num_attention_heads": 4, "intermediate_size": 48})"),
            std::vector<std::string>());
  const std::vector<std::string> expected{
      "config.json leaves sizes out, and takes transformers' defaults for qwen3 models: hidden_size = 4096, "
      "num_key_value_heads = 32, vocab_size = 151936"};
  EXPECT_EQ(notices(R"({"model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 32,
                        "intermediate_size": 48})"),
            expected);
}
TEST_F(ModelConfig, ADefaultThatDoesNotFitIsNamed) {
  expect_model_error(R"({"model_type": "qwen3", "hidden_size": 512, "num_attention_heads": 8})",
                     {"num_attention_heads 8 is not a multiple of num_key_value_heads 32", "leaves sizes out",
                      "num_key_value_heads = 32"});
}
TEST_F(ModelConfig, GatesAreActivatedAsItSays) {
  const auto of = [&](const char* act) {
    std::string config = with("4", "2", "8");
    config.insert(config.rfind('}'), fmt::format(R"(, "hidden_act": "{}")", act));
    return *parse_model_config(config);
  };
  for (const char* act : {"gelu_pytorch_tanh", "gelu_new"}) {
    const ModelSpec spec = of(act);
    EXPECT_EQ(spec.layers.front().mlp().activation, GateActivation::GeluTanh);
    EXPECT_NE(to_text(spec).find("GELU gates"), std::string::npos) << "which kept plans and costs go by";
    EXPECT_EQ(parse_model_config(to_json(spec))->layers, spec.layers);
  }
  EXPECT_EQ(of("swish").layers, of("silu").layers);
}
TEST_F(ModelConfig, EachKindOfLayerIsDescribedOnce) {
  const std::string text = to_text(*model_preset("qwen3.5-4b"));
  EXPECT_EQ(text.find("gated delta rule"), text.rfind("gated delta rule"));
  EXPECT_NE(text.find(", layers 0 to 2, 4 to 6, 8 to 10, "), std::string::npos) << text;
  EXPECT_NE(text.find(", layers 3, 7, 11, 15, 19, 23, 27, 31: 16 query"), std::string::npos) << text;
}
TEST_F(ModelConfig, OtherModelsThanPresets) {
  EXPECT_EQ(other_models("lama3-8b"), "; did you mean llama3-8b?");
  EXPECT_EQ(other_models("tinny"), "; did you mean tiny?");
  EXPECT_EQ(other_models("llama3-90b").find("did you mean"), std::string::npos);
  EXPECT_NE(other_models("Qwen/Qwen3-4B").find("nothing is downloaded"), std::string::npos);
  EXPECT_NE(other_models("params=14B").find("sluice estimate"), std::string::npos);
}
TEST_F(ModelConfig, KeysThatAreOneLetterOff) {
  const std::string sizes = with("4", "2", "8");
  const auto and_also = [&](const std::string& key, const std::string& value) {
    return fmt::format("{{\"{}\": {}, {}", key, value, sizes.substr(1));
  };
  expect_model_error(R"({"model_type": "qwen3", "hidden_sise": 5120})",
                     {"hidden_sise is 5120", "Did you mean hidden_size?"});
  expect_model_error(and_also("rope_tehta", "500000"), {"rope_tehta", "rope_theta"});
  expect_model_error(and_also("rms_norm_epss", "1e-5"), {"rms_norm_epss", "rms_norm_eps"});
  // The key itself is there, so that nothing is lost; and keys of others are theirs.
  EXPECT_TRUE(parse_model_config(and_also("hidden_sizes", "3")).ok());
  EXPECT_TRUE(parse_model_config(and_also("hidden_layout", "3")).ok());
}
// A checkpoint hands these on, and transformers would end there without saying whose they are.
TEST_F(ModelConfig, WhatIsHandedOnCanBeRead) {
  const std::string sizes = with("4", "2", "8");
  const auto and_also = [&](std::string_view more) { return fmt::format("{{{}, {}", more, sizes.substr(1)); };
  const std::string types = "; allowed are float32, bfloat16 and float16";
  expect_model_error(and_also(R"("torch_dtype": "int8")"), {"model config: torch_dtype is 'int8'" + types});
  expect_model_error(and_also(R"("dtype": "float99")"), {"model config: dtype is 'float99'" + types});
  expect_model_error(and_also(R"("torch_dtype": 7)"), {"torch_dtype is 7"});
  const std::string tokens = "; allowed are the number of a token, or a list of some";
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    for (const char* value : {R"("x")", "1.5", "-2", "1e+30", "true", "99999999999"})
      expect_model_error(and_also(fmt::format(R"("{}": {})", key, value)),
                         {fmt::format("model config: {} is {}", key, value), tokens});
    EXPECT_TRUE(parse_model_config(and_also(fmt::format(R"("{}": [1, 2])", key)))->notices.empty());
    EXPECT_TRUE(parse_model_config(and_also(fmt::format(R"("{}": null)", key)))->notices.empty());
  }
  EXPECT_EQ(parse_model_config(and_also(R"("torch_dtype": "float16", "eos_token_id": [2, 97])"))->notices,
            (std::vector<std::string>{
                "config.json: its eos_token_id 97 is no token of the model's 97: no text ends there"}));
}
TEST_F(ModelConfig, WrongTypes) {
  expect_model_error(with("\"four\"", "2", "8"), {"num_attention_heads", "four"});
  expect_model_error("[1, 2", {"not a JSON object"});
  expect_model_error(R"({"hidden_size": 8, "hidden_size": 16})", {"key 'hidden_size' is there twice"});
}
TEST_F(ModelConfig, ArchitecturesThatAreNotLlama) {
  expect_model_error(R"({"model_type": "t5"})", {"'t5'", "llama, mistral, qwen2, qwen3, smollm3"});
  // Of those that people will try it says what is missing.
  expect_model_error(R"({"model_type": "phi"})", {"phi", "bias of the head", "llama"});
  expect_model_error(R"({"model_type": "deepseek_v3"})", {"deepseek_v3", "latent attention"});
  expect_model_error(R"({"model_type": "gemma", "attn_logit_softcapping": 50})",
                     {"attn_logit_softcapping is 50", "without it only"});
  expect_model_error(R"({"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}})",
                     {"modeling_own.Own", "own code"});
  expect_model_error(R"({"model_type": "qwen2", "mlp_bias": true})", {"mlp_bias", "qwen2"});
  expect_model_error(R"({"hidden_act": "relu"})", {"relu", "silu, swish, gelu_pytorch_tanh, gelu_new, gelu"});
  expect_model_error(R"({"rope_scaling": {"rope_type": "longer"}})",
                     {"'longer'", "default, linear, dynamic, llama3, yarn, proportional, su, longrope"});
}
TEST_F(ModelConfig, AMixtureHasExpertsInSomeLayer) {
  for (const char* none : {R"("decoder_sparse_step": 3)", R"("mlp_only_layers": [0, 1])"})
    expect_model_error(fmt::format(R"({{"model_type": "qwen3_moe", "num_hidden_layers": 2, {}}})", none),
                       {"no layer of this qwen3_moe model has experts"});
  expect_model_error(R"({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 5})",
                     {"num_experts_per_tok is 5", "1 to 4"});
}
// Keys that say what holds anyway.
TEST_F(ModelConfig, KeysWithoutEffectAreTaken) {
  std::string config = with("4", "2", "8");
  config.insert(config.rfind('}'), R"(, "is_causal": true, "use_bidirectional_attention": null,
      "add_cross_attention": false, "alibi": false, "pruned_heads": {}, "quantization_config": {})");
  const auto model = parse_model_config(config);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_TRUE(model->notices.empty()) << model->notices.front();
  // Mixtures of Qwen have windows that are off unless use_sliding_window says otherwise.
  for (const char* type : {"qwen2_moe", "qwen3_moe"}) {
    const auto windows = [&](const char* keys) {
      return parse_model_config(
          fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 2, "hidden_size": 64,
                           "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
                           "vocab_size": 97, {}}})",
                      type, keys));
    };
    for (const char* keys :
         {R"("sliding_window": 4096)", R"("sliding_window": 4096, "max_window_layers": 28)",
          R"("use_sliding_window": false, "sliding_window": 32768)", R"("max_window_layers": 21)",
          R"("use_sliding_window": null, "sliding_window": null)"}) {
      const auto taken = windows(keys);
      ASSERT_TRUE(taken.ok()) << taken.message();
      EXPECT_TRUE(taken->notices.empty()) << taken->notices.front();
    }
    EXPECT_FALSE(windows(R"("use_sliding_window": true, "sliding_window": 4096)").ok());
  }
}

// A refusal says what is missing, which family is near, and the way to an estimate.
TEST_F(ModelConfig, FamiliesThatThereAreNot) {
  for (const auto& [type, lacks, near] : {std::tuple{"kimi_linear", "linear attention", "qwen3_next"},
                                          {"qwen4_exp", "decays of every key", "qwen3_5_moe_text"},
                                          {"deepseek_v3", "latent attention", "qwen3_moe"},
                                          {"gemma3n", "streams beside each other", "gemma4_text"},
                                          {"gemma4_assistant", "another model's keys", "gemma4_text"},
                                          {"nemotron_h", "state spaces", "lfm2"},
                                          {"mamba2", "state spaces", "lfm2"},
                                          {"granitemoehybrid", "state spaces", "lfm2"},
                                          {"falcon", "beside each other", "gpt_neox"},
                                          {"glm4_moe", "bias of choices", "qwen3_moe"},
                                          {"minimax_m2", "bias of choices", "qwen3_moe"},
                                          {"qwen2_5_vl", "images", "qwen2"},
                                          {"llama4", "chunked attention", "mixtral"},
                                          {"phi", "bias of the head", "phi3"},
                                          {"bert", "no decoder; allowed are", ""},
                                          {"t5", "no decoder alone; allowed are", ""},
                                          {"opt", "positions", "gpt2"},
                                          {"whisper", "sound; allowed are", ""}})
    expect_model_error(fmt::format(R"({{"model_type": "{}"}})", type),
                       {fmt::format("model_type is '{}', and Sluice lacks its", type), lacks,
                        *near == 0 ? "allowed are" : fmt::format("the nearest family is {};", near),
                        "sluice estimate params="});
  expect_model_error(R"({"model_type": "llamma"})", {"'llamma'; did you mean llama?"});
  expect_model_error(R"({"model_type": "something"})", {"'something'; allowed are llama, "});
  for (const std::string& there : model_families()) EXPECT_TRUE(find_family(there) != nullptr) << there;
}

// The longest text, wherever a family says it.
TEST_F(ModelConfig, PositionsAreThoseOfTheFileAndWhatReachesFurther) {
  const auto of = [&](const std::string& more) {
    std::string config = with("4", "2", "8");
    config.insert(config.rfind('}'), ", " + more);
    return *parse_model_config(config);
  };
  EXPECT_EQ(positions_of(of(R"("rope_theta": 10000)")), 0) << "no file says more";
  EXPECT_EQ(positions_of(of(R"("max_position_embeddings": 300)")), 300);
  EXPECT_EQ(positions_of(*parse_model_config(R"({"model_type": "gpt2", "n_positions": 40})")), 40);
  EXPECT_EQ(positions_of(*parse_model_config(R"({"model_type": "gpt2"})")), 1024);
  EXPECT_EQ(positions_of(of(R"("max_position_embeddings": 300,
                               "rope_scaling": {"rope_type": "dynamic", "factor": 2})")),
            300);
  const auto reach = [&](const char* scaling) {
    return reach_of(of(fmt::format(R"("max_position_embeddings": 300, "rope_scaling": {})", scaling)));
  };
  EXPECT_EQ(reach("null"), 300);
  EXPECT_EQ(reach(R"({"rope_type": "linear", "factor": 2})"), 600);
  EXPECT_EQ(reach(R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 200})"), 800);
  EXPECT_EQ(reach(R"({"rope_type": "dynamic", "factor": 2})"), 0) << "grows with the text";
  const ModelSpec model = of(R"("max_position_embeddings": 300)");
  const auto said = [](const ModelSpec& spec, const TextRows& rows) {
    return fmt::format("{}", fmt::join(notices_of_length(spec, rows, "train.seq_len"), "|"));
  };
  EXPECT_EQ(said(model, {.tokens = 300}), "");
  EXPECT_NE(said(model, {.tokens = 301}).find("train.seq_len = 301: config.json says"), std::string::npos);
  EXPECT_EQ(said(model, {.tokens = 400, .packed = true, .longest = 300}), "");
  // A rotation that goes by the length is that of the row.
  const ModelSpec dynamic =
      of(R"("max_position_embeddings": 300, "rope_scaling": {"rope_type": "dynamic", "factor": 2})");
  EXPECT_EQ(said(dynamic, {.tokens = 301}), "");
  EXPECT_EQ(said(dynamic, {.tokens = 300, .packed = true}), "");
  EXPECT_NE(said(dynamic, {.tokens = 301, .packed = true, .longest = 20}).find("Documents of up to 300 get"),
            std::string::npos);
}

// Each of these keys would have transformers compute something else.
TEST_F(ModelConfig, ArithmeticThatIsNotDone) {
  const auto refused = [&](const std::string& more, std::vector<std::string> says) {
    std::string config = with("4", "2", "8");
    config.insert(config.rfind('}'), ", " + more);
    expect_model_error(config, std::move(says));
  };
  refused(R"("sliding_window": 4096)", {"sliding_window is 4096", "llama models have no such key"});
  refused(R"("use_sliding_window": true)", {"use_sliding_window is true", "llama models have no such key"});
  refused(R"("layer_types": ["full_attention", "sliding_attention"])",
          {"layer_types has sliding_attention", "llama models have no window"});
  refused(R"("layer_types": ["full_attention", "chunked_attention"])", {"chunked_attention", "allowed are"});
  refused(R"("layer_types": ["full_attention"])", {"layer_types is a list of 1", "2 entries"});
  refused(R"("no_rope_layers": [1, 0])", {"no_rope_layers is a list", "llama models have no such key"});
  refused(R"("partial_rotary_factor": 0.5)", {"partial_rotary_factor is 0.5", "1 only"});
  refused(R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})",
          {"partial_rotary_factor"});
  refused(R"("quantization_config": {"bits": 4})", {"quantization_config is there", "weights are codes"});
  const auto codes = [&](const char* config, std::vector<std::string> says) {
    refused(R"("quantization_config": {)" + std::string(config) + "}", std::move(says));
  };
  codes(R"("quant_method": "bitsandbytes", "load_in_8bit": true)", {"bitsandbytes", "load_in_4bit is false"});
  codes(R"("quant_method": "fp8", "weight_block_size": [96, 128])", {"(fp8)", "weight_block_size is"});
  codes(R"("quant_method": "fp8", "fmt": "e5m2")", {"fmt is \"e5m2\"", "read are fp8"});
  codes(R"("quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}})",
        {"(compressed-tensors)", "config_groups.a.weights is"});
  codes(R"("quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8,
        "type": "float", "strategy": "group"}}})",
        {"strategy is \"group\""});
  codes(R"("quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"})",
        {"sparsity_config is"});
  refused(R"("quantization_config": {"quant_method": "gptq"})", {"(gptq)", "that it was made of"});
  refused(R"("is_causal": false)", {"is_causal is false", "true only"});
  refused(R"("use_bidirectional_attention": true)", {"use_bidirectional_attention is true"});
  refused(R"("add_cross_attention": true)", {"add_cross_attention is true"});
  refused(R"("alibi": true)", {"alibi is true"});
  refused(R"("pruned_heads": {"0": [1]})", {"pruned_heads is an object"});
  refused(R"("pretraining_tp": 2)", {"pretraining_tp is 2", "1 only"});
  refused(R"("attention_dropout": 0.1)", {"attention_dropout is 0.1", "0 only"});
  refused(R"("hidden_act": "relu")", {"hidden_act", "silu"});
  refused(R"("rope_scaling": "linear")", {"rope_scaling is \"linear\"", "null and an object"});
  refused(R"("rope_scaling": {"type": "linear"})", {"rope_scaling.factor is missing"});
  refused(R"("rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [16, 24]})",
          {"rope_scaling.mrope_section is a list", "linear"});
  refused(R"("rope_scaling": {"type": "yarn", "factor": 2, "bata_fast": 16})", {"bata_fast is 16", "yarn"});
  refused(R"("rope_scaling": {"type": "linear", "factor": 2},
             "rope_parameters": {"rope_type": "linear", "factor": 4})",
          {"rope_parameters and rope_scaling say different things"});
  refused(R"("rope_theta": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4})",
          {"rope_theta is 5 beside rope_parameters.rope_theta = 10000.0; leave one of them out"});
  refused(R"("rope_scaling": {"factor": 2})", {"rope_scaling.factor is 2 without a rope_type"});
  refused(R"("rope_scaling": {"rope_type": "llama3"})", {"rope_scaling.factor is missing"});
}
TEST_F(ModelConfig, NumbersThatMakeNoSense) {
  const auto refused = [&](const std::string& more, std::vector<std::string> says) {
    nlohmann::json config = nlohmann::json::parse(with("4", "2", "8"));
    config.update(nlohmann::json::parse("{" + more + "}"));
    expect_model_error(config.dump(), std::move(says));
  };
  const auto llama3 = [](const char* factor, const char* low, const char* high, const char* context) {
    return fmt::format(R"("rope_scaling": {{"rope_type": "llama3", "factor": {}, "low_freq_factor": {},
        "high_freq_factor": {}, "original_max_position_embeddings": {}}})",
                       factor, low, high, context);
  };
  refused(R"("rope_theta": 1e308)", {"rope_theta is 1e+308", "allowed are"});
  refused(R"("rope_theta": 1e-300)", {"rope_theta is 1e-300"});
  refused(R"("rope_theta": -1)", {"rope_theta is -1"});
  refused(llama3("0", "1", "4", "8192"), {"factor is 0"});
  refused(llama3("-8", "1", "4", "8192"), {"factor is -8"});
  refused(llama3("8", "4", "4", "8192"), {"low_freq_factor is 4", "below"});
  refused(llama3("8", "1", "4", "-8192"), {"original_max_position_embeddings is -8192"});
  refused(R"("rms_norm_eps": 1e308)", {"rms_norm_eps is 1e+308"});
  refused(R"("rms_norm_eps": 0)", {"rms_norm_eps is 0"});
  refused(R"("rms_norm_eps": 1e-300)", {"rms_norm_eps is 1e-300"});
  refused(R"("vocab_size": 2147483648)", {"vocab_size is 2147483648", "at most"});
  refused(R"("num_hidden_layers": 2000000000)", {"num_hidden_layers is 2000000000", "1 to 4096"});
  refused(R"("hidden_size": 18446744073709551615)", {"hidden_size is 18446744073709551615"});
  refused(R"("intermediate_size": 99999999999)", {"intermediate_size is 99999999999"});
  const std::string lists = std::string(100'000, '[') + std::string(100'000, ']');
  expect_model_error(R"({"hidden_size": 32, "vocab_size": )" + lists + "}", {"vocab_size is a list"});
  expect_model_error(R"({"vocab_size": 97, "vocab_size": )" + lists + "}", {"with 97 and with a list"});
}
// What transformers' classes take where config.json is silent.
TEST_F(ModelConfig, DefaultsAreThoseOfTransformers) {
  struct Expected {
    const char* type;
    int64_t dim, layers, heads, kv_heads, head_dim, ffn, vocab;
    double theta;
    bool tied;
    double norm_eps = 1e-6;
  };
  for (const Expected& e : {Expected{"llama", 4096, 32, 32, 32, 128, 11008, 32000, 1e4, false},
                            {"mistral", 4096, 32, 32, 8, 128, 14336, 32000, 1e4, false},
                            {"qwen2", 4096, 32, 32, 32, 128, 22016, 151936, 1e4, false},
                            {"qwen3", 4096, 32, 32, 32, 128, 22016, 151936, 1e4, false},
                            {"smollm3", 2048, 36, 16, 4, 128, 11008, 128256, 2e6, true},
                            {"olmo2", 4096, 32, 32, 32, 128, 11008, 50304, 1e4, false, 1e-5},
                            {"olmo3", 4096, 32, 32, 32, 128, 11008, 50304, 5e5, false, 1e-5},
                            {"olmo", 4096, 32, 32, 32, 128, 11008, 50304, 1e4, false, 1e-5},
                            {"starcoder2", 3072, 30, 24, 2, 128, 12288, 49152, 1e4, true, 1e-5},
                            {"phi3", 3072, 32, 32, 32, 96, 8192, 32064, 1e4, false, 1e-5},
                            {"granite", 4096, 32, 32, 32, 128, 11008, 32000, 1e4, false},
                            {"gemma", 3072, 28, 16, 16, 256, 24576, 256000, 1e4, true},
                            {"gemma3_text", 2304, 26, 8, 4, 256, 9216, 262208, 1e6, true},
                            {"glm4", 4096, 40, 32, 2, 128, 13696, 151552, 1e4, false, 1.5625e-7},
                            {"cohere2", 8192, 40, 64, 64, 128, 22528, 256000, 1e4, true, 1e-5},
                            {"gpt_neox", 6144, 44, 64, 64, 96, 24576, 50432, 1e4, false, 1e-5},
                            {"gpt2", 768, 12, 12, 12, 64, 3072, 50257, 1e4, true, 1e-5},
                            {"gemma2", 2304, 26, 8, 4, 256, 9216, 256000, 1e4, true},
                            {"ministral3", 4096, 34, 32, 8, 128, 14336, 131072, 1e6, false, 1e-5},
                            {"lfm2", 2560, 32, 32, 8, 80, 8192, 65536, 1e6, true, 1e-5},
                            {"mixtral", 4096, 32, 32, 8, 128, 14336, 32000, 1e6, false, 1e-5},
                            {"olmoe", 2048, 16, 16, 16, 128, 2048, 50304, 1e4, false, 1e-5},
                            {"qwen2_moe", 2048, 24, 16, 16, 128, 1408, 151936, 1e4, false},
                            {"qwen3_moe", 2048, 24, 32, 4, 64, 768, 151936, 1e4, false},
                            {"lfm2_moe", 2048, 32, 32, 8, 64, 7168, 65536, 1e6, true, 1e-5},
                            {"qwen3_5_text", 4096, 32, 16, 4, 256, 12288, 248320, 1e4, false},
                            {"qwen3_5_moe_text", 2048, 40, 16, 2, 256, 512, 248320, 1e4, false},
                            {"qwen3_next", 2048, 48, 16, 2, 256, 512, 151936, 1e4, false},
                            {"gemma4_text", 2304, 30, 8, 4, 256, 9216, 262144, 1e6, true},
                            {"gemma4_unified_text", 2304, 30, 8, 4, 256, 9216, 262144, 1e6, true},
                            {"gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, 1.5e5, false, 1e-5}}) {
    const auto model = parse_model_config(fmt::format(R"({{"model_type": "{}"}})", e.type));
    ASSERT_TRUE(model.ok()) << model.message();
    const LayerSpec& layer = model->layers.front();
    EXPECT_EQ(model->dim, e.dim) << e.type;
    EXPECT_EQ(int64_t(model->layers.size()), e.layers) << e.type;
    EXPECT_EQ(model->attention().heads, e.heads) << e.type;
    EXPECT_EQ(model->attention().kv_heads, e.kv_heads) << e.type;
    EXPECT_EQ(model->attention().head_dim, e.head_dim) << e.type;
    EXPECT_EQ(layer.mlp().ffn, e.ffn) << e.type;
    EXPECT_EQ(model->vocab, e.vocab) << e.type;
    EXPECT_EQ(model->norm_eps, e.norm_eps) << e.type;
    EXPECT_EQ(model->rope.theta, e.theta) << e.type;
    EXPECT_EQ(model->tied_embeddings, e.tied) << e.type;
  }
}

// Windows by layer, 0 where there is none.
std::vector<int64_t> windows_of(const std::string& more, const std::string& type) {
  const auto model = parse_model_config(fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 4{}{}}})",
                                                    type, more.empty() ? "" : ", ", more));
  if (!model.ok()) {
    ADD_FAILURE() << model.message();
    return {};
  }
  // What is written reads back.
  const auto again = parse_model_config(to_json(*model));
  EXPECT_TRUE(again.ok()) << again.message();
  std::vector<int64_t> out;
  for (size_t l = 0; l < 4; ++l) {
    out.push_back(model->layers[l].attention()->window);
    EXPECT_EQ(again->layers[l].attention()->window, out.back()) << more;
    EXPECT_EQ(again->layers[l].attention()->rotated, model->layers[l].attention()->rotated) << more;
  }
  return out;
}
TEST_F(ModelConfig, WindowsAreThoseOfTransformers) {
  using Windows = std::vector<int64_t>;
  const Windows none(4, 0);
  EXPECT_EQ(windows_of("", "mistral"), Windows(4, 4096));
  EXPECT_EQ(windows_of(R"("sliding_window": 100)", "mistral"), Windows(4, 100));
  EXPECT_EQ(windows_of(R"("sliding_window": null)", "mistral"), none);
  EXPECT_EQ(windows_of(R"("sliding_window": null, "use_sliding_window": false)", "mistral"), none);
  for (const char* qwen : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows_of(R"("sliding_window": 100, "max_window_layers": 2)", qwen), none);
    EXPECT_EQ(windows_of(R"("use_sliding_window": true)", qwen), none);  // from layer 28 on
    EXPECT_EQ(windows_of(R"("use_sliding_window": true, "max_window_layers": 2)", qwen),
              (Windows{0, 0, 4096, 4096}));
    EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
        "layer_types": ["sliding_attention", "full_attention", "attention", "sliding_attention"])",
                         qwen),
              (Windows{9, 0, 0, 9}));
  }
  EXPECT_EQ(windows_of("", "smollm3"), none);
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": 9)", "smollm3"),
            (Windows{0, 0, 0, 9}));
  EXPECT_EQ(
      windows_of(R"("use_sliding_window": true, "sliding_window": 9, "no_rope_layers": [0, 1, 1, 0, 1])",
                 "smollm3"),
      (Windows{9, 0, 0, 9}));
  EXPECT_EQ(windows_of(R"("layer_types": null, "use_sliding_window": null)", "llama"), none);

  const auto refused = [&](const char* type, const std::string& more, std::vector<std::string> says) {
    expect_model_error(fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 2, {}}})", type, more),
                       std::move(says));
  };
  refused("mistral", R"("sliding_window": 0)", {"sliding_window is 0", "allowed are 1"});
  refused("mistral", R"("use_sliding_window": false)", {"use_sliding_window is false", "mistral"});
  refused("mistral", R"("layer_types": ["full_attention", "sliding_attention"])", {"in every layer"});
  refused("qwen2", R"("layer_types": ["full_attention", "sliding_attention"])",
          {"use_sliding_window is false"});
}
// With every key that the file has.
TEST_F(ModelConfig, OfRealModels) {
  const auto smollm3 =
      parse_model_config(R"({"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
      "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3", "no_rope_layer_interval": 4,
      "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1,
      1, 0, 1, 1, 1, 0], "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
      "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 5000000.0, "sliding_window": null, "torch_dtype": "bfloat16",
      "transformers_version": "4.54.0", "use_cache": false, "use_sliding_window": false,
      "vocab_size": 128256})");
  ASSERT_TRUE(smollm3.ok()) << smollm3.message();
  EXPECT_TRUE(smollm3->tied_embeddings);
  EXPECT_EQ(to_text(*smollm3).find("window"), std::string::npos);
  EXPECT_EQ(smollm3->rope.theta, 5e6);

  const auto mistral = parse_model_config(R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})");
  ASSERT_TRUE(mistral.ok()) << mistral.message();
  EXPECT_EQ(to_text(*mistral),
            "32 x 4096, 32 query and 8 key-value heads of 128, ffn 14336, window 4096, vocabulary 32000");

  const auto qwen = parse_model_config(R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584,
      "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 32768,
      "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 152064,
      "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}})");
  ASSERT_TRUE(qwen.ok()) << qwen.message();
  EXPECT_EQ(qwen->rope.kind, RopeScaling::Yarn);
  EXPECT_EQ(qwen->rope.factor, 4);
}
TEST_F(ModelConfig, LayersWithoutRotation) {
  const auto rotated = [](const char* more) {
    const auto model =
        parse_model_config(fmt::format(R"({{"model_type": "smollm3", "num_hidden_layers": 4, {}}})", more));
    std::vector<int> out;
    if (!model.ok())
      ADD_FAILURE() << model.message();
    else
      for (const LayerSpec& layer : model->layers) out.push_back(layer.attention()->rotated ? 1 : 0);
    return out;
  };
  EXPECT_EQ(rotated(R"("vocab_size": 9)"), (std::vector{1, 1, 1, 0}));
  EXPECT_EQ(rotated(R"("no_rope_layer_interval": 2)"), (std::vector{1, 0, 1, 0}));
  EXPECT_EQ(rotated(R"("no_rope_layers": [0, 1, 1, 1])"), (std::vector{0, 1, 1, 1}));
  expect_model_error(R"({"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1]})",
                     {"no_rope_layers is a list of 1", "4 entries"});
  expect_model_error(R"({"model_type": "smollm3", "num_hidden_layers": 1, "no_rope_layers": [2]})",
                     {"no_rope_layers has 2"});
}
TEST_F(ModelConfig, MultipliersComeBackFromJson) {
  const auto model = parse_model_config(R"({"model_type": "granite", "embedding_multiplier": 12,
      "residual_multiplier": 0.22, "attention_multiplier": 0.015625, "logits_scaling": 8})");
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->logit_scale, 0.125);
  for (const char* part : {"scores times 0.015625", "embedding times 12", "residuals times 0.22"})
    EXPECT_NE(to_text(*model).find(part), std::string::npos) << to_text(*model) << ": kept plans go by it";
  EXPECT_EQ(to_text(*parse_model_config(to_json(*model))), to_text(*model));
  expect_model_error(R"({"model_type": "granite", "residual_multiplier": 0})", {"residual_multiplier is 0"});
  expect_model_error(R"({"model_type": "gemma", "hidden_activation": "silu"})",
                     {"hidden_activation is 'silu'"});
  EXPECT_TRUE(parse_model_config(R"({"model_type": "gemma", "hidden_act": "gelu"})").ok());
  const auto gemma3 = parse_model_config(R"({"model_type": "gemma3_text", "query_pre_attn_scalar": 168})");
  ASSERT_TRUE(gemma3.ok()) << gemma3.message();
  EXPECT_EQ(nlohmann::json::parse(to_json(*gemma3))["query_pre_attn_scalar"].dump(), "168");
  expect_model_error(R"({"model_type": "gemma3_text", "query_pre_attn_scalar": 168.5})",
                     {"query_pre_attn_scalar is 168.5", "whole numbers"});
  expect_model_error(R"({"model_type": "gemma3_text", "query_pre_attn_scalar": 0.5})",
                     {"query_pre_attn_scalar is 0.5"});
}
// Of every family: what it writes is what it reads.
TEST_F(ModelConfig, DefaultsOfEveryFamilyComeBackFromJson) {
  for (const std::string& type : model_families()) {
    const auto model = parse_model_config(fmt::format(R"({{"model_type": "{}"}})", type));
    ASSERT_TRUE(model.ok()) << model.message();
    const auto again = parse_model_config(to_json(*model));
    ASSERT_TRUE(again.ok()) << type << ": " << again.message();
    EXPECT_EQ(again->layers, model->layers) << type;
    EXPECT_EQ(again->rope, model->rope) << type;
    EXPECT_EQ(to_text(*again), to_text(*model));
  }
}
TEST_F(ModelConfig, SoftCapsAreWhatItSays) {
  const auto of = [](const char* more) {
    return *parse_model_config(fmt::format(R"({{"model_type": "gemma2"{}}})", more));
  };
  const ModelSpec plain = of("");
  EXPECT_EQ(plain.logit_softcap, 30);
  EXPECT_EQ(plain.layers.front().attention()->softcap, 50);
  EXPECT_EQ(plain.layers[0].attention()->window, 4096);
  EXPECT_EQ(plain.layers[1].attention()->window, 0);
  const ModelSpec other = of(R"(, "attn_logit_softcapping": null, "final_logit_softcapping": 7.5)");
  EXPECT_EQ(other.logit_softcap, 7.5);
  EXPECT_EQ(other.layers.front().attention()->softcap, 0);
  const ModelSpec again = *parse_model_config(to_json(other));
  EXPECT_EQ(again.logit_softcap, 7.5);
  EXPECT_EQ(again.layers, other.layers);
  EXPECT_NE(to_text(plain).find("scores capped at 50"), std::string::npos);
  expect_model_error(R"({"model_type": "gemma2", "final_logit_softcapping": -1})",
                     {"final_logit_softcapping"});
}
TEST_F(ModelConfig, QueriesAreTemperedInOneFamily) {
  const auto with_rope = [](const char* type, const char* more) {
    return fmt::format(R"({{"model_type": "{}", "rope_parameters": {{"rope_type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 64{}}}}})",
                       type, more);
  };
  const auto model = parse_model_config(with_rope("ministral3", R"(, "llama_4_scaling_beta": 0.25)"));
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->rope.temperature, 0.25);
  EXPECT_EQ(parse_model_config(to_json(*model))->rope, model->rope);
  expect_model_error(with_rope("ministral3", ""), {"llama_4_scaling_beta is missing"});
  expect_model_error(with_rope("mistral", R"(, "llama_4_scaling_beta": 0.25)"),
                     {"llama_4_scaling_beta is 0.25", "mistral"});
}
TEST_F(ModelConfig, GatedDeltaRulesAreWhereItSays) {
  const auto text = [](const std::string& more) {
    return fmt::format(R"({{"model_type": "qwen3_5_text", "num_hidden_layers": 4{}}})", more);
  };
  const auto delta_layers = [&](const std::string& more) {
    const auto model = parse_model_config(text(more));
    EXPECT_TRUE(model.ok()) << model.message();
    std::string out;
    for (const LayerSpec& layer : model->layers) out += layer.delta() != nullptr ? 'd' : 'a';
    return out;
  };
  EXPECT_EQ(delta_layers(""), "ddda");
  EXPECT_EQ(delta_layers(R"(, "full_attention_interval": 2)"), "dada");
  EXPECT_EQ(delta_layers(R"(, "layer_types": ["full_attention", "linear_attention", "full_attention",
                                              "full_attention"])"),
            "adaa");
  expect_model_error(text(R"(, "layer_types": ["sliding_attention", "a", "b", "c"])"), {"linear_attention"});
  expect_model_error(text(R"(, "linear_num_value_heads": 24)"), {"linear_num_value_heads 24", "16"});
  expect_model_error(text(R"(, "linear_conv_kernel_dim": 9)"), {"linear_conv_kernel_dim is 9", "2 to 8"});
  expect_model_error(text(R"(, "attn_output_gate": false)"), {"attn_output_gate is false", "true only"});
  expect_model_error(text(R"(, "output_gate_type": "sigmoid")"), {"output_gate_type is 'sigmoid'", "swish"});
  expect_model_error(text(R"(, "mamba_ssm_dtype": "bfloat16")"), {"mamba_ssm_dtype", "float32"});
  const auto twice = [&](const char* at_root) {
    return text(fmt::format(R"(, "partial_rotary_factor": {}, "rope_parameters": {{"rope_type": "default",
        "partial_rotary_factor": 0.25, "rope_theta": 10000000}})",
                            at_root));
  };
  ASSERT_TRUE(parse_model_config(twice("0.25")).ok());
  expect_model_error(twice("0.5"),
                     {"partial_rotary_factor is 0.5 beside rope_parameters", "leave one of them out"});
  // Positions in images say nothing of a text's, but how many there are.
  const auto mrope = [&](const std::string& sections) {
    return text(fmt::format(R"(, "rope_parameters": {{"rope_type": "default", "partial_rotary_factor": 0.25,
        "rope_theta": 10000000, "mrope_interleaved": true, "mrope_section": {}}})",
                            sections));
  };
  ASSERT_TRUE(parse_model_config(mrope("[11, 11, 10]")).ok());
  expect_model_error(mrope("[11, 11, 11]"), {"mrope_section sums up to 33", "32"});
  expect_model_error(mrope("[16, 16]"), {"mrope_section is [16,16]"});
  // Of a model that also sees it is the text part.
  const auto whole = parse_model_config(
      R"({"model_type": "qwen3_5_moe", "image_token_id": 1, "video_token_id": 2, "vision_start_token_id": 3,
          "vision_end_token_id": 4, "text_config": {"num_hidden_layers": 4, "mtp_num_hidden_layers": 1}})");
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ(whole->family, "qwen3_5_moe_text");
  EXPECT_EQ(whole->layers[3].experts()->count, 256);
  EXPECT_TRUE(whole->layers[3].attention()->gated);
  expect_model_error(R"({"model_type": "qwen3_5_moe_text", "mlp_only_layers": [1]})", {"mlp_only_layers is"});
}
TEST_F(ModelConfig, HeadsOfTwoSizesAndKeysOfOtherLayers) {
  const auto text = [](const std::string& more) {
    return fmt::format(
        R"({{"model_type": "gemma4_text", "num_hidden_layers": 5, "layer_types":
            ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]{}}})",
        more);
  };
  const auto layers = [&](const std::string& more) {
    const auto model = parse_model_config(text(more));
    EXPECT_TRUE(model.ok()) << model.message();
    std::string out;
    for (const LayerSpec& layer : model->layers) {
      const Attention& a = *layer.attention();
      out += fmt::format("{}x{}{} ", a.kv_heads, a.head_dim,
                         a.keys_of >= 0                   ? fmt::format(" of {}", a.keys_of)
                         : a.values == BehindHeads::Again ? " k=v"
                                                          : "");
    }
    return out;
  };
  EXPECT_EQ(layers(""), "4x256 4x512 4x256 4x256 4x512 ");
  EXPECT_EQ(layers(R"(, "num_kv_shared_layers": 3)"), "4x256 4x512 4x256 of 0 4x256 of 0 4x512 of 1 ");
  // Both forms say the same.
  const std::string global = layers(R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 1,
                                       "global_head_dim": 64)");
  EXPECT_EQ(global, "4x256 1x64 k=v 4x256 4x256 1x64 k=v ");
  EXPECT_EQ(layers(R"(, "attention_k_eq_v": true, "per_layer_config": {
                       "01": {"head_dim": 64, "num_key_value_heads": 1}, "4": {"head_dim": 64, "num_key_value_heads": 1}})"),
            global);
  EXPECT_EQ(layers(R"(, "per_layer_config": {})"), "4x256 4x256 4x256 4x256 4x256 ");
  const auto wide = parse_model_config(text(R"(, "num_kv_shared_layers": 1, "use_double_wide_mlp": true)"));
  ASSERT_TRUE(wide.ok()) << wide.message();
  EXPECT_EQ(wide->layers[3].mlp().ffn, 9216);
  EXPECT_EQ(wide->layers[4].mlp().ffn, 2 * 9216);
  const auto last = parse_model_config(R"({"model_type": "gemma4_unified_text", "num_hidden_layers": 2})");
  ASSERT_TRUE(last.ok()) << last.message();
  EXPECT_EQ(last->layers[1].attention()->window, 0);
  EXPECT_NE(last->notices.back().find("the last layer attends to all"), std::string::npos);
  EXPECT_EQ(last->rope.kind, RopeScaling::Proportional);
  EXPECT_EQ(last->rope.turned, 0.25);
  EXPECT_EQ(last->window_rope->theta, 10000);

  expect_model_error(text(R"(, "num_kv_shared_layers": 4)"), {"num_kv_shared_layers is 4", "full_attention"});
  expect_model_error(text(R"(, "num_kv_shared_layers": 6)"), {"num_kv_shared_layers is 6", "0 to 5"});
  expect_model_error(text(R"(, "per_layer_config": {"5": {}})"), {"per_layer_config has 5"});
  expect_model_error(text(R"(, "per_layer_config": {"1": {"sliding_window": 3}})"),
                     {"per_layer_config.1.sliding_window is 3"});
  expect_model_error(text(R"(, "per_layer_config": {}, "global_head_dim": 512)"), {"global_head_dim is 512"});
  expect_model_error(text(R"(, "per_layer_config": {"1": {"head_dim": 64}})"), {"head_dim is 64", "256"});
  expect_model_error(text(R"(, "use_bidirectional_attention": "all")"), {"'all'", "'vision'"});
  expect_model_error(text(R"(, "vocab_size": 100)"), {"vocab_size_per_layer_input is 262144", "100"});
  expect_model_error(text(R"(, "enable_moe_block": true)"), {"num_experts is missing"});
  expect_model_error(text(R"(, "rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.5}})"),
                     {"sliding_attention.partial_rotary_factor is 0.5", "proportional"});
  expect_model_error(R"({"model_type": "gemma4_unified_text", "hidden_size_per_layer_input": 8})",
                     {"hidden_size_per_layer_input is 8"});
  // Of a model that also sees and hears it is the text part.
  const auto whole = parse_model_config(
      R"({"model_type": "gemma4", "audio_config": {}, "vision_config": {}, "boa_token_id": 1, "eoa_token_index": 2,
          "audio_token_id": 3, "text_config": {"hidden_size_per_layer_input": null}})");
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ(whole->family, "gemma4_text");
  EXPECT_EQ(whole->notices.size(), 2u) << whole->notices.front();
}
TEST_F(ModelConfig, ConvolutionsAreWhereItSays) {
  const auto widths = [](const char* more) {
    const auto model =
        parse_model_config(fmt::format(R"({{"model_type": "lfm2", "num_hidden_layers": 3{}}})", more));
    if (!model.ok()) return std::vector<int64_t>{-1};
    std::vector<int64_t> out;
    for (const LayerSpec& layer : model->layers)
      out.push_back(layer.convolution() != nullptr ? layer.convolution()->width : 0);
    EXPECT_EQ(parse_model_config(to_json(*model))->layers, model->layers);
    return out;
  };
  EXPECT_EQ(widths(""), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(widths(R"(, "full_attn_idxs": [1])"), (std::vector<int64_t>{3, 0, 3}));
  EXPECT_EQ(widths(R"(, "conv_L_cache": 4, "layer_types": ["conv", "conv", "full_attention"])"),
            (std::vector<int64_t>{4, 4, 0}));
  expect_model_error(
      R"({"model_type": "lfm2", "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "conv_L_cache": 9})",
      {"a convolution of 9 tokens", "2 to 8"});
  expect_model_error(
      R"({"model_type": "lfm2", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
      {"layer_types has \"sliding_attention\"", "conv"});
  EXPECT_EQ(widths(R"(, "full_attn_idxs": [])"), (std::vector<int64_t>{3, 3, 3}));
}
TEST_F(ModelConfig, TheFirstLayersOfLfm2MoeHaveNoExperts) {
  const auto config = [](const char* more) {
    return fmt::format(R"({{"model_type": "lfm2_moe", "num_hidden_layers": 3, "intermediate_size": 24,
                            "moe_intermediate_size": 8, "num_experts": 6, "num_experts_per_tok": 2{}}})",
                       more);
  };
  const auto sizes = [&](const char* more) {
    const auto model = parse_model_config(config(more));
    if (!model.ok()) return std::vector<std::pair<int64_t, int64_t>>{};
    std::vector<std::pair<int64_t, int64_t>> out;
    for (const LayerSpec& layer : model->layers)
      out.emplace_back(layer.experts() != nullptr ? layer.experts()->count : 0, layer.mlp().ffn);
    EXPECT_EQ(parse_model_config(to_json(*model))->layers, model->layers);
    return out;
  };
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(sizes(""), (Sizes{{0, 24}, {0, 24}, {6, 8}}));
  EXPECT_EQ(sizes(R"(, "num_dense_layers": 0)"), (Sizes{{6, 8}, {6, 8}, {6, 8}}));
  EXPECT_EQ(sizes(R"(, "num_dense_layers": 7)"), (Sizes{{0, 24}, {0, 24}, {0, 24}}));
  const auto experts = [&](const char* more) {
    const auto model = parse_model_config(config(more));
    EXPECT_EQ(parse_model_config(to_json(*model))->layers, model->layers);
    return *model->layers.back().experts();
  };
  const Experts usual = experts(""),
                other = experts(
                    R"(, "norm_topk_prob": false, "use_expert_bias": false, "routed_scaling_factor": 2.5)");
  EXPECT_EQ(usual.score, RouterScore::Sigmoid);
  EXPECT_TRUE(usual.normalised && usual.selection_bias && usual.scale == 1);
  EXPECT_TRUE(!other.normalised && !other.selection_bias && other.scale == 2.5);
  // Its class of transformers has no loss of routers.
  EXPECT_EQ(parse_model_config(config(R"(, "output_router_logits": true, "router_aux_loss_coef": 0.5)"))
                ->router_balance,
            0);
  expect_model_error(config(R"(, "num_dense_layers": -1)"), {"num_dense_layers is -1"});
  expect_model_error(config(R"(, "hidden_act": "gelu")"),
                     {"hidden_act is 'gelu'; lfm2_moe models have silu only"});
}
// Rows of experts are counted in 32 bits.
TEST_F(ModelConfig, ChunksHaveNoMoreChoicesOfExpertsThanAreCounted) {
  const auto model = parse_model_config(
      R"({"model_type": "lfm2_moe", "num_hidden_layers": 3, "num_experts": 6, "num_experts_per_tok": 3})");
  ASSERT_TRUE(model.ok()) << model.message();
  constexpr int64_t kMost = (int64_t{1} << 31) / 3;
  EXPECT_TRUE(check_pieces(*model, 1024, kMost).ok());
  EXPECT_EQ(check_pieces(*model, 1024, kMost + 1).message(),
            "shape.chunk_tokens = 715827883: 3 experts of each token make more rows than are counted in 32 "
            "bits; at most 715827882 is allowed");
}
TEST_F(ModelConfig, Gpt2CallsSizesByOtherNames) {
  const auto model = parse_model_config(
      R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 2, "n_inner": null, "n_positions": 64})");
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->dim, 32);
  EXPECT_EQ(model->layers.size(), 3u);
  EXPECT_EQ(model->layers.front().mlp().ffn, 128);
  EXPECT_EQ(model->positions, 64);
  EXPECT_FALSE(model->layers.front().attention()->rotated);
  EXPECT_EQ(parse_model_config(to_json(*model))->positions, 64);
  EXPECT_TRUE(check_length(*model, 64, "train.seq_len").ok());
  EXPECT_EQ(check_length(*model, 65, "train.seq_len").message(),
            "train.seq_len = 65: the model has learnt 64 positions; at most as many are allowed");
  expect_model_error(R"({"model_type": "gpt2", "n_embd": 32, "hidden_size": 64})",
                     {"n_embd is 32", "hidden_size"});
  expect_model_error(R"({"model_type": "gpt2", "intermediate_size": 64})",
                     {"intermediate_size is 64", "n_inner"});
  expect_model_error(R"({"model_type": "gpt2", "rope_theta": 1e4})", {"rope_theta", "not rotated"});
}
TEST_F(ModelConfig, WhatStarcoder2CanSayOfItsPartsIsWhatTheyAre) {
  EXPECT_TRUE(parse_model_config(R"({"model_type": "starcoder2", "mlp_type": "default",
      "norm_type": "layer_norm"})")
                  .ok());
  expect_model_error(R"({"model_type": "starcoder2", "mlp_type": "gated"})",
                     {"mlp_type is 'gated'", "default only"});
  expect_model_error(R"({"model_type": "starcoder2", "norm_type": "rms_norm"})",
                     {"norm_type is 'rms_norm'", "layer_norm only"});
  expect_model_error(R"({"model_type": "starcoder2", "norm_epsilon": 0})", {"the norm's epsilon is 0"});
}
TEST_F(ModelConfig, PresetsAreNamedByTheirPointsToo) {
  EXPECT_EQ(preset_meant_by("2.7b"), "2.7B");
  EXPECT_EQ(preset_meant_by("27B"), "");
  EXPECT_EQ(preset_meant_by("Llama3 70B"), "llama3-70b");
}
TEST_F(ModelConfig, PresetsAreValidAndComeBackFromJson) {
  for (const std::string& name : model_presets()) {
    const auto model = model_preset(name);
    ASSERT_TRUE(model.ok()) << model.message();
    const auto again = parse_model_config(to_json(*model));
    ASSERT_TRUE(again.ok()) << again.message();
    EXPECT_EQ(to_json(*again), to_json(*model));
    EXPECT_EQ(again->params(), model->params());
  }
}

// A model that was read keeps what it said; only the type of the weights may be another.
TEST_F(ModelConfig, BesideWeightsIsWhatItWasButForTheirType) {
  const std::string text = R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 96, "vocab_size": 100, "theirs": {"b": 1e-7, "a": [null]})";
  const auto beside = [&](const std::string& more, const char* type) {
    const auto model = parse_model_config(text + more + "}");
    EXPECT_TRUE(model.ok()) << model.message();
    return config_beside_weights(*model, type, 8);
  };
  using nlohmann::json;
  const std::string old = R"(, "torch_dtype": "bfloat16")", fresh = R"(, "dtype": "bfloat16")";
  EXPECT_EQ(beside(old, "bfloat16"), text + old + "}");
  EXPECT_EQ(json::parse(beside(old, "float16")), json::parse(text + R"(, "torch_dtype": "float16"})"));
  EXPECT_EQ(json::parse(beside(fresh, "float32")), json::parse(text + R"(, "dtype": "float32"})"));
  // One that says no type gets it, whatever it is.
  EXPECT_EQ(json::parse(beside("", "float32")), json::parse(text + R"(, "torch_dtype": "float32"})"));
  EXPECT_EQ(json::parse(beside("", "bfloat16")), json::parse(text + old + "}"));
}
TEST_F(ModelConfig, OfAPresetSaysWhatOthersWouldGuess) {
  const auto config = nlohmann::json::parse(config_beside_weights(*model_preset("tiny"), "bfloat16", 512));
  EXPECT_EQ(config["max_position_embeddings"], 512);
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  for (const char* none : {"bos_token_id", "eos_token_id"})
    EXPECT_TRUE(config.contains(none) && config[none].is_null()) << none;
}

}  // namespace
}  // namespace sluice::core
