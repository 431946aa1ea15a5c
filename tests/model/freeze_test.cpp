// SPDX-License-Identifier: Apache-2.0
// What patterns over the names of tensors freeze, which lists are refused, and what is left to compute.
#include <gtest/gtest.h>

#include "model/flops.h"
#include "model/weights.h"

namespace sluice::core {
namespace {

ModelSpec small_model(std::vector<std::string> freeze, bool tied = false) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 12, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
  spec.tied_embeddings = tied;
  spec.freeze = std::move(freeze);
  return spec;
}

std::vector<std::string> trained(const ModelSpec& spec) {
  std::vector<std::string> out;
  for (const Weight& weight : weights_of(spec)) {
    if (weight.trainable) out.push_back(weight.object);
  }
  return out;
}

TEST(Freeze, NamesTensorsAndWhatTheyArePartsOf) {
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  const auto by = [&](std::vector<std::string> patterns) { return frozen(patterns, q); };
  for (const char* pattern :
       {"model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn", "model.layers.1", "model", "*",
        "*q_proj*", "*.q_proj", "model.layers.[0-3].*", "model.layers.?"}) {
    EXPECT_TRUE(by({pattern})) << pattern;
  }
  for (const char* pattern : {"", "q_proj", "model.layers.1.self", "model.layers.[2-9]", "*.q_proj.bias"}) {
    EXPECT_FALSE(by({pattern})) << pattern;
  }
  EXPECT_FALSE(frozen(std::vector<std::string>{"model.layers.1"}, "model.layers.10.mlp.down_proj.weight"));
}

TEST(Freeze, TheLastThatNamesATensorDecides) {
  EXPECT_EQ(trained(small_model({"*", "!model.layers.11.mlp", "*.down_proj"})),
            std::vector<std::string>{"wgu.L11"});
  EXPECT_EQ(trained(small_model({"*", "!model.embed_tokens", "!model.norm"})),
            (std::vector<std::string>{"embedding", "norm"}));
  EXPECT_EQ(trained(small_model({})).size(), weights_of(small_model({})).size());
}

TEST(Freeze, ListsThatCannotBeMeantAreRefused) {
  const auto refusal = [](std::vector<std::string> patterns, bool tied = false) {
    ModelSpec spec = small_model({}, tied);
    return freeze(spec, std::move(patterns), "train.freeze").message();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"model.layers", "!*.norm*", "lm_head"}), "");
  EXPECT_EQ(refusal({"*.qproj.weight"}),
            "train.freeze: '*.qproj.weight' names no tensor of this model; near names are q_proj.weight, "
            "k_proj.weight, o_proj.weight");
  EXPECT_EQ(refusal({"model.layers.12"}).substr(0, 88),
            "train.freeze: 'model.layers.12' names no tensor of this model; near names are model.laye");
  EXPECT_NE(refusal({"model.norm", "!lm_haed"}).find("near names are lm_head"), std::string::npos);
  // The head of this one is its embedding.
  EXPECT_NE(refusal({"lm_head"}, true).find("'lm_head' names no tensor"), std::string::npos);
  EXPECT_EQ(
      refusal({"*.k_proj"}),
      "train.freeze: model.layers.0.self_attn.k_proj.weight is frozen and "
      "model.layers.0.self_attn.v_proj.weight is not, and they are one weight here: freeze both or neither");
  EXPECT_EQ(refusal({"*"}), "train.freeze = [*]: nothing is left to train");
}

TEST(Freeze, LeavesOutWhatTheBackwardPassDoes) {
  const auto flops = [](std::vector<std::string> freeze, bool tied = false) {
    return model_flops_per_token(small_model(std::move(freeze), tied), 100);
  };
  const double q = 32 * 32, kv = 2 * 16 * 32, o = 32 * 32, mlp = 3 * 48 * 32, vocab = 61 * 32;
  const double layer = q + kv + o + mlp, seen = 100 * 32;
  const double all = flops({});
  EXPECT_EQ(all, 12 * (6 * layer + 6 * seen) + 6 * vocab);
  // Its gradient is no product, but that of the first norm goes through the projections.
  EXPECT_EQ(flops({"model.embed_tokens"}), all);
  EXPECT_EQ(flops({"*.mlp"}), all - 12 * 2 * mlp);
  EXPECT_EQ(flops({"lm_head"}), all - 2 * vocab);
  EXPECT_EQ(flops({"model.embed_tokens"}, true), flops({}, true) - 2 * vocab);
  // Half of the layers: forward alone, and of the others everything.
  EXPECT_EQ(flops({"model.embed_tokens", "model.layers.[0-5]"}), all - 6 * (4 * layer + 4 * seen));
  // The head alone: its gradient goes nowhere else.
  EXPECT_EQ(flops({"*", "!lm_head"}), 12 * (2 * layer + 2 * seen) + 4 * vocab);
}

}  // namespace
}  // namespace sluice::core
