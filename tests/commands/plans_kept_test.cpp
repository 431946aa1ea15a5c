// SPDX-License-Identifier: Apache-2.0
// The plan that one start shows is the plan that the next one runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "commands/commands.h"
#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

TEST(PlansKept, EqualStartsShareOneEntry) {
  const TempDir dir;
  Requests nobody_asks;
  RunRequest request;
  const std::string model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  request.settings = {"model.config=" + model, "train.seq_len=16", "train.tokens_per_step=32",
                      "train.steps=1", "sample.tokens=0", "run.backend=cpu", "run.threads=1",
                      // A cap on the host makes plans depend on what the process holds there.
                      "memory.host=1GiB", "data.cache=" + (dir / "cache").string(),
                      "run.dir=" + (dir / "shown").string()};
  const auto kept = [&] {
    std::set<std::string> names;
    const auto files = list_files(dir / "cache/plans");
    EXPECT_TRUE(files.ok());
    for (const auto& file : *files) names.insert(file.string().substr(0, 5));
    EXPECT_EQ(names.size(), files->size()) << "more than one of a kind";
    return names;
  };
  const std::set<std::string> shape_and_plans{"plans", "shape"};
  ASSERT_TRUE(simulate(request, nobody_asks).ok());
  EXPECT_EQ(kept(), shape_and_plans);
  // Some pages more than before, as from start to start.
  std::vector<char> held(300 << 10, 1);
  ASSERT_TRUE(simulate(request, nobody_asks).ok());
  EXPECT_EQ(kept(), shape_and_plans);
  const std::string shown = *read_file(dir / "shown/predicted.json");
  request.settings.back() = "run.dir=" + (dir / "run").string();
  Requests asked;
  const Outcome trained = train(request, asked);
  ASSERT_TRUE(trained.ok()) << trained.message;
  EXPECT_EQ(kept(), shape_and_plans);
  EXPECT_EQ(held.back(), 1);
  EXPECT_TRUE(*read_file(dir / "run/predicted.json") == shown) << "another plan";
}

// Stopped, a search gives the first plan of what it has, keeps none, and the same command searches on.
TEST(PlansKept, AStoppedSearchGivesWhatItHas) {
  const TempDir dir;
  RunRequest request;
  const std::string model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  request.settings = {"model.config=" + model,
                      "train.seq_len=16",
                      "train.tokens_per_step=1024",
                      "train.steps=5",
                      "sample.tokens=0",
                      "data.cache=" + (dir / "cache").string(),
                      "run.dir=" + (dir / "run").string()};
  request.machine = "h100";
  Requests stopped, nobody_asks;
  stopped.stop = true;
  const Outcome simulated = simulate(request, stopped);
  EXPECT_EQ(simulated.ending, Ending::Interrupted) << simulated.message;
  EXPECT_FALSE(stopped.stop_is_handled);
  EXPECT_FALSE(std::filesystem::exists(dir / "cache/plans"));
  testing::internal::CaptureStdout();
  EXPECT_EQ(plan(request, stopped).ending, Ending::Interrupted);
  const std::string page = testing::internal::GetCapturedStdout();
  EXPECT_NE(page.find("note     the search was stopped: this is the first plan"), std::string::npos) << page;
  EXPECT_NE(page.find("note     train.warmup_steps = auto: the rate rises through all of the run's 5 steps"),
            std::string::npos)
      << page;
  EXPECT_EQ(simulate(request, nobody_asks).ending, Ending::Done);
  EXPECT_TRUE(std::filesystem::exists(dir / "cache/plans"));
}

// Nor does it take a plan that is kept: from the same configuration and costs the process that trains finds
// it.
TEST(PlansKept, TrainingFindsThePlanThatWasShown) {
  ::unsetenv("SLUICE_PLANS");
  const TempDir dir;
  Requests nobody_asks;
  RunRequest request;
  const std::string model = (std::filesystem::path(SLUICE_FIXTURES) / "llama_tiny" / "config.json").string();
  request.settings = {"model.config=" + model,
                      "train.seq_len=16",
                      "train.tokens_per_step=1024",
                      "train.steps=1",
                      "sample.tokens=0",
                      "run.backend=cpu",
                      "run.threads=1",
                      "shape.chunk_tokens=16",
                      "shape.rounds=64",
                      "memory.device=600KiB",
                      "memory.host=1GiB",
                      "data.cache=" + (dir / "cache").string(),
                      "run.dir=" + (dir / "shown").string()};
  ASSERT_TRUE(simulate(request, nobody_asks).ok());
  const auto of_kind = [](const std::filesystem::path& run) { return *read_file(run / "predicted.json"); };
  const std::string shown = of_kind(dir / "shown");
  for (const char* run : {"first", "second"}) {
    std::filesystem::remove_all(dir / "cache/plans");
    request.settings.back() = "run.dir=" + (dir / run).string();
    Requests asked;
    const Outcome trained = train(request, asked);
    ASSERT_TRUE(trained.ok()) << trained.message;
    EXPECT_TRUE(of_kind(dir / run) == shown) << run;
  }
}

}  // namespace
}  // namespace sluice::core
