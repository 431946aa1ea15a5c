// SPDX-License-Identifier: Apache-2.0
// Evaluation and sampling run between steps, in room the training plan keeps free: they must not disturb it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "config/files/load_config.h"
#include "run/small_session.h"

namespace sluice::core {
namespace {

class BetweenSteps : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  // A run on text with held-out files, under a device cap.
  Prepared prepare_run() {
    const auto [deferred, cap] = GetParam();
    const auto model =
        dir_.add("config.json", R"({"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2})");
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("line {} of the text. ", i * i);
    for (const char* name : {"text/a.txt", "text/b.txt", "text/c.txt"}) dir_.add(name, name + text);
    const std::vector<std::string> settings{"model.config=" + model.string(),
                                            "data.paths=[\"" + (dir_ / "text").string() + "\"]",
                                            "data.heldout=0.4",
                                            "data.cache=" + (dir_ / "cache").string(),
                                            "train.seq_len=16",
                                            "train.tokens_per_step=64",
                                            "eval.rows=8",
                                            "run.backend=cpu",
                                            "run.threads=1",
                                            "train.deferred_update=" + std::string(deferred),
                                            "memory.device=" + std::string(cap)};
    return must(prepare(must(load_config("", settings)), "", true));
  }
  TempDir dir_;
};

TEST_P(BetweenSteps, EvaluationAndSamplingLeaveTheRunAsItWas) {
  const Prepared prepared = prepare_run();
  std::vector<double> plain, disturbed, heldout;
  {
    const auto session = must(Session::open(prepared));
    for (int i = 0; i < 4; ++i) plain.push_back(must(session->step()).loss);
    heldout.push_back(must(session->evaluate()).loss());
  }
  {
    const auto session = must(Session::open(prepared));
    std::string text;
    for (int i = 0; i < 4; ++i) {
      disturbed.push_back(must(session->step()).loss);
      (void)must(session->evaluate());
      text = must(session->sample("line", 5, 0.8));
      EXPECT_EQ(text, must(session->sample("line", 5, 0.8)));
    }
    EXPECT_EQ(text.size(), 5u);
    heldout.push_back(must(session->evaluate()).loss());
  }
  EXPECT_EQ(disturbed, plain);
  EXPECT_EQ(heldout[1], heldout[0]);
  EXPECT_NEAR(heldout[0], 5.5, 0.5);  // about ln 256 after four steps
}

INSTANTIATE_TEST_SUITE_P(Runs, BetweenSteps,
                         testing::Combine(testing::Values("off", "on"),
                                          testing::Values("none", "400KiB", "250KiB")),
                         [](const auto& test) {
                           return fmt::format("deferred_{}_cap_{}", std::get<0>(test.param),
                                              std::get<1>(test.param));
                         });

// The vocabulary is not of bytes: text goes through the model's tokenizer both ways.
TEST(Sample, IsTextOfTheModelsTokenizer) {
  const TempDir dir;
  const Prepared prepared =
      must(prepare(must(load_config("", small_run(dir, {model_with_tokenizer(dir)}))), "", true));
  ASSERT_NE(prepared.stages.find(kSampling), nullptr);
  const auto session = must(Session::open(prepared));
  const std::string text = must(session->sample("A line", 20, 0.8));
  EXPECT_FALSE(text.empty());
  EXPECT_LE(text.size(), 39u);  // with spaces between; tokens that the tokenizer lacks are no text
  for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << int(c);
  EXPECT_EQ(must(session->sample("A line", 20, 0.8, 0, [](int64_t done) { return done < 5; })),
            must(session->sample("A line", 5, 0.8)));
  EXPECT_NE(must(session->sample("A line", 20, 0.8, 1)), text);
  EXPECT_NE(session->sample("\t", 5, 0.8).message().find("sample.prompt"), std::string::npos);
}

TEST(Sample, EndsWhereTheModelSays) {
  const TempDir dir;
  const std::string model = model_with_tokenizer(dir);
  const auto sample = [&](int64_t tokens) {
    const Prepared prepared = must(prepare(must(load_config("", small_run(dir, {model}))), "", true));
    return must(must(Session::open(prepared))->sample("A line", tokens, 0.8));
  };
  const std::string one = sample(1), all = sample(20);
  EXPECT_LT(one.size(), all.size());
  std::string every;
  for (int id = 0; id < 97; ++id) every += fmt::format("{}{}", id == 0 ? "" : ", ", id);
  dir.add("model/generation_config.json", "{\"eos_token_id\": [" + every + "]}");
  EXPECT_EQ(sample(20), one);
}

TEST(Sample, IsNotPlannedWithoutWords) {
  const TempDir dir;
  EXPECT_EQ(must(prepare(must(load_config("", small_run(dir))), "", true)).stages.find(kSampling), nullptr);
}

}  // namespace
}  // namespace sluice::core
