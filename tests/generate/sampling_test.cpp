// SPDX-License-Identifier: Apache-2.0
// What tokens are drawn from, against transformers' logits processors (make_fixtures.py), and how they are
// drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "equivalence/rig/rig.h"
#include "generate/sampling.h"
#include "io/file.h"

namespace sluice::core {
namespace {

using nlohmann::json;
using rig::must;

SamplingRule rule_of(const json& rule) {
  SamplingRule out;
  out.temperature = rule.at("temperature");
  out.top_k = rule.value("top_k", int64_t{0});
  out.top_p = rule.value("top_p", 1.0);
  out.min_p = rule.value("min_p", 0.0);
  out.left_out = rule.value("suppress_tokens", std::vector<int32_t>());
  out.repetition_penalty = rule.value("repetition_penalty", 1.0);
  return out;
}

// Of equal ones the first, whatever their number; one that is no number is the most only where it comes
// first. There and where the largest is infinite nothing is chosen.
TEST(Sampling, WithoutTemperatureItIsTheFirstOfTheLargest) {
  Sampler sampler({.temperature = 0});
  std::mt19937 random(1);
  for (const size_t vocab : {1, 2, 31, 1023, 1024, 1025, 2048, 5000}) {
    for (int trial = 0; trial < 40; ++trial) {
      std::vector<float> logits(vocab);
      for (float& x : logits) x = float(random() % (trial % 2 == 0 ? 5 : 100000)) - 4;
      if (trial % 4 == 1) logits[random() % vocab] = std::nanf("");
      if (trial % 4 == 2) logits[random() % vocab] = INFINITY;
      if (trial == 7) logits[vocab / 1024 * 1024 % vocab] = std::nanf("");
      if (trial == 3) logits[0] = std::nanf("");
      if (trial == 4) std::fill(logits.begin(), logits.end(), -INFINITY);
      const auto most = std::max_element(logits.begin(), logits.end()) - logits.begin();
      const auto chosen = sampler.choose(logits, {}, {});
      ASSERT_EQ(chosen.ok(), std::isfinite(logits[size_t(most)])) << vocab << " tokens, trial " << trial;
      if (chosen.ok()) {
        ASSERT_EQ(chosen->token, most) << vocab << " tokens, trial " << trial;
      }
    }
  }
}

TEST(Sampling, ProbabilitiesAreThoseOfTransformers) {
  const json cases = json::parse(must(read_file(SLUICE_GENERATED "/sampling.json")));
  ASSERT_GE(cases.size(), 20u);
  for (const json& c : cases) {
    const auto logits = c.at("logits").get<std::vector<float>>();
    const auto seen = c.at("seen").get<std::vector<int32_t>>();
    Sampler sampler(rule_of(c.at("rule")));
    std::vector<double> got(logits.size(), 0);
    for (const TokenProbability& candidate : must(sampler.candidates(logits, seen)))
      got[size_t(candidate.token)] = candidate.probability;
    const auto expected = c.at("probabilities").get<std::vector<double>>();
    for (size_t t = 0; t < got.size(); ++t) {
      // A softmax in f32 of 40 terms.
      EXPECT_NEAR(got[t], expected[t], 40 * 0x1p-24) << c.at("rule") << " token " << t;
      EXPECT_EQ(got[t] > 0, expected[t] > 0) << c.at("rule") << " token " << t;
    }
  }
}

// Whatever the logits, as long as the largest is finite.
TEST(Sampling, EveryFilterLeavesOneOrMore) {
  std::mt19937 random(1);
  const auto one_of = [&](auto... values) {
    const std::array all{double(values)...};
    return all[random() % all.size()];
  };
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<float> logits(1 + random() % 40);
    for (float& x : logits)
      x = float(one_of(0, 1, -3, 700, -1e30, 3e38, -INFINITY, NAN, double(random()) / 1e9));
    SamplingRule rule;
    rule.temperature = one_of(0, 5e-324, 1e-30, 1, 1e6);
    rule.top_k = int64_t(one_of(0, 1, 2, 39, 1e15));
    rule.top_p = one_of(5e-324, 1e-9, 0.5, 1);
    rule.min_p = one_of(0, 5e-324, 0.5, 1);
    rule.repetition_penalty = one_of(1e-6, 1, 1e6);
    for (size_t t = 0; t < logits.size(); ++t) {
      if (random() % 3 == 0) rule.left_out.push_back(int32_t(t));
    }
    ASSERT_TRUE(validate(rule).ok());
    const std::vector<int32_t> seen{0, int32_t(logits.size()) - 1};
    Sampler sampler(rule);
    const auto found = sampler.candidates(logits, seen);
    const auto chosen = sampler.choose(logits, seen, {.index = uint64_t(trial)});
    ASSERT_EQ(found.ok(), chosen.ok());
    if (!found.ok()) continue;
    ASSERT_FALSE(found->empty()) << "trial " << trial;
    double sum = 0;
    for (const TokenProbability& c : *found) sum += c.probability;
    EXPECT_NEAR(sum, 1, 1e-9) << "trial " << trial;
    EXPECT_EQ(std::ranges::count(rule.left_out, chosen->token), 0) << "trial " << trial;
  }
}

TEST(Sampling, WhereNoneIsLeftTheErrorSaysWhy) {
  const auto why = [](std::vector<float> logits, auto change) {
    SamplingRule rule{.temperature = 1};
    change(rule);
    const auto chosen = Sampler(rule).choose(logits, std::vector<int32_t>{0}, {});
    return chosen.ok() ? std::string() : chosen.message();
  };
  const std::string broken =
      "logits are not finite: the model's weights are damaged, or too large for its number format";
  EXPECT_EQ(why({1, INFINITY}, [](SamplingRule&) {}), broken);
  EXPECT_EQ(why({NAN, 1}, [](SamplingRule&) {}), broken);
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(why({1, 2},
                  [&](SamplingRule& r) {
                    r.temperature = temperature, r.left_out = {1, 0};
                  }),
              "suppress_tokens: every token is left out, so that none can follow");
  }
  EXPECT_EQ(why({1e35f, 2}, [](SamplingRule& r) { r.repetition_penalty = 1e-6; }),
            "repetition penalty 1e-06: it makes logits that are not finite");
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheMostLikely) {
  Sampler sampler({});
  const float logits[] = {1, 5, -2, 5};
  EXPECT_EQ(must(sampler.choose(logits, {}, {})).token, 1);
}

