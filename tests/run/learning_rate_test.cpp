// SPDX-License-Identifier: Apache-2.0
// train.learning_rate = "auto".
#include "setup/learning_rate.h"

#include <gtest/gtest.h>

#include "model/families/families.h"

namespace sluice::core {
namespace {

double rate(const char* optimizer, double params, int64_t tokens, bool given) {
  return automatic_rate({*find_optimizer(optimizer), int64_t(params), tokens, given}).rate;
}

// Rates that others trained with: the table of GPT-3 (arXiv 2005.14165, table 2.1), within a factor of 1.5.
TEST(LearningRate, OfRandomWeightsIsThatOfLikeModels) {
  struct Known {
    double params;
    int64_t tokens;
    double rate;
  };
  for (const auto& [params, tokens, known] : {Known{125e6, 524288, 6e-4},
                                              {350e6, 524288, 3e-4},
                                              {760e6, 524288, 2.5e-4},
                                              {1.3e9, 1048576, 2e-4},
                                              {2.7e9, 1048576, 1.6e-4},
                                              {6.7e9, 2097152, 1.2e-4},
                                              {13e9, 2097152, 1e-4}}) {
    const double chosen = rate("adamw", params, tokens, false);
    EXPECT_GT(chosen, known / 1.5) << params;
    EXPECT_LT(chosen, known * 1.5) << params;
  }
}

// 1e-5 to 2e-5 for 7 B and 8 B in batches of 128 conversations.
TEST(LearningRate, OfGivenWeightsIsThatOfFineTuning) {
  for (const double params : {6.7e9, 8e9}) {
    EXPECT_GE(rate("adamw", params, 131072, true), 1e-5);
    EXPECT_LE(rate("adamw", params, 131072, true), 3e-5);
  }
}

// What bench/learning_rates found best of six rates, or better than these: docs/learning-rate.md.
TEST(LearningRate, IsTheBestWhereItWasMeasured) {
  const double quickstart = 2.16e6, finetune = 134515008;
  EXPECT_DOUBLE_EQ(rate("adamw", quickstart, 1024, false), 3e-3);
  EXPECT_DOUBLE_EQ(rate("lion", quickstart, 1024, false), 3e-4);
  EXPECT_DOUBLE_EQ(rate("adamw", finetune, 1024, true), 4e-4);
  EXPECT_DOUBLE_EQ(rate("lion", finetune, 1024, true), 3e-4);
}

TEST(LearningRate, GoesByEverythingThatDecidesIt) {
  const double chosen = rate("adamw", 8e9, 16384, true);
  EXPECT_GT(rate("adamw", 8e9, 16384, false), chosen);
  EXPECT_LT(rate("adamw", 2e10, 16384, true), chosen);
  EXPECT_GT(rate("adamw", 8e9, 65536, true), chosen);
  EXPECT_LT(rate("lion", 8e9, 16384, true), chosen);
  EXPECT_GT(rate("sgd", 8e9, 16384, true), chosen);
}

// Any model and step has one that is a rate.
TEST(LearningRate, IsBounded) {
  for (const double params : {1.0, 1e3, 1e12}) {
    for (const int64_t tokens : {int64_t{1}, int64_t{1} << 30}) {
      for (const bool given : {false, true}) {
        EXPECT_GE(rate("lion", params, tokens, given), 1e-7);
        EXPECT_LE(rate("adamw", params, tokens, given), 3e-3);
      }
    }
  }
}

TEST(LearningRate, ThatIsGivenStays) {
  const ModelSpec model = model_of({256, 2, 4, 2, 64, 704, 512});
  RunConfig config;
  config.train.learning_rate = 2e-5;
  auto chosen = choose_rate(config, model);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->why, "");
  EXPECT_EQ(chosen->rate, 2e-5);
  config.train.learning_rate.reset();
  chosen = choose_rate(config, model);
  ASSERT_TRUE(chosen.ok());
  EXPECT_NE(chosen->why.find("train.learning_rate = auto: "), std::string::npos) << chosen->why;
  EXPECT_NE(chosen->why.find("random weights"), std::string::npos) << chosen->why;
  EXPECT_GT(chosen->rate, 0);
  config.train.min_learning_rate = 1;
  chosen = choose_rate(config, model);
  ASSERT_FALSE(chosen.ok());
  EXPECT_NE(chosen.message().find("train.min_learning_rate = 1"), std::string::npos) << chosen.message();
}

// A rate that is part of the weights' size, or of a schedule of its own.
TEST(LearningRate, OfAdafactorGoesByItsSettings) {
  const Optimizer& adafactor = *find_optimizer("adafactor");
  EXPECT_EQ(rate("adafactor", 2.2e6, 1024, false), rate("adamw", 2.2e6, 1024, false));
  const auto own = [&](const char* name, bool given) {
    RateSubject subject{adafactor, int64_t(1e9), 1024, given};
    for (size_t i = 0; i < subject.values.size(); ++i) {
      if (adafactor.hyperparameters[i].name == name) subject.values[i] = 1;
    }
    return automatic_rate(subject);
  };
  EXPECT_EQ(own("scale_parameter", false).rate, 1e-2);
  EXPECT_EQ(own("scale_parameter", true).rate, 1e-3);
  EXPECT_EQ(own("relative_step", true).rate, 1);
  EXPECT_NE(own("relative_step", true).why.find("adafactor"), std::string::npos);
}

// plan, simulate and train print the whole schedule.
TEST(LearningRate, AScheduleInWords) {
  const auto words = [&](auto&& change) {
    RunConfig c;
    c.train.learning_rate = 1e-3;
    c.train.steps = 100;
    change(c.train);
    return schedule_words(c);
  };
  EXPECT_EQ(words([](auto&) {}), "0.001: up through 10 steps, then down to 0.0001 by a cosine");
  EXPECT_EQ(words([](auto& t) { t.schedule = "linear", t.min_learning_rate = 0, t.warmup_steps = 0; }),
            "0.001: down to 0 in a line");
  EXPECT_EQ(words([](auto& t) { t.schedule = "constant"; }), "0.001: up through 10 steps, then level");
  EXPECT_EQ(words([](auto& t) { t.schedule = "wsd", t.decay_steps = 30; }),
            "0.001: up through 10 steps, then level, and down to 0.0001 in a line in the last 30 steps");
}

// A schedule that cannot take effect is said before the first step.
TEST(LearningRate, WhatOfAScheduleHasNoEffectIsSaid) {
  const ModelSpec model = *model_preset("tiny");
  const auto said = [&](auto&& change) {
    RunConfig c;
    c.train.learning_rate = 1e-3;
    c.train.steps = 100;
    change(c.train);
    return schedule_notices(c, model);
  };
  const auto one = [&](auto&& change, const std::string& words) {
    const std::vector<std::string> notices = said(change);
    ASSERT_EQ(notices.size(), 1u) << words;
    EXPECT_NE(notices[0].find(words), std::string::npos) << notices[0];
  };
  EXPECT_TRUE(said([](auto&) {}).empty());
  EXPECT_TRUE(said([](auto& t) { t.schedule = "wsd", t.decay_steps = 90; }).empty());
  one([](auto& t) { t.steps = 3, t.warmup_steps = 20; },
      "train.warmup_steps = 20: the run ends after 3 steps, while its rate still rises: at 0.00015, not "
      "0.001");
  one([](auto& t) { t.steps = 4; },
      "train.warmup_steps = auto: the rate rises through all of the run's 4 steps");
  one([](auto& t) { t.warmup_steps = 100; }, "train.schedule = cosine: the rate never falls");
  one([](auto& t) { t.schedule = "wsd", t.decay_steps = 99; }, "train.decay_steps = 99: 90 steps follow");
  one([](auto& t) { t.steps = 8, t.warmup_steps = 2, t.schedule = "wsd"; }, "a tenth of 8 steps is no step");
  one([](auto& t) { t.decay_steps = 5; }, "train.decay_steps = 5 does not count");
  one([](auto& t) { t.schedule = "constant", t.min_learning_rate = 1e-4; },
      "train.min_learning_rate = 0.0001");
  one([](auto& t) { t.learning_rate = 10; }, "train.learning_rate = 10: ");
  one([](auto& t) { t.learning_rate = 0; }, "train.learning_rate = 0: nothing to speak of is learnt");
}

}  // namespace
}  // namespace sluice::core
