// SPDX-License-Identifier: Apache-2.0
// What a second start in a run directory does: it goes on, refuses, or finds nothing left to do, and nothing
// of value is replaced.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "commands/text_runs.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

std::vector<nlohmann::json> metrics_of(const fs::path& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Everything that a line says of its step beside when, how fast and in how much memory.
std::vector<std::string> results_of(const fs::path& run) {
  std::vector<std::string> out;
  for (nlohmann::json line : metrics_of(run)) {
    for (const char* key : {"time", "step_ms", "tokens_per_s", "mfu", "predicted_ms", "planned_ms", "differs",
                            "host_bytes", "device_bytes"})
      line.erase(key);
    out.push_back(line.dump());
  }
  return out;
}

class GoingOn : public testing::Test, protected TextRuns {};

TEST_F(GoingOn, WhereverItWasKilled) {
  ASSERT_EQ(start("whole").message, "");
  const std::vector<std::string> results = results_of(dir_ / "whole");
  ASSERT_EQ(results.size(), 4u);
  EXPECT_TRUE(nlohmann::json::parse(results[1]).contains("heldout_loss"));
  EXPECT_TRUE(nlohmann::json::parse(results[3]).contains("heldout_loss"));
  for (int step = 1; step < 4; ++step) {
    for (int logged = step; logged <= 4; ++logged) {
      fs::remove_all(dir_ / "run");
      fs::copy(dir_ / "whole", dir_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      cut_to("run", step, logged);
      const Outcome done = start("run");
      ASSERT_EQ(done.ending, Ending::Done) << done.message;
      EXPECT_EQ(results_of(dir_ / "run"), results) << step << " " << logged;
      EXPECT_TRUE(weights("run") == weights("whole"));
      EXPECT_FALSE(fs::exists(dir_ / "run/metrics-1.jsonl"));
      EXPECT_TRUE(file_bytes(dir_ / "run/loss.svg").size() > 1000);
    }
  }
}

TEST_F(GoingOn, LinesSayWhenAndHowFast) {
  const auto now = [] { return double(std::chrono::system_clock::now().time_since_epoch().count()) / 1e9; };
  const double before = now();
  ASSERT_EQ(start("run", {"eval.every=0"}).message, "");
  double last = before - 0.001;
  for (const auto& line : metrics_of(dir_ / "run")) {
    EXPECT_GE(line["time"].get<double>(), last);
    last = line["time"];
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * line["step_ms"].get<double>(), 32e3, 1);
    EXPECT_GT(line["mfu"].get<double>(), 0);
    EXPECT_EQ(line.contains("heldout_loss"), line["step"] == 4);
  }
  EXPECT_LE(last, now() + 0.001);
}

TEST_F(GoingOn, FindsNothingLeftToDo) {
  ASSERT_EQ(start("run").message, "");
  const std::string metrics = file_bytes(dir_ / "run/metrics.jsonl"), before = weights("run");
  testing::internal::CaptureStdout();
  const Outcome again = start("run");
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(again.ending, Ending::NothingLeft) << again.message;
  EXPECT_NE(said.find("nothing left to do"), std::string::npos) << said;
  EXPECT_EQ(file_bytes(dir_ / "run/metrics.jsonl"), metrics);
  EXPECT_TRUE(weights("run") == before);
  // The same for a branch, which leaves no directory behind.
  const std::string resume = "run.resume=" + (dir_ / "run/checkpoints/latest").string();
  EXPECT_EQ(start("branch", {resume}).ending, Ending::NothingLeft);
  EXPECT_FALSE(fs::exists(dir_ / "branch"));
}

TEST_F(GoingOn, RefusesAnotherRunAndSaysWhatDiffers) {
  ASSERT_EQ(start("run").message, "");
  const std::string metrics = file_bytes(dir_ / "run/metrics.jsonl"),
                    config = file_bytes(dir_ / "run/config.toml");
  const Outcome other = start("run", {"train.seed=2", "train.steps=6", "train.min_learning_rate=0"});
  EXPECT_EQ(other.ending, Ending::Failed);
  for (const char* part :
       {"train.seed is 2, it was 1", "train.steps is 6, it was 4 (--allow steps)",
        "train.min_learning_rate is 0, it was 0.001 (--allow learning_rate)", "--new", "model.weights = "}) {
    EXPECT_NE(other.message.find(part), std::string::npos) << other.message << "\nlacks: " << part;
  }
  EXPECT_EQ(file_bytes(dir_ / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(file_bytes(dir_ / "run/config.toml"), config);
}

TEST_F(GoingOn, AllowsWhatIsSaid) {
  ASSERT_EQ(start("run").message, "");
  RunRequest more = request("run", {"train.steps=6", "train.min_learning_rate=0"});
  more.allow = "steps";
  EXPECT_EQ(start(more).ending, Ending::Failed);
  more.allow = "steps,learning_rate";
  ASSERT_EQ(start(more).message, "");
  EXPECT_EQ(metrics_of(dir_ / "run").size(), 6u);
  // From here on that is the run.
  more.allow = "";
  EXPECT_EQ(start(more).ending, Ending::NothingLeft);
  more.allow = "everything";
  EXPECT_NE(
      start(more).message.find("allowed are formats, adapter, data, steps, learning_rate, freeze, backend"),
      std::string::npos);
}

std::vector<nlohmann::json> samples_of(const fs::path& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run / "samples.jsonl");
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line));
    lines.back().erase("time");
  }
  return lines;
}

