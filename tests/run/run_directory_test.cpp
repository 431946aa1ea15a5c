// SPDX-License-Identifier: Apache-2.0
// A run directory is one process's at a time, and nothing in it that is not its own is replaced.
#include "run/directory/run_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "equivalence/rig/rig.h"
#include "run/small_checkpoint.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using Content = RunDirectory::Content;
using rig::must;

TEST(RunDirectory, ASecondUserIsToldOfTheFirst) {
  const TempDir dir;
  {
    const RunDirectory first = must(RunDirectory::take("run.dir", dir / "a"));
    const auto second = RunDirectory::take("run.dir", dir / "a/");
    ASSERT_FALSE(second.ok());
    char host[256] = {};
    ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
    EXPECT_EQ(second.message(), fmt::format("run.dir = {}: process {} on {} uses this directory",
                                            (dir / "a").string(), ::getpid(), host));
  }
  EXPECT_TRUE(RunDirectory::take("run.dir", dir / "a").ok());
}

// What a killed process leaves is its name, and no lock.
TEST(RunDirectory, OfAProcessThatIsGoneCanBeTaken) {
  const TempDir dir;
  dir.add("a/run.lock", "999999 elsewhere\n");
  dir.add("a/metrics.jsonl", "{}\n");
  const RunDirectory taken = must(RunDirectory::take("run.dir", dir / "a"));
  EXPECT_EQ(taken.content(), Content::Run);
}

TEST(RunDirectory, IsCleanedOfWhatKilledProcessesLeft) {
  const TempDir dir;
  dir.add("a/run.lock", "999999 elsewhere\n");
  for (const char* gone : {"a/config.toml.123.tmp", "a/checkpoints/step-9.tmp/file"}) dir.add(gone, "");
  for (const char* stays : {"a/notes.tmp", "a/x.1a.tmp", "a/checkpoints/step-8/file"}) dir.add(stays, "");
  must(write_small(dir / "a/checkpoints/step-8", 8));
  fs::create_symlink("step-7", dir / "a/checkpoints/latest");
  const RunDirectory taken = must(RunDirectory::take("run.dir", dir / "a"));
  for (const char* gone : {"a/config.toml.123.tmp", "a/checkpoints/step-9.tmp"})
    EXPECT_FALSE(fs::exists(dir / gone)) << gone;
  for (const char* stays : {"a/notes.tmp", "a/x.1a.tmp", "a/checkpoints/step-8/file"})
    EXPECT_TRUE(fs::exists(dir / stays)) << stays;
  EXPECT_EQ(fs::read_symlink(dir / "a/checkpoints/latest"), "step-8");
}

TEST(RunDirectory, WithoutResultsIsLeftAsItWas) {
  const TempDir dir;
  { const RunDirectory made = must(RunDirectory::take("run.dir", dir / "a/b")); }
  EXPECT_FALSE(fs::exists(dir / "a/b"));
  const fs::path log = dir.add("b/log.txt", "somebody's");
  { const RunDirectory named = must(RunDirectory::take("run.dir", dir / "b")); }
  EXPECT_TRUE(fs::exists(log));
  EXPECT_FALSE(fs::exists(dir / "b/run.lock"));
}

TEST(RunDirectory, ThatIsNotThereAnyMoreIsNoticed) {
  const TempDir dir;
  const RunDirectory taken = must(RunDirectory::take("run.dir", dir / "a"));
  EXPECT_TRUE(taken.check().ok());
  fs::rename(dir / "a", dir / "b");
  const std::string said = fmt::format(
      "run.dir = {}: the directory was removed, moved or replaced while this run used it; nothing is written "
      "to "
      "what has its name now",
      (dir / "a").string());
  EXPECT_EQ(taken.check().message(), said);
  {
    const RunDirectory other = must(RunDirectory::take("run.dir", dir / "a"));
    EXPECT_EQ(taken.check().message(), said);
    EXPECT_TRUE(other.check().ok());
  }
  fs::remove_all(dir / "a");
  fs::rename(dir / "b", dir / "a");
  EXPECT_TRUE(taken.check().ok());
}

TEST(RunDirectory, WithResultsKeepsItsMark) {
  const TempDir dir;
  {
    const RunDirectory made = must(RunDirectory::take("run.dir", dir / "a"));
    dir.add("a/plan.txt", "");
  }
  EXPECT_TRUE(fs::exists(dir / "a/run.lock"));
  EXPECT_EQ(must(RunDirectory::take("run.dir", dir / "a")).content(), Content::Plan);
}

TEST(RunDirectory, FilesOfOthersAreNotReplaced) {
  for (const char* name : {"plan.txt", "config.toml", "metrics.jsonl", "checkpoints/a", "demo.json"}) {
    const TempDir dir;
    dir.add(fmt::format("a/{}", name), "somebody's");
    const auto taken = RunDirectory::take("run.dir", dir / "a");
    ASSERT_FALSE(taken.ok()) << name;
    EXPECT_NE(taken.message().find(fs::path(name).begin()->string()), std::string::npos) << taken.message();
    EXPECT_FALSE(fs::exists(dir / "a/run.lock"));
  }
}

TEST(RunDirectory, SaysWhatIsInIt) {
  const TempDir dir;
  const RunDirectory taken = must(RunDirectory::take("run.dir", dir / "a"));
  EXPECT_EQ(taken.content(), Content::Nothing);
  dir.add("a/metrics.jsonl", "");  // of a run that was stopped before its first step
  fs::create_directory(dir / "a/checkpoints");
  EXPECT_EQ(taken.content(), Content::Nothing);
  dir.add("a/plan.json", "");
  EXPECT_EQ(taken.content(), Content::Plan);
  dir.add("a/demo.json", "");
  EXPECT_EQ(taken.content(), Content::Demo);
  dir.add("a/checkpoints/step-1/config.json", "");
  EXPECT_EQ(taken.content(), Content::Run);
}

TEST(RunDirectory, TheNextFreeOneIsNumbered) {
  const TempDir dir;
  const auto free = [&](Content most = Content::Plan) {
    return must(RunDirectory::take_free("run.dir", dir / "lr-0.1/", most)).path().filename().string();
  };
  EXPECT_EQ(free(), "lr-0.1");
  dir.add("lr-0.1/run.lock", "");
  dir.add("lr-0.1/plan.txt", "");
  EXPECT_EQ(free(), "lr-0.1") << "a plan is made again";
  dir.add("lr-0.1/demo.json", "");
  EXPECT_EQ(free(Content::Demo), "lr-0.1");
  EXPECT_EQ(free(), "lr-0.1-2");
  dir.add("lr-0.1-2/plan.txt", "somebody's");
  EXPECT_EQ(free(), "lr-0.1-3");
  const RunDirectory used = must(RunDirectory::take("run.dir", dir / "lr-0.1-3"));
  EXPECT_EQ(free(), "lr-0.1-4");
}

}  // namespace
}  // namespace sluice::core
