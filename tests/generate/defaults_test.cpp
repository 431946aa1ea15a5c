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
  EXPECT_FALSE(d.new_tokens || d.length);
}

TEST(GenerationDefaults, TheGenerationConfigWins) {
  const GenerationDefaults d = must(parse_generation_defaults(
      R"({"eos_token_id": 2, "temperature": 9})",
      R"({"eos_token_id": [7, 8], "do_sample": true, "temperature": 0.6, "top_p": 0.9})"));
  EXPECT_EQ(d.stop_tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(d.rule.temperature, 0.6);
  EXPECT_EQ(d.rule.top_p, 0.9);
  EXPECT_EQ(d.rule.top_k, 50) << "transformers' default";
}

TEST(GenerationDefaults, ATemperatureWithoutSamplingPlaysNoPart) {
  const GenerationDefaults d = must(
      parse_generation_defaults(R"({"eos_token_id": null})", R"({"temperature": 0.6, "do_sample": false})"));
  EXPECT_EQ(d.rule.temperature, 0);
  EXPECT_TRUE(d.stop_tokens.empty());
}

TEST(GenerationDefaults, WhatDoesNotDrawHoldsWithoutSampling) {
  const GenerationDefaults d = must(parse_generation_defaults(
      "",
      R"({"suppress_tokens": [3, 5], "stop_strings": ["END", "\n\n"], "max_new_tokens": 900, "max_length": 1000, "min_p": 0.1})"));
  EXPECT_EQ(d.rule.left_out, (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(d.stop_strings, (std::vector<std::string>{"END", "\n\n"}));
  EXPECT_EQ(d.new_tokens, 900);
  EXPECT_EQ(d.length, 1000);
  EXPECT_EQ(d.rule.min_p, 0);
  EXPECT_EQ(d.passed_over, "");
  const GenerationDefaults drawn =
      must(parse_generation_defaults("", R"({"do_sample": true, "min_p": 0.1, "stop_strings": "END"})"));
  EXPECT_EQ(drawn.rule.min_p, 0.1);
  EXPECT_EQ(drawn.stop_strings, std::vector<std::string>{"END"});
}

TEST(GenerationDefaults, WhatIsNotDoneIsNamed) {
  const auto said = [](const char* generation) {
    std::string all;
    for (const auto& [key, value] : must(parse_generation_defaults("", generation)).not_done)
      all += key + " = " + value + "; ";
    return all;
  };
  EXPECT_EQ(said(R"({"num_beams": 1, "no_repeat_ngram_size": 0, "typical_p": 1.0, "bad_words_ids": null,
                     "forced_eos_token_id": null, "guidance_scale": null, "begin_suppress_tokens": []})"),
            "");
  EXPECT_EQ(said(R"({"num_beams": 4, "no_repeat_ngram_size": 3, "typical_p": 0.9})"),
            "num_beams = 4; no_repeat_ngram_size = 3; ");
  EXPECT_EQ(
      said(R"({"do_sample": true, "typical_p": 0.9, "epsilon_cutoff": 1e-4, "forced_eos_token_id": 2})"),
      "forced_eos_token_id = 2; typical_p = 0.9; epsilon_cutoff = 0.0001; ");
}

TEST(GenerationDefaults, KeysThatNobodyKnowsAreNamed) {
  const auto said = [](const char* generation) {
    return parse_generation_defaults("", generation)->passed_over;
  };
  EXPECT_EQ(said(R"({"temprature": 0.5, "stop": "a", "use_cache": true, "_from_model_config": true})"),
            "generation_config.json has keys that transformers does not know either: stop, temprature");
}

TEST(GenerationDefaults, WhatCannotBeIsNamed) {
  const auto message = [](const char* config, const char* generation) {
    const auto result = parse_generation_defaults(config, generation);
    return result.ok() ? std::string() : result.message();
  };
  EXPECT_EQ(message("[1]", ""), "config.json: not a JSON object");
  EXPECT_EQ(message("", R"({"eos_token_id": 1, "eos_token_id": 2})"),
            "generation_config.json: key 'eos_token_id' is there twice, with 1 and with 2: keep one");
  EXPECT_EQ(message(R"({"eos_token_id": "</s>"})", ""),
            "config.json: eos_token_id = \"</s>\"; allowed are a token's number, or a list of some");
  EXPECT_EQ(message("", R"({"do_sample": true, "top_k": 2.5})"),
            "generation_config.json: top_k = 2.5; allowed are whole numbers");
  EXPECT_EQ(message("", R"({"do_sample": true, "top_p": 7})"),
            "generation_config.json: top_p = 7: allowed are numbers above 0 and up to 1, all tokens");
  EXPECT_EQ(message("", R"({"stop_strings": [7]})"),
            "generation_config.json: stop_strings = [7]; allowed are a text, or a list of some");
  EXPECT_EQ(message("", R"({"max_new_tokens": -1})"),
            "generation_config.json: max_new_tokens = -1; allowed are whole numbers from 1");
  EXPECT_EQ(message("", R"({"max_new_tokens": 0})"),
            "generation_config.json: max_new_tokens = 0; allowed are whole numbers from 1");
}

}  // namespace
}  // namespace sluice::core