TEST_F(GoingOn, SamplesAreALineForEachTimeAndChangeNothing) {
  const std::vector<std::string> sampling{"sample.every=1", "sample.texts=2", "train.deferred_update=on"};
  ASSERT_EQ(start("none", {"sample.tokens=0", "train.deferred_update=on"}).message, "");
  EXPECT_FALSE(fs::exists(dir_ / "none/samples.jsonl"));
  ASSERT_EQ(start("whole", sampling).message, "");
  EXPECT_EQ(results_of(dir_ / "whole"), results_of(dir_ / "none"));
  EXPECT_TRUE(weights("whole") == weights("none"));
  const auto samples = samples_of(dir_ / "whole");
  ASSERT_EQ(samples.size(), 4u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i]["step"], i + 1);
    EXPECT_EQ(samples[i]["prompt"], "// ");
    ASSERT_EQ(samples[i]["texts"].size(), 2u);
    EXPECT_NE(samples[i]["texts"][0], samples[i]["texts"][1]);
  }
  fs::copy(dir_ / "whole", dir_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  cut_to("run", 2, 4);
  ASSERT_EQ(start("run", sampling).message, "");
  EXPECT_EQ(samples_of(dir_ / "run"), samples);
}

// Such a run was begun by a program whose default was no tenth of the rate, or by a configuration that said
// more.
TEST_F(GoingOn, KeepsTheSmallestRateThatIsLeftOpen) {
  ASSERT_EQ(start("whole", {"train.min_learning_rate=1e-4"}).message, "");
  fs::copy(dir_ / "whole", dir_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  cut_to("run", 2, 2);
  ASSERT_EQ(start("run").message, "");
  EXPECT_EQ(results_of(dir_ / "run"), results_of(dir_ / "whole"));
  // Of another rate it is another tenth.
  RunRequest other = request("run", {"train.learning_rate=1e-3", "train.steps=5"});
  other.allow = "steps,learning_rate";
  ASSERT_EQ(start(other).message, "");
  EXPECT_NEAR(metrics_of(dir_ / "run").back()["learning_rate"].get<double>(), 1e-4, 1e-12);
}

// Where the configuration does not say it, the rate is the run's, whatever would be chosen now; and a run
// that begins so goes on so.
TEST_F(GoingOn, KeepsTheRateThatIsLeftOpen) {
  ASSERT_EQ(start("whole").message, "");
  fs::copy(dir_ / "whole", dir_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  cut_to("run", 2, 2);
  ASSERT_EQ(start("run", {"train.learning_rate=auto"}).message, "");
  EXPECT_EQ(results_of(dir_ / "run"), results_of(dir_ / "whole"));
  ASSERT_EQ(start("open", {"train.learning_rate=auto"}).message, "");
  EXPECT_EQ(file_bytes(dir_ / "open/config.toml").find("learning_rate = \"auto\"  # peak"),
            std::string::npos);
  EXPECT_EQ(start("open", {"train.learning_rate=auto"}).ending, Ending::NothingLeft);
}

TEST_F(GoingOn, AnewTakesTheNextDirectory) {
  ASSERT_EQ(start("run").message, "");
  const std::string before = weights("run");
  RunRequest other = request("run", {"train.seed=2"});
  other.anew = true;
  for (const char* next : {"run-2", "run-3"}) {
    ASSERT_EQ(start(other).message, "");
    EXPECT_FALSE(weights(next).empty());
  }
  EXPECT_TRUE(weights("run") == before);
  // Each is a run of its own.
  EXPECT_EQ(start("run-2", {"train.seed=2"}).ending, Ending::NothingLeft);
}

TEST_F(GoingOn, ABranchKeepsItsBeginning) {
  ASSERT_EQ(start("run").message, "");
  const Outcome run = start("branch", {"run.resume=" + (dir_ / "run").string()});
  EXPECT_NE(run.message.find("/run: a run's directory; name one of its checkpoints, such as "),
            std::string::npos)
      << run.message;
  const std::string resume = "run.resume=" + (dir_ / "run/checkpoints/step-2").string();
  ASSERT_EQ(start("branch", {resume}).message, "");
  EXPECT_EQ(results_of(dir_ / "branch"), results_of(dir_ / "run"));
  EXPECT_TRUE(weights("branch") == weights("run"));
  cut_to("branch", 3, 3);
  // The same command goes on with the branch, and so does one that leaves the beginning out.
  ASSERT_EQ(start("branch", {resume}).ending, Ending::Done);
  cut_to("branch", 3, 3);
  ASSERT_EQ(start("branch").ending, Ending::Done);
  EXPECT_EQ(start("branch", {resume}).ending, Ending::NothingLeft);
  EXPECT_EQ(results_of(dir_ / "branch"), results_of(dir_ / "run"));
  // Going back would lose steps that were made.
  const Outcome back = start("run", {resume});
  EXPECT_NE(back.message.find("goes on from its own step-4"), std::string::npos) << back.message;
  const std::string own = "run.resume=" + (dir_ / "run/checkpoints/latest").string();
  EXPECT_EQ(start("run", {own}).ending, Ending::NothingLeft);
}

TEST_F(GoingOn, StepsWithoutACheckpointAreSetAside) {
  dir_.add("run/run.lock", "");
  dir_.add("run/metrics.jsonl", "{\"step\": 1}\n");
  ASSERT_EQ(start("run").message, "");
  EXPECT_EQ(file_bytes(dir_ / "run/metrics-1.jsonl"), "{\"step\": 1}\n");
  EXPECT_EQ(metrics_of(dir_ / "run").size(), 4u);
}

TEST_F(GoingOn, RefusesWhatIsNoRun) {
  dir_.add("demo/run.lock", "");
  const fs::path demo = dir_.add("demo/demo.json", "{}");
  EXPECT_NE(start("demo").message.find("sluice demo"), std::string::npos);
  const fs::path theirs = dir_.add("theirs/config.toml", "theirs");
  EXPECT_NE(start("theirs").message.find("config.toml there"), std::string::npos);
  EXPECT_EQ(file_bytes(theirs), "theirs");
  EXPECT_EQ(file_bytes(demo), "{}");
}

TEST_F(GoingOn, ASecondProcessIsRefused) {
  Requests asked;
  Outcome first;
  std::thread user([&] { first = train(request("run", {"train.steps=1000000", "eval.every=0"}), asked); });
  while (!asked.stop_is_handled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Outcome second = start("run");
  asked.stop = true;
  user.join();
  EXPECT_EQ(second.ending, Ending::Failed);
  EXPECT_NE(second.message.find(fmt::format("process {} on ", ::getpid())), std::string::npos)
      << second.message;
  EXPECT_TRUE(first.ok()) << first.message;
}

TEST_F(GoingOn, SavesWhenAskedAndGoesOn) {
  Requests asked;
  asked.save = true;
  ASSERT_EQ(train(request("run", {"run.checkpoint_every=0"}), asked).message, "");
  EXPECT_FALSE(asked.save);
  EXPECT_TRUE(fs::exists(dir_ / "run/checkpoints/step-1"));
  EXPECT_TRUE(fs::exists(dir_ / "run/checkpoints/step-4"));
}

TEST_F(GoingOn, NoOlderCheckpointIsTakenWithoutAWord) {
  ASSERT_EQ(start("run").message, "");
  fs::remove(dir_ / "run/checkpoints/step-4/checkpoint.json");
  const std::string message = start("run").message,
                    move =
                        fmt::format("mv {0}/checkpoints/step-4 {0}/damaged-step-4", (dir_ / "run").string());
  for (const std::string& part :
       {std::string("step-4/checkpoint.json"), "To go on from step-3, type: " + move})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  for (int step = 1; step < 4; ++step) fs::remove_all(dir_ / fmt::format("run/checkpoints/step-{}", step));
  EXPECT_NE(start("run").message.find("To begin anew, type: " + move), std::string::npos);
}

// A report that cannot be written ends no run: it is said once, and tried again.
TEST_F(GoingOn, WhatCannotBeDrawnOrLoggedEndsNoRun) {
  ASSERT_EQ(start("run").message, "");
  for (const char* file : {"loss.svg", "trace.json"}) {
    fs::remove(dir_ / "run" / file);
    dir_.add(fmt::format("run/{}/something", file), "in the way");
  }
  RunRequest more = request("run", {"train.steps=8", "run.trace=true"});
  more.allow = "steps";
  testing::internal::CaptureStderr();
  const Outcome done = start(more);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(done.ending, Ending::Done) << done.message;
  EXPECT_EQ(metrics_of(dir_ / "run").size(), 8u);
  EXPECT_TRUE(fs::exists(dir_ / "run/checkpoints/step-8/checkpoint.json"));
  for (const char* file : {"loss.svg", "trace.json"}) {
    const std::string words = (dir_ / "run" / file).string();
    const size_t at = said.find(words);
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find(words, at + 1), std::string::npos) << "once: " << said;
  }
  EXPECT_NE(said.find("; the run goes on, and this is tried again"), std::string::npos) << said;
}

TEST_F(GoingOn, ALogThatIsAPipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(start("run").message, "");
  fs::remove(dir_ / "run/metrics.jsonl");
  ASSERT_EQ(::mkfifo((dir_ / "run/metrics.jsonl").c_str(), 0600), 0);
  RunRequest more = request("run", {"train.steps=6"});
  more.allow = "steps";
  EXPECT_NE(start(more).message.find("metrics.jsonl: not a regular file"), std::string::npos);
}

TEST_F(GoingOn, WhatAKilledProcessWroteToSeeTheDirectoryIsRemoved) {
  ASSERT_EQ(start("run").message, "");
  const fs::path seen = dir_.add("run/.seen-0123456789abcdef.1.tmp", "/run");
  EXPECT_EQ(start("run").ending, Ending::NothingLeft);
  EXPECT_FALSE(fs::exists(seen));
}

// Nothing differs from what was never there.
TEST_F(GoingOn, AnAllowanceWithoutARunToGoOnIsSaid) {
  RunRequest first = request("run");
  first.allow = "steps";
  testing::internal::CaptureStderr();
  ASSERT_EQ(start(first).message, "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--allow steps: the run begins here"),
            std::string::npos);
}

// The default is as long as a shorter run, and a run that began with another one keeps it.
TEST_F(GoingOn, KeepsTheWarmUpThatIsLeftOpen) {
  const std::string open = "train.warmup_steps=auto";
  ASSERT_EQ(start("short", {open}).message, "");
  EXPECT_NEAR(metrics_of(dir_ / "short")[0]["learning_rate"].get<double>(), 1e-2 / 4, 1e-12);
  EXPECT_NEAR(metrics_of(dir_ / "short")[3]["learning_rate"].get<double>(), 1e-2, 1e-12);
  ASSERT_EQ(start("whole", {"train.warmup_steps=10"}).message, "");
  fs::copy(dir_ / "whole", dir_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  cut_to("run", 2, 2);
  ASSERT_EQ(start("run", {open}).message, "");
  EXPECT_EQ(results_of(dir_ / "run"), results_of(dir_ / "whole"));
}

TEST_F(GoingOn, ADateThatIsNoneIsRefusedWhereNoTemplateAsks) {
  for (const char* date : {"2026-13-45", "x"})
    EXPECT_EQ(start("run", {fmt::format("data.date={}", date)}).message,
              fmt::format("data.date: '{}' is no date; dates are written YYYY-MM-DD", date));
}

}  // namespace
}  // namespace sluice::core
