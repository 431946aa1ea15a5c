// SPDX-License-Identifier: Apache-2.0
// How heads are rotated as a config.json says, and where a checkpoint has their rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families/families.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

// As transformers 4 and 5 write it, and with what follows from other keys.
TEST_F(ModelConfig, RotaryEmbeddings) {
  const auto rope_of = [](const std::string& more) {
    const auto model = parse_model_config(fmt::format(R"({{"model_type": "llama", {}}})", more));
    if (!model.ok()) {
      ADD_FAILURE() << model.message();
      return RopeScaling{};
    }
    const auto again = parse_model_config(to_json(*model));
    EXPECT_TRUE(again.ok() && again->rope == model->rope) << to_json(*model);
    return model->rope;
  };
  EXPECT_EQ(rope_of(R"("rope_theta": 5e5, "rope_scaling": null)"), (RopeScaling{.theta = 5e5}));
  EXPECT_EQ(rope_of(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e5})"),
            (RopeScaling{.theta = 5e5}));
  EXPECT_EQ(rope_of(R"("rope_scaling": {"type": "linear", "factor": 4})"),
            (RopeScaling{.kind = RopeScaling::Linear, .factor = 4}));
  EXPECT_EQ(rope_of(R"("rope_scaling": {"type": "dynamic", "factor": 4}, "max_position_embeddings": 512)"),
            (RopeScaling{.kind = RopeScaling::Dynamic, .factor = 4, .original_context = 512}));
  const RopeScaling yarn = rope_of(R"("rope_scaling": {"type": "yarn", "factor": 4, "finetuned": true})");
  EXPECT_EQ(yarn.original_context, 2048);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1);
  const char* longer =
      R"("max_position_embeddings": 4096, "rope_parameters": {"rope_type": "yarn", "factor": 4,
      "original_max_position_embeddings": 1024, "mscale": 0.5, "mscale_all_dim": 0.25, "beta_fast": 16})";
  const RopeScaling weighed = rope_of(longer);
  EXPECT_EQ(weighed.factor, 4);
  EXPECT_EQ(weighed.beta_fast, 16);
  EXPECT_EQ(weighed.beta_slow, 1);
  EXPECT_DOUBLE_EQ(weighed.attention_factor, (0.05 * std::log(4.0) + 1) / (0.025 * std::log(4.0) + 1));
  expect_model_error(R"({"model_type": "llama", "rope_scaling": {"type": "yarn",
      "original_max_position_embeddings": 512}})",
                     {"rope_scaling.factor is missing", "write \"factor\": 4.0"});
  expect_model_error(
      R"({"model_type": "llama", "max_position_embeddings": 3072, "rope_parameters": {"rope_type": "yarn",
      "original_max_position_embeddings": 2048}})",
      {"rope_parameters.factor is missing", "write \"factor\": 1.5"});
  const RopeScaling said =
      rope_of(R"("rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 0.9})");
  EXPECT_EQ(said.attention_factor, 0.9);
}
// As transformers 4 and 5 write it, of layers with a window and of others.
TEST_F(ModelConfig, RotaryEmbeddingsByLayers) {
  const auto model_of = [](const char* type, const std::string& more) {
    const auto model = parse_model_config(fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 6{}{}}})",
                                                      type, more.empty() ? "" : ", ", more));
    EXPECT_TRUE(model.ok()) << model.message();
    const auto again = parse_model_config(to_json(*model));
    EXPECT_TRUE(again.ok() && again->rope == model->rope && again->window_rope == model->window_rope &&
                again->layers == model->layers)
        << to_json(*model);
    return *model;
  };
  const ModelSpec old = model_of("gemma3_text", R"("rope_theta": 2e6, "rope_local_base_freq": 5000,
      "rope_scaling": {"rope_type": "linear", "factor": 8}, "sliding_window_pattern": 3)");
  EXPECT_EQ(old.rope, (RopeScaling{.kind = RopeScaling::Linear, .theta = 2e6, .factor = 8}));
  EXPECT_EQ(*old.window_rope, (RopeScaling{.theta = 5000}));
  EXPECT_EQ(old.layers[2].attention()->window, 0);
  EXPECT_EQ(old.layers[3].attention()->window, 4096);
  const ModelSpec fresh = model_of("gemma3_text", R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 3e6}, "sliding_attention": null})");
  EXPECT_EQ(fresh.rope, (RopeScaling{.kind = RopeScaling::Linear, .theta = 3e6, .factor = 8}));
  EXPECT_EQ(*fresh.window_rope, (RopeScaling{.theta = 10000}));
  expect_model_error(R"({"model_type": "olmo3", "rope_theta": 10000})",
                     {"rope_theta is 10000 without rope_parameters", "sliding_attention"});
  const ModelSpec olmo3 = model_of("olmo3", R"("rope_theta": 500000)");
  EXPECT_EQ(*olmo3.window_rope, (RopeScaling{.theta = 500000}));
  EXPECT_EQ(olmo3.layers[3].attention()->window, 0);
  // What transformers 5 merges into the objects, or passes over: only as the objects say it themselves.
  const char* objects = R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 3e6},
      "sliding_attention": {"rope_type": "default", "rope_theta": 5000}})";
  const auto beside = [&](const char* type, const std::string& more) {
    return fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 6, {}, {}}})", type, more, objects);
  };
  for (const char* same : {R"("rope_theta": 3000000)", R"("rope_local_base_freq": 5000.0)",
                           R"("rope_scaling": {"type": "linear", "factor": 8.0})",
                           R"("rope_scaling": {"rope_theta": 3e6})", R"("rope_scaling": null)"}) {
    const auto model = parse_model_config(beside("gemma3_text", same));
    ASSERT_TRUE(model.ok()) << model.message();
    EXPECT_EQ(model->rope, fresh.rope) << same;
    EXPECT_EQ(*model->window_rope, (RopeScaling{.theta = 5000})) << same;
  }
  const std::string not_same = ", which does not say the same";
  expect_model_error(beside("gemma3_text", R"("rope_theta": 1e6)"),
                     {"rope_theta is 1000000.0 beside rope_parameters.full_attention" + not_same});
  expect_model_error(beside("gemma3_text", R"("rope_local_base_freq": 10000)"),
                     {"rope_local_base_freq is 10000 beside rope_parameters.sliding_attention" + not_same});
  expect_model_error(beside("gemma3_text", R"("rope_scaling": {"rope_type": "linear", "factor": 4})"),
                     {"rope_scaling is an object beside rope_parameters.full_attention" + not_same});
  expect_model_error(beside("olmo3", R"("rope_scaling": {"rope_type": "dynamic"})"),
                     {"rope_scaling is an object beside rope_parameters.full_attention" + not_same});
  expect_model_error(beside("olmo3", R"("rope_theta": 3e6)"),
                     {"rope_theta is 3000000.0 beside rope_parameters.sliding_attention" + not_same});
  expect_model_error(R"({"model_type": "gemma3_text", "rope_local_base_freq": 5000, "rope_parameters":
      {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}})",
                     {"rope_local_base_freq is 5000 beside rope_parameters.sliding_attention" + not_same});
  for (const char* type : {"gemma3_text", "olmo3"}) {
    const auto flat = [&](const char* object) {
      return fmt::format(R"({{"model_type": "{}", "rope_parameters": {}}})", type, object);
    };
    expect_model_error(flat(R"({"rope_type": "default", "rope_theta": 5e5})"),
                       {"rope_parameters is an object without full_attention and sliding_attention", type});
    EXPECT_TRUE(parse_model_config(flat("null")).ok());
    EXPECT_TRUE(parse_model_config(flat("{}")).ok());
  }
  expect_model_error(R"({"model_type": "olmo3", "rope_theta": 10000, "rope_parameters": {}})",
                     {"rope_theta is 10000 without rope_parameters"});
  expect_model_error(R"({"model_type": "olmo3", "rope_parameters": {"full_attention": {}, "chunked": {}}})",
                     {"rope_parameters.chunked", "full_attention and sliding_attention"});
  expect_model_error(R"({"model_type": "olmo3", "rope_parameters": {"full_attention":
      {"rope_type": "default", "partial_rotary_factor": 0.5}}})",
                     {"partial_rotary_factor is 0.5"});
}
TEST_F(ModelConfig, LongRotationsHaveTwoListsOfFactors) {
  const auto phi = [](const char* more) {
    return parse_model_config(
        fmt::format(R"({{"model_type": "phi3", "num_attention_heads": 768, "num_key_value_heads": 4,
        "max_position_embeddings": 4096, "original_max_position_embeddings": 1024, "rope_scaling": {{{}}}}})",
                    more));
  };
  const auto model = phi(R"("type": "longrope", "short_factor": [1, 2], "long_factor": [4, 8])");
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->rope.factor, 4);
  EXPECT_DOUBLE_EQ(model->rope.attention_factor, std::sqrt(1.2));
  EXPECT_EQ(rope_inv_freq(model->rope, 4, 1024), (std::vector<float>{1, 0.005f}));
  EXPECT_EQ(rope_inv_freq(model->rope, 4, 1025), (std::vector<float>{0.25f, 0.00125f}));
  const auto again = parse_model_config(to_json(*model));
  EXPECT_TRUE(again.ok() && again->rope == model->rope) << to_json(*model);
  // Both objects, as some files have them.
  const auto both = phi(R"("type": "longrope", "short_factor": [1, 2], "long_factor": [4, 8]},
      "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000, "short_factor": [1, 2],
      "long_factor": [4, 8])");
  ASSERT_TRUE(both.ok()) << both.message();
  EXPECT_EQ(both->rope, model->rope);
  expect_model_error(R"({"model_type": "phi3", "num_attention_heads": 768,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 2], "long_factor": [4, 8]},
      "rope_parameters": {"type": "longrope", "short_factor": [1, 2], "long_factor": [4, 9]}})",
                     {"rope_parameters and rope_scaling say different things"});
  // Where the root does not say it, transformers has its class's, whatever the object says.
  const auto silent = parse_model_config(R"({"model_type": "phi3", "num_attention_heads": 768,
      "max_position_embeddings": 131072, "rope_scaling": {"type": "longrope", "short_factor": [1, 2],
      "long_factor": [4, 8], "original_max_position_embeddings": 1024}})");
  ASSERT_TRUE(silent.ok()) << silent.message();
  EXPECT_EQ(silent->rope.original_context, 4096);
  EXPECT_EQ(silent->rope.factor, 32);
  EXPECT_EQ(nlohmann::json::parse(to_json(*model))["original_max_position_embeddings"], 1024);
  EXPECT_NE(phi(R"("type": "longrope", "short_factor": [1, 2], "long_factor": [4])")
                .message()
                .find("long_factor has 1"),
            std::string::npos);
  EXPECT_NE(phi(R"("type": "su", "short_factor": [1, 0], "long_factor": [4, 8])")
                .message()
                .find("short_factor has 0"),
            std::string::npos);
}
TEST_F(ModelConfig, PartsOfHeadsThatAreRotated) {
  const auto rows = [](const std::string& type, const std::string& more) {
    const auto model = parse_model_config(fmt::format(R"({{"model_type": "{}"{}}})", type, more));
    if (!model.ok()) return model.message();
    const auto again = parse_model_config(to_json(*model));
    EXPECT_TRUE(again.ok() && again->rotated == model->rotated) << to_json(*model);
    EXPECT_EQ(model->rotated.neighbours, type == "glm4");
    return std::to_string(model->rotated_rows(model->attention()));
  };
  EXPECT_EQ(rows("glm4", ""), "64");
  EXPECT_EQ(rows("glm4", R"(, "partial_rotary_factor": 1)"), "128");
  // Versions of transformers go by one or the other, so all have to say the same.
  EXPECT_EQ(rows("glm4", R"(, "rope_parameters": {"partial_rotary_factor": 0.25})"), "32");
  EXPECT_EQ(
      rows("glm4", R"(, "partial_rotary_factor": 1, "rope_parameters": {"partial_rotary_factor": 0.25})"),
      "model config: partial_rotary_factor is 1 beside rope_parameters.partial_rotary_factor = 0.25; leave "
      "one of "
      "them out");
  expect_model_error(
      R"({"model_type": "glm4", "rope_scaling": {"rope_type": "default"},
          "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}})",
      {"different things of partial_rotary_factor"});
  expect_model_error(
      R"({"model_type": "cohere2", "head_dim": 4611686018427387904, "num_attention_heads": 4})",
      {"head_dim is 4611686018427387904"});
  expect_model_error(R"({"model_type": "cohere2", "sliding_window": null})", {"sliding_window is null"});
  expect_model_error(R"({"model_type": "gpt_neox", "mlp_bias": false})", {"mlp_bias is false", "true only"});
  EXPECT_EQ(rows("gpt_neox", R"(, "hidden_act": "gelu_fast")"), "24");
  EXPECT_EQ(rows("gpt_neox", ""), "24");
  EXPECT_EQ(rows("gpt_neox", R"(, "rotary_pct": 0.4, "hidden_size": 640)"), "4");
  EXPECT_EQ(rows("phi3", R"(, "partial_rotary_factor": 0.75)"), "72");
  expect_model_error(R"({"model_type": "gpt_neox", "partial_rotary_factor": 0.5})",
                     {"partial_rotary_factor is 0.5", "have rotary_pct for it"});
  expect_model_error(R"({"model_type": "gpt_neox", "rope_theta": 500})",
                     {"rope_theta is 500", "have rotary_emb_base for it"});
  expect_model_error(R"({"model_type": "gpt_neox", "num_key_value_heads": 8})", {"num_key_value_heads is 8"});
  expect_model_error(R"({"model_type": "cohere2", "head_dim": 64})", {"head_dim is 64", "8192 and 64"});
  expect_model_error(R"({"model_type": "glm4", "partial_rotary_factor": 0.2})",
                     {"partial_rotary_factor is 0.2", "25 of the 128", "even"});
  // What is not rotated is not multiplied.
  EXPECT_EQ(rows("glm4", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4})"), "64");
}
// The pairs that are rotated, i and i + 4 here, are those of the tensor, and all rows are there once.
TEST_F(ModelConfig, RowsOfHeadsFindTheirPlaces) {
  const auto order = [](const RowBlocks& blocks) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < blocks.rows; ++i) out.push_back(blocks.in_tensor(i));
    return out;
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(order({8, 8, 8, false}), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(order({8, 8, 8, true}), (Rows{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(order({8, 8, 4, false}), (Rows{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(order({8, 8, 4, true}), (Rows{0, 2, 4, 5, 1, 3, 6, 7}));
  EXPECT_EQ(rope_inv_freq({.theta = 100}, 8, 64, 4), (std::vector<float>{1, 0.1f, 0, 0}));
  // Two heads of q, k and v each, of which the keys' rows begin at 8; each of the second head's four
  // stretches.
  const WeightSource keys{"t", 16, 3, 8, 48, {8, 24, 4, false}};
  const auto [at, count] = keys.stretch(8 * 3 + 1, keys.elements());
  EXPECT_EQ(at, (8 + 24) * 3 + 1);
  EXPECT_EQ(count, 2 * 3 - 1);
  EXPECT_EQ(keys.stretch(10 * 3, keys.elements()).at, (8 + 24 + 4) * 3);
  EXPECT_EQ(keys.stretch(10 * 3, 11 * 3).count, 3);
}

}  // namespace
}  // namespace sluice::core