TEST(Sampling, DrawsFollowTheProbabilities) {
  SamplingRule rule;
  rule.temperature = 1;
  Sampler sampler(rule);
  const float logits[] = {0, std::log(2.0f), std::log(3.0f), -INFINITY, std::log(4.0f)};
  constexpr int kDraws = 20000;
  int counts[5] = {};
  for (uint64_t i = 0; i < kDraws; ++i)
    ++counts[must(sampler.choose(logits, {}, {.prompt = 3, .index = i})).token];
  EXPECT_EQ(counts[3], 0);
  const double expected[] = {0.1, 0.2, 0.3, 0, 0.4};
  for (int t = 0; t < 5; ++t) {
    // Four deviations of a binomial.
    const double deviation = std::sqrt(kDraws * expected[t] * (1 - expected[t]));
    EXPECT_NEAR(counts[t], kDraws * expected[t], 4 * deviation) << t;
  }
}

TEST(Sampling, ADrawIsOfItsSeedTextAndIndex) {
  std::vector<float> logits(1000, 0.0f);
  SamplingRule rule;
  rule.temperature = 1;
  const auto draws = [&](uint64_t seed, uint64_t text) {
    rule.seed = seed;
    Sampler sampler(rule);
    std::vector<int32_t> out;
    for (uint64_t i = 0; i < 20; ++i)
      out.push_back(must(sampler.choose(logits, {}, {.prompt = text, .index = i})).token);
    return out;
  };
  EXPECT_EQ(draws(7, 1), draws(7, 1));
  EXPECT_NE(draws(7, 1), draws(8, 1));
  EXPECT_NE(draws(7, 1), draws(7, 2));
}

TEST(Sampling, WhatIsNotAllowedIsNamed) {
  const auto message = [](auto change) {
    SamplingRule rule;
    change(rule);
    const Status status = validate(rule);
    return status.ok() ? std::string() : status.message();
  };
  EXPECT_EQ(message([](SamplingRule&) {}), "");
  EXPECT_EQ(message([](SamplingRule& r) { r.temperature = -1; }),
            "--temperature -1: allowed are numbers from 0, the most likely token, to 1e6");
  EXPECT_EQ(message([](SamplingRule& r) { r.top_k = -2; }),
            "--top-k -2: allowed are whole numbers from 0, all tokens");
  EXPECT_EQ(message([](SamplingRule& r) { r.top_p = 0; }),
            "--top-p 0: allowed are numbers above 0 and up to 1, all tokens");
  EXPECT_EQ(message([](SamplingRule& r) { r.repetition_penalty = NAN; }),
            "--repetition-penalty nan: allowed are numbers from 1e-6 to 1e6; 1 changes nothing");
  EXPECT_NE(message([](SamplingRule& r) { r.repetition_penalty = 1e-45; }), "");
}

}  // namespace
}  // namespace sluice::core
