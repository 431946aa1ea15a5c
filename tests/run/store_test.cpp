// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: which stay, what `latest` names, and what killed saves leave.
#include "state/store.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

CheckpointStore opened(const TempDir& dir, Retention retention = {}) {
  auto store = CheckpointStore::open(dir / "checkpoints", retention);
  EXPECT_TRUE(store.ok()) << store.message();
  return std::move(*store);
}

Status save(CheckpointStore& store, int64_t step) {
  return store.save(step, [](const fs::path& to) {
    std::ofstream(to / "file") << "content";
    return Status();
  });
}

std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(path)) out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(CheckpointStore, KeepsTheNewestAndEveryNth) {
  const TempDir dir;
  CheckpointStore store = opened(dir, {2, 10});
  EXPECT_FALSE(store.latest());
  EXPECT_FALSE(latest_checkpoint(store.dir()));
  for (const int64_t step : {5, 9, 10, 15, 20, 25, 26}) {
    ASSERT_TRUE(save(store, step).ok());
    EXPECT_EQ(store.latest(), step);
    EXPECT_EQ(fs::read_symlink(store.dir() / "latest"), store.at(step).filename());
    EXPECT_EQ(latest_checkpoint(store.dir()), store.at(step));
  }
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{10, 20, 25, 26}));
  EXPECT_EQ(names_in(store.dir()),
            (std::vector<std::string>{"latest", "step-10", "step-20", "step-25", "step-26"}));
  EXPECT_EQ(opened(dir).steps(), store.steps());
}

TEST(CheckpointStore, AFailedSaveLeavesWhatWasThere) {
  const TempDir dir;
  CheckpointStore store = opened(dir, {1});
  ASSERT_TRUE(save(store, 1).ok());
  const Status failed = store.save(2, [](const fs::path& to) -> Status {
    std::ofstream(to / "file") << "half";
    return error("the disk is gone");
  });
  EXPECT_EQ(failed.message(), "the disk is gone");
  EXPECT_EQ(names_in(store.dir()), (std::vector<std::string>{"latest", "step-1"}));
  EXPECT_EQ(store.latest(), 1);
}

TEST(CheckpointStore, WritesAStepOnceAndNoneBeforeTheNewest) {
  const TempDir dir;
  CheckpointStore store = opened(dir);
  ASSERT_TRUE(save(store, 7).ok());
  EXPECT_TRUE(store.save(7, [](const fs::path&) -> Status { return error("written twice"); }).ok());
  const Status before = save(store, 3);
  ASSERT_FALSE(before.ok());
  EXPECT_NE(before.message().find("step 7"), std::string::npos) << before.message();
}

// Whatever a process was doing when it was killed: what it left goes, and the link is made true.
TEST(CheckpointStore, CleansUpAfterKilledProcesses) {
  const TempDir dir;
  {
    CheckpointStore store = opened(dir);
    ASSERT_TRUE(save(store, 1).ok());
    ASSERT_TRUE(save(store, 2).ok());
  }
  fs::remove(dir / "checkpoints/latest");
  fs::create_symlink("step-1", dir / "checkpoints/latest");
  fs::create_symlink("step-2", dir / "checkpoints/latest.tmp");
  dir.add("checkpoints/step-0.tmp/file", "of a removal");
  dir.add("checkpoints/step-3.tmp/file", "of a save");
  dir.add("checkpoints/notes.tmp", "someone else's");
  dir.add("checkpoints/step-03/file", "someone else's");
  EXPECT_EQ(latest_checkpoint(dir / "checkpoints"), dir / "checkpoints/step-2");
  const CheckpointStore store = opened(dir);
  EXPECT_EQ(names_in(store.dir()),
            (std::vector<std::string>{"latest", "notes.tmp", "step-03", "step-1", "step-2"}));
  EXPECT_EQ(fs::read_symlink(store.dir() / "latest"), "step-2");
}

}  // namespace
}  // namespace sluice::core
