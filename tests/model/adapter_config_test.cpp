// SPDX-License-Identifier: Apache-2.0
#include "model/families/adapter_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "model/weights.h"

namespace sluice::core {
namespace {

ModelSpec small_model() {
  return model_of({.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 64});
}

std::string with(const std::string& field) {
  return fmt::format(R"({{"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]{}}})",
                     field.empty() ? "" : ", " + field);
}

TEST(AdapterConfig, ReadsBackWhatItWrites) {
  const Adapters all[] = {
      {.rank = 8, .alpha = 16},
      {.rank = 8, .alpha = 4, .rslora = true, .targets = {"self_attn"}},
      {.rank = 8, .alpha = 16, .targets = {"layers.1", "q_proj"}, .exclude = {"layers.1.mlp.up_proj"}},
      {.rank = 4, .alpha = 4, .ranks = {{"down_proj", 16}}, .alphas = {{"layers.0.mlp.down_proj", 2.5}}},
      {.rank = 4, .alpha = 4, .targets = {"mlp"}, .whole = {"lm_head", "norm"}},
      {.rank = 4, .alpha = 4, .dropout = 0.05},
      {.rank = 4, .alpha = 4, .targets = {"q_proj", "up_proj"}, .dora = true},
      {.rank = 4, .alpha = 4, .tokens = {63, 3, 4}},
      {.rank = 4, .alpha = 4, .tokens = {3}, .head_tokens = {4, 5}},
      {.rank = 4, .alpha = 4, .head_tokens = {4}},
  };
  for (const Adapters& adapters : all) {
    ModelSpec spec = small_model(), read = small_model();
    ASSERT_TRUE(adapt(spec, adapters, "adapter").ok());
    const std::string text = adapter_config(spec, "some/base");
    const auto config = parse_adapter_config(text);
    ASSERT_TRUE(config.ok()) << config.message();
    EXPECT_EQ(config->base, "some/base");
    EXPECT_EQ(config->adapters.dropout, adapters.dropout);
    EXPECT_EQ(config->adapters.tokens, adapters.tokens);
    EXPECT_EQ(config->adapters.head_tokens, adapters.head_tokens);
    ASSERT_TRUE(adapt(read, config->adapters, "adapter").ok()) << text;
    const std::vector<Weight> weights = weights_of(spec), others = weights_of(read);
    ASSERT_EQ(weights.size(), others.size()) << text;
    for (size_t w = 0; w < weights.size(); ++w) {
      EXPECT_EQ(weights[w].object, others[w].object);
      EXPECT_EQ(weights[w].elements(), others[w].elements()) << weights[w].object;
      EXPECT_EQ(weights[w].trainable, others[w].trainable) << weights[w].object;
      if (!weights[w].adds) continue;
      EXPECT_EQ(weights[w].adds->scale, others[w].adds->scale) << weights[w].object;
    }
  }
}

TEST(AdapterConfig, NamesModulesByTheirEndsWhereThatIsEnough) {
  ModelSpec spec = small_model();
  ASSERT_TRUE(adapt(spec, {.rank = 8, .targets = {"layers.1.mlp", "v_proj"}}, "adapter").ok());
  const auto json = nlohmann::json::parse(adapter_config(spec, ""));
  EXPECT_EQ(json["target_modules"].dump(),
            R"(["model.layers.1.mlp.down_proj","model.layers.1.mlp.gate_proj","model.layers.1.mlp.up_proj",)"
            R"("v_proj"])");
}

TEST(AdapterConfig, FollowsAFieldOrRefusesItByName) {
  for (const char* fine :
       {"", R"("use_dora": false)", R"("use_dora": true)", R"("bias": "none")",
        R"("init_lora_weights": "gaussian")", R"("layers_to_transform": null)",
        R"("eva_config": {"rho": 2.0})", R"("loftq_config": {})", R"("peft_version": "0.21.2")",
        R"("megatron_core": "megatron.core")", R"("qalora_group_size": 16)", R"("inference_mode": true)",
        R"("fan_in_fan_out": true)", R"("exclude_modules": ["layers.0"])", R"("a_field_of_later": null)"}) {
    const auto config = parse_adapter_config(with(fine));
    EXPECT_TRUE(config.ok()) << fine << config.message();
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"("use_bdlora": true)", "use_bdlora = true: it is not followed"},
      {R"("bias": "lora_only")", "bias = \"lora_only\": none is allowed"},
      {R"("init_lora_weights": "pissa")", "init_lora_weights = \"pissa\": it changes the base's own weights"},
      {R"("init_lora_weights": "lora_ga")", "init_lora_weights = \"lora_ga\": it changes the base's own"},
      {R"("layers_to_transform": [1])", "layers_to_transform = [1]: it is not followed"},
      {R"("trainable_token_indices": [-3])", "trainable_token_indices = [-3]: lists of ids of tokens"},
      {R"("trainable_token_indices": {"wpe": [3]})", "trainable_token_indices = {\"wpe\":[3]}: rows of the"},
      {R"("task_type": "SEQ_CLS")", "task_type = \"SEQ_CLS\": CAUSAL_LM is allowed"},
      {R"("a_field_of_later": 3)", "a_field_of_later = 3: it is not followed"},
      {R"("exclude_modules": ".*layers.*")", "exclude_modules = \".*layers.*\": a list of names is allowed"},
      {R"("rank_pattern": {"(q|k)_proj": 4})", "rank_pattern = {\"(q|k)_proj\":4}: an object of names"},
      {R"("lora_dropout": 1)", "lora_dropout = 1: numbers from 0 to 0.99 are allowed"},
      {R"("alpha_pattern": {"q_proj": 0})", "alpha_pattern = {\"q_proj\":0}: an object of names"},
  };
  for (const auto& [field, says] : refused) {
    const auto config = parse_adapter_config(with(field));
    ASSERT_FALSE(config.ok()) << field;
    EXPECT_EQ(config.message().substr(0, std::string_view(says).size()), says);
  }
  for (const auto& [number, least] : {std::pair{"\"r\": 2.5", 1},
                                      {"\"r\": 0", 1},
                                      {"\"lora_alpha\": -1", 0},
                                      {"\"lora_alpha\": 1e300", 0}}) {
    const auto config = parse_adapter_config(fmt::format("{{\"peft_type\": \"LORA\", {}}}", number));
    ASSERT_FALSE(config.ok()) << number;
    EXPECT_NE(config.message().find(fmt::format("numbers from {} to 1000000 are allowed", least)),
              std::string::npos)
        << config.message();
  }
  EXPECT_FALSE(parse_adapter_config("[]").ok());
  EXPECT_FALSE(parse_adapter_config(R"({"r": 8})").ok());
  EXPECT_EQ(parse_adapter_config(R"({"peft_type": "IA3"})").message(),
            "peft_type = \"IA3\": LORA alone is followed");
}

}  // namespace
}  // namespace sluice::core
