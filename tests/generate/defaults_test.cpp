// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "equivalence/rig/rig.h"
#include "generate/defaults.h"

namespace sluice::core {
namespace {

using rig::must;

TEST(GenerationDefaults, WithoutFilesTheMostLikelyTokenIsTaken) {
  const GenerationDefaults d = must(parse_generation_defaults("", ""));
  EXPECT_EQ(d.rule.temperature, 0);
  EXPECT_TRUE(d.stop_tokens.empty());
  EXPECT_EQ(d.context, 0);
}

TEST(GenerationDefaults, TheGenerationConfigWins) {
  const GenerationDefaults d = must(parse_generation_defaults(
      R"({"max_position_embeddings": 8192, "eos_token_id": 2, "temperature": 9})",
      R"({"eos_token_id": [7, 8], "do_sample": true, "temperature": 0.6, "top_p": 0.9})"));
  EXPECT_EQ(d.context, 8192);
  EXPECT_EQ(d.stop_tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(d.rule.temperature, 0.6);
  EXPECT_EQ(d.rule.top_p, 0.9);
  EXPECT_EQ(d.rule.top_k, 50) << "transformers' default";
}

TEST(GenerationDefaults, ATemperatureWithoutSamplingPlaysNoPart) {
  const GenerationDefaults d =
      must(parse_generation_defaults(R"({"eos_token_id": null})", R"({"temperature": 0.6, "do_sample": false})"));
  EXPECT_EQ(d.rule.temperature, 0);
  EXPECT_TRUE(d.stop_tokens.empty());
}

TEST(GenerationDefaults, WhatCannotBeIsNamed) {
  const auto message = [](const char* config, const char* generation) {
    const auto result = parse_generation_defaults(config, generation);
    return result.ok() ? std::string() : result.message();
  };
  EXPECT_EQ(message("[1]", ""), "config.json: not a JSON object");
  EXPECT_EQ(message(R"({"eos_token_id": "</s>"})", ""),
            "config.json: eos_token_id = \"</s>\"; allowed are a token's number, or a list of some");
  EXPECT_EQ(message("", R"({"do_sample": true, "top_k": 2.5})"),
            "generation_config.json: top_k = 2.5; allowed are whole numbers");
  EXPECT_EQ(message("", R"({"do_sample": true, "top_p": 7})"),
            "generation_config.json: --top-p 7: allowed are numbers above 0 and up to 1, all tokens");
}

}  // namespace
}  // namespace sluice::core
