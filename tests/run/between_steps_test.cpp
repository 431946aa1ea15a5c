// SPDX-License-Identifier: Apache-2.0
// Evaluation and sampling run between steps, in room the training plan keeps free: they must not disturb it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "equivalence/rig/rig.h"
#include "run/session.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using rig::must;

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
    heldout.push_back(must(session->evaluate()));
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
    heldout.push_back(must(session->evaluate()));
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

}  // namespace
}  // namespace sluice::core
