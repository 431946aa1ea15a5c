// SPDX-License-Identifier: Apache-2.0
// The public train(): what it leaves in the run directory, and that its checkpoints continue.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "commands/commands.h"
#include "support/temp_dir.h"
#include "version/version.h"

namespace sluice::core {
namespace {

RunRequest request(const TempDir& dir, const std::string& run, std::vector<std::string> more) {
  const std::string model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  RunRequest r;
  r.settings = {"model.config=" + model,
                "train.seq_len=16",
                "train.tokens_per_step=32",
                "train.steps=4",
                "run.backend=cpu",
                "run.threads=1",
                "train.deferred_update=on",
                "data.cache=" + (dir / "cache").string(),
                "run.dir=" + (dir / run).string()};
  r.settings.insert(r.settings.end(), more.begin(), more.end());
  return r;
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(Train, WritesWhatItPromisesAndContinuesFromACheckpoint) {
  const TempDir dir;
  Requests asked;
  const Outcome whole = train(request(dir, "whole", {"run.checkpoint_every=2"}), asked);
  ASSERT_TRUE(whole.ok()) << whole.message;
  for (const char* file : {"metrics.jsonl", "loss.svg", "trace.json", "checkpoints/latest/model.safetensors",
                           "checkpoints/step-2/checkpoint.json"}) {
    EXPECT_FALSE(file_bytes(dir / "whole" / file).empty()) << file;
  }
  EXPECT_FALSE(nlohmann::json::parse(file_bytes(dir / "whole/trace.json"), nullptr, false).is_discarded());
  EXPECT_FALSE(std::filesystem::exists(dir / "whole/routers.html")) << "it has no routers";

  const auto checkpoint = (dir / "whole/checkpoints/step-2").string();
  const Outcome rest = train(request(dir, "rest", {"run.resume=" + checkpoint}), asked);
  ASSERT_TRUE(rest.ok()) << rest.message;
  for (const char* file :
       {"checkpoints/latest/model.safetensors", "checkpoints/latest/optimizer.safetensors"}) {
    EXPECT_TRUE(file_bytes(dir / "rest" / file) == file_bytes(dir / "whole" / file)) << file << " differs";
  }
}

// What nothing was learnt in is not saved over what may be there.
TEST(Train, StoppedBeforeItsFirstStepSavesNothing) {
  const TempDir dir;
  Requests asked;
  asked.stop = true;
  const Outcome outcome = train(request(dir, "run", {}), asked);
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(outcome.ending, Ending::Stopped);
  EXPECT_TRUE(asked.stop_is_handled);
  EXPECT_FALSE(std::filesystem::exists(dir / "run/checkpoints/latest"));
}

// Nothing is measured, planned or written before it is known where results can go.
TEST(Plan, ChecksFirstThatResultsCanBeWritten) {
  const TempDir dir;
  const std::string file = dir.add("file", "").string();
  Requests asked;
  const auto refused = [&](const std::vector<std::string>& settings, const PlanFiles& files) {
    const Outcome outcome = plan(request(dir, "run", settings), asked, files);
    EXPECT_FALSE(outcome.ok());
    EXPECT_FALSE(std::filesystem::exists(dir / "run"));
    EXPECT_FALSE(std::filesystem::exists(dir / "cache"));
    return outcome.message;
  };
  const std::string none = (dir / "none/page").string();
  EXPECT_NE(refused({}, {.html = none}).find("--html = " + none), std::string::npos);
  EXPECT_NE(refused({}, {.json = none}).find("--json = " + none), std::string::npos);
  EXPECT_NE(refused({"run.dir=" + file + "/run"}, {}).find("run.dir = " + file), std::string::npos);
}

// What a run left stays: a plan and a demo go to the next directory.
TEST(Plan, GoesBesideARun) {
  const TempDir dir;
  dir.add("run/run.lock", "");
  const auto log = dir.add("run/metrics.jsonl", "{\"step\": 1}\n");
  const auto plan_of_run = dir.add("run/plan.txt", "its plan");
  Requests asked;
  ASSERT_TRUE(plan(request(dir, "run", {}), asked).ok());
  EXPECT_EQ(file_bytes(plan_of_run), "its plan");
  EXPECT_EQ(file_bytes(log), "{\"step\": 1}\n");
  EXPECT_FALSE(file_bytes(dir / "run-2/plan.txt").empty());
  EXPECT_NE(file_bytes(dir / "run-2/config.toml").find("run-2"), std::string::npos);
}

TEST(Demo, RefusesCapsThatAreNone) {
  Requests asked;
  for (const double cap : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    DemoRequest r;
    r.seq_len = 256;
    r.size = "tiny";
    r.simulate_only = true;
    r.device_gib = cap;
    EXPECT_NE(demo(r, asked).message.find("DEVICE_GIB"), std::string::npos);
    std::swap(r.device_gib, r.host_gib);
    EXPECT_NE(demo(r, asked).message.find("HOST_GIB"), std::string::npos);
  }
}

TEST(Train, SaysWhatIsWrongWithItsSettings) {
  const TempDir dir;
  Requests asked;
  EXPECT_NE(train(request(dir, "run", {"train.stepz=1"}), asked).message.find("train.steps"),
            std::string::npos);
  const Outcome simulated = train(request(dir, "run", {"run.backend=sim"}), asked);
  EXPECT_FALSE(simulated.ok());
}

// A search for plans leaves them in the cache: nothing is there when it was refused before.
TEST(Train, RefusesWhatCannotTrainBeforeItPlans) {
  Requests asked;
  const auto refused = [&](const std::string& setting) {
    const TempDir dir;
    const Outcome outcome = train(request(dir, "run", {setting}), asked);
    EXPECT_FALSE(outcome.ok()) << setting;
    EXPECT_FALSE(std::filesystem::exists(dir / "cache/plans")) << setting;
    return outcome.message;
  };
  EXPECT_NE(refused("run.backend=sim").find("cannot train"), std::string::npos);
  EXPECT_NE(refused("run.backend=gpu").find("allowed are auto, cuda, cpu, sim"), std::string::npos);
  EXPECT_NE(refused("data.paths=[\"/nonexistent/text\"]").find("/nonexistent/text"), std::string::npos);
}

TEST(Plan, ExplainsAndCompares) {
  const TempDir dir;
  const std::string json = (dir / "plan.json").string(), html = (dir / "plan.html").string();
  Requests asked;
  const Outcome planned = plan(request(dir, "run", {}), asked, {json, html});
  ASSERT_TRUE(planned.ok()) << planned.message;
  const std::string saved = file_bytes(dir / "run/plan.json");
  EXPECT_EQ(nlohmann::json::parse(saved)["format"], "sluice plan 1");
  EXPECT_NE(saved.find("commit " + std::string(commit())), std::string::npos);
  EXPECT_TRUE(saved == file_bytes(json)) << "--json is the run directory's plan.json";
  EXPECT_EQ(file_bytes(html).rfind("<!doctype html>", 0), 0u);

  testing::internal::CaptureStdout();
  EXPECT_TRUE(diff_plans(json, json).ok());
  EXPECT_NE(testing::internal::GetCapturedStdout().find("the same"), std::string::npos);
  const Outcome no_plan = diff_plans(json, html);
  EXPECT_FALSE(no_plan.ok());
  EXPECT_EQ(no_plan.message.rfind(html + ": not JSON", 0), 0u) << no_plan.message;
  EXPECT_FALSE(diff_plans((dir / "missing.json").string(), json).ok());
}

}  // namespace
}  // namespace sluice::core
