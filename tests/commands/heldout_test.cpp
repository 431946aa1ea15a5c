// SPDX-License-Identifier: Apache-2.0
// Runs that evaluate: when, what is kept of the best model, and when that ends them.
#include <gtest/gtest.h>

#include <cmath>

#include "commands/text_runs.h"

namespace sluice::core {
namespace {

using Json = nlohmann::json;

class HeldOutRuns : public testing::Test {
 protected:
  // All of one file is held out.
  std::vector<std::string> with(std::vector<std::string> more) const {
    more.insert(more.begin(), {"data.heldout_paths=[\"" + (runs_.dir_ / "text/c.txt").string() + "\"]",
                               "eval.rows=1000", "train.compute=f32", "sample.tokens=0"});
    return more;
  }
  Outcome start(const std::string& run, const std::vector<std::string>& more) const {
    return runs_.start(run, with(more));
  }
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> out;
    std::istringstream in(file_bytes(runs_.dir_ / run / "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  }
  // Step and loss of every evaluation.
  std::vector<std::pair<int, double>> evaluations(const std::string& run) const {
    std::vector<std::pair<int, double>> out;
    for (const Json& line : metrics(run)) {
      if (line.contains("heldout_loss"))
        out.emplace_back(line["step"].get<int>(), line["heldout_loss"].get<double>());
    }
    return out;
  }
  Json checkpoint(const std::string& run, const std::string& name) const {
    return Json::parse(file_bytes(runs_.dir_ / run / "checkpoints" / name / "checkpoint.json"));
  }
  Json evaluate(const std::string& model, bool best, std::vector<std::string> settings = {}) const {
    EvaluateRequest request;
    request.model = (runs_.dir_ / model).string();
    request.files = {(runs_.dir_ / "text/c.txt").string()};
    request.best = best;
    request.seq_len = 16;
    request.settings = {"run.backend=cpu", "run.threads=1", "data.cache=" + (runs_.dir_ / "cache").string(),
                        "train.compute=f32"};
    request.settings.insert(request.settings.end(), settings.begin(), settings.end());
    return evaluate(request);
  }
  // On what the run itself holds out.
  Json evaluate_own(const std::string& run, bool best, std::vector<std::string> settings = {}) const {
    EvaluateRequest request;
    request.model = (runs_.dir_ / run).string();
    request.best = best;
    request.settings = std::move(settings);
    return evaluate(request);
  }
  static Json evaluate(EvaluateRequest request) {
    request.json = true;
    Requests asked;
    testing::internal::CaptureStdout();
    const Outcome outcome = sluice::core::evaluate(request, asked);
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(outcome.ok()) << outcome.message;
    return Json::parse(said, nullptr, false);
  }
  TextRuns runs_;
};

TEST_F(HeldOutRuns, AutoIsAtBothEndsAndAfterEveryStepOfAShortRun) {
  ASSERT_EQ(start("run", {"eval.every=auto"}).message, "");
  const auto all = evaluations("run");
  ASSERT_EQ(all.size(), 5u);
  for (int step = 0; step <= 4; ++step) EXPECT_EQ(all[size_t(step)].first, step);
  EXPECT_FALSE(metrics("run")[0].contains("loss")) << "of step 0 there is but that";
  const Json line = metrics("run").back();
  for (const char* key :
       {"heldout_accuracy", "heldout_standard_error", "heldout_tokens", "epoch", "learnt_tokens", "accuracy"})
    EXPECT_TRUE(line.contains(key)) << key;
  EXPECT_EQ(line["learnt_tokens"], 32);
}

// From the run, from an export, where the base is elsewhere by now, and as one model with it.
TEST_F(HeldOutRuns, AnAdapterIsEvaluatedWithItsBase) {
  const TempDir& dir = runs_.dir_;
  ASSERT_EQ(start("first", {}).message, "");
  std::filesystem::copy(dir / "first/checkpoints/step-4", dir / "base");
  ASSERT_EQ(start("run", {"model.config=", "model.path=" + (dir / "base").string(), "adapter.rank=4",
                          "eval.every=auto", "run.keep_best=on"})
                .message,
            "");
  const auto all = evaluations("run");
  const double begun = all.front().second, last = all.back().second;
  EXPECT_LT(last, begun);
  const auto near = [&](const Json& found) { EXPECT_NEAR(found["loss"].get<double>(), last, 1e-6 * last); };
  near(evaluate_own("run", false));
  near(evaluate("run", true));
  for (const bool merged : {false, true}) {
    ExportRequest request;
    request.from = (dir / "run").string();
    request.to = (dir / (merged ? "merged" : "adapter")).string();
    request.merged = merged;
    Requests asked;
    ASSERT_EQ(export_model(request, asked).message, "");
  }
  near(evaluate("merged", false));
  std::filesystem::rename(dir / "base", dir / "moved");
  EvaluateRequest request;
  request.model = (dir / "adapter").string();
  request.files = {(dir / "text/c.txt").string()};
  request.seq_len = 16;
  request.settings = {"run.backend=cpu", "run.threads=1", "data.cache=" + (dir / "cache").string(),
                      "train.compute=f32"};
  Requests asked;
  EXPECT_NE(sluice::core::evaluate(request, asked).message.find("adapter.base (--base) names it"),
            std::string::npos);
  request.base = (dir / "moved").string();
  near(evaluate(request));
  GenerateRequest text;
  text.model = (dir / "adapter").string();
  text.base = request.base;
  text.prompts = {"a 1"};
  text.tokens = 4;
  text.settings = {"run.backend=cpu", "run.threads=1"};
  testing::internal::CaptureStdout();
  const Outcome generated = generate(text, asked);
  EXPECT_FALSE(testing::internal::GetCapturedStdout().empty());
  EXPECT_EQ(generated.message, "");
}

// A rate that is far too high: it gets worse from some step on.
TEST_F(HeldOutRuns, TheBestModelIsKeptAndIsTheOneThatWasBest) {
  ASSERT_EQ(
      start("run", {"eval.every=auto", "run.keep_best=on", "train.steps=6", "train.learning_rate=1"}).message,
      "");
  const auto all = evaluations("run");
  const auto best = *std::min_element(all.begin(), all.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  ASSERT_LT(best.first, 6) << "the run is to get worse";
  ASSERT_GT(best.first, 0) << "and better before";
  const Json kept = checkpoint("run", "best");
  EXPECT_EQ(kept["step"], best.first);
  EXPECT_EQ(kept["heldout"]["best_loss"], best.second);
  EXPECT_FALSE(kept["files"].contains("optimizer.safetensors"));
  const auto folder = runs_.dir_ / "run/checkpoints" / fmt::format("best-{}", best.first);
  EXPECT_EQ(std::filesystem::canonical(runs_.dir_ / "run/checkpoints/best"),
            std::filesystem::canonical(folder));
  EXPECT_EQ(file_bytes(folder / "model.safetensors"),
            file_bytes(runs_.dir_ / fmt::format("run/checkpoints/step-{}/model.safetensors", best.first)));
  // The weights are those that were evaluated: in other rows of other passes, hence but for rounding.
  EXPECT_NEAR(evaluate("run", true)["loss"].get<double>(), best.second, 1e-6 * best.second);
  EXPECT_NEAR(evaluate("run", false)["loss"].get<double>(), all.back().second, 1e-6 * all.back().second);
  // A second start finds it again, and nothing goes on from it.
  EXPECT_EQ(start("run", {"train.steps=6", "train.learning_rate=1"}).ending, Ending::NothingLeft);
  EXPECT_EQ(checkpoint("run", "best")["step"], best.first);
  const Outcome refused = start("branch", {"run.resume=" + folder.string(), "train.steps=6"});
  EXPECT_NE(refused.message.find("no optimizer state"), std::string::npos) << refused.message;

  Requests asked;
  ExportRequest out{(runs_.dir_ / "run").string(), (runs_.dir_ / "out").string()};
  out.best = true;
  ASSERT_EQ(export_model(out, asked).message, "");
  EXPECT_NEAR(evaluate("out", false)["loss"].get<double>(), best.second, 1e-6 * best.second);
}

// The same rows in the same shape, under whatever cap.
TEST_F(HeldOutRuns, EvaluatedAloneARunSaysTheSameBits) {
  for (const char* compute : {"f32", "bf16"}) {
    const std::string run = std::string("run-") + compute;
    ASSERT_EQ(start(run, {"eval.every=1", "eval.rows=5", "run.keep_best=on", "train.steps=8",
                          "train.learning_rate=1", "train.tokens_per_step=96",
                          std::string("train.compute=") + compute})
                  .message,
              "");
    const auto all = evaluations(run);
    const Json last = metrics(run).back(), own = evaluate_own(run, false);
    for (const auto& [key, name] : {std::pair("loss", "heldout_loss"),
                                    {"accuracy", "heldout_accuracy"},
                                    {"standard_error", "heldout_standard_error"},
                                    {"tokens", "heldout_tokens"},
                                    {"rows", "heldout_rows"},
                                    {"bits_per_byte", "heldout_bits_per_byte"}})
      EXPECT_EQ(own[key], last[name]) << key;
    const double best = std::ranges::min(all, {}, [](const auto& e) { return e.second; }).second;
    EXPECT_EQ(evaluate_own(run, true)["loss"], best);
    EXPECT_EQ(evaluate_own(run, false, {"memory.device=192KiB"})["loss"], last["heldout_loss"]);
  }
}

TEST_F(HeldOutRuns, OnlyRunsHaveTextOfTheirOwn) {
  ASSERT_EQ(start("run", {"data.heldout_paths=[]", "data.heldout=0", "train.steps=1"}).message, "");
  const auto refusal = [&](const std::string& model, int64_t seq_len) {
    EvaluateRequest request;
    request.model = (runs_.dir_ / model).string();
    request.seq_len = seq_len;
    Requests asked;
    return sluice::core::evaluate(request, asked).message;
  };
  EXPECT_NE(refusal("run", 0).find("the run holds no text out (data.heldout = 0); name files"),
            std::string::npos)
      << refusal("run", 0);
  EXPECT_NE(refusal("run", 8).find("--seq-len 8: "), std::string::npos) << refusal("run", 8);
  const std::string checkpoint = "run/checkpoints/latest";
  EXPECT_NE(refusal(checkpoint, 0).find("is not the directory of a run"), std::string::npos)
      << refusal(checkpoint, 0);
}

TEST_F(HeldOutRuns, TheLastModelIsTheBestOfARunThatGetsBetter) {
  ASSERT_EQ(start("run", {"run.keep_best=auto", "train.steps=4"}).message, "");
  EXPECT_EQ(checkpoint("run", "best")["step"], 4);
  EXPECT_EQ(std::filesystem::hard_link_count(runs_.dir_ / "run/checkpoints/best/model.safetensors"), 2u)
      << "it costs nothing";
  ASSERT_EQ(start("off", {"run.keep_best=off", "train.steps=4"}).message, "");
  EXPECT_FALSE(std::filesystem::exists(runs_.dir_ / "off/checkpoints/best"));
  ExportRequest out{(runs_.dir_ / "off").string(), (runs_.dir_ / "out").string()};
  out.best = true;
  Requests asked;
  EXPECT_NE(export_model(out, asked).message.find("no best model"), std::string::npos);
}

TEST_F(HeldOutRuns, PatienceEndsARunThatGetsNoBetter) {
  const std::vector<std::string> stuck{"eval.every=auto", "train.steps=30", "train.learning_rate=0",
                                       "eval.patience=2"};
  ASSERT_EQ(start("run", stuck).message, "");
  const int last = evaluations("run").back().first;
  EXPECT_EQ(last, 4) << "after every second step: 10 evaluations lie between the ends of 30";
  EXPECT_EQ(metrics("run").back()["step"], last);
  EXPECT_EQ(checkpoint("run", "latest")["step"], last);
  EXPECT_EQ(checkpoint("run", "latest")["heldout"]["since"], 2);
  EXPECT_EQ(start("run", stuck).ending, Ending::NothingLeft);
  std::vector<std::string> longer = stuck;
  longer.back() = "eval.patience=3";
  ASSERT_EQ(start("run", longer).message, "");
  EXPECT_EQ(evaluations("run").back().first, 6);
  EXPECT_EQ(start("none", {"data.heldout_paths=[]", "data.heldout=0", "eval.patience=2"}).ending,
            Ending::Failed);
}

// What evaluations found, and what follows from it, is as if nobody had stopped the run.
TEST_F(HeldOutRuns, ARunThatGoesOnDecidesAsOneThatWasNotStopped) {
  const std::vector<std::string> settings{"eval.every=auto", "train.steps=4", "run.keep_best=on"};
  ASSERT_EQ(start("whole", settings).message, "");
  ASSERT_EQ(start("cut", settings).message, "");
  runs_.cut_to("cut", 2, 3);
  // Under another cap, and so with other predicted times.
  std::vector<std::string> capped = settings;
  capped.push_back("memory.device=1536KiB");
  ASSERT_EQ(start("cut", capped).message, "");
  EXPECT_EQ(checkpoint("cut", "step-4")["heldout"], checkpoint("whole", "step-4")["heldout"]);
  EXPECT_EQ(evaluations("cut"), evaluations("whole"));
  EXPECT_EQ(checkpoint("cut", "best")["step"], checkpoint("whole", "best")["step"]);
}

}  // namespace
}  // namespace sluice::core
