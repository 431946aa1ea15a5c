// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: which stay, what `latest` names, and what killed saves leave.
#include "checkpoint/store.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "io/file.h"
#include "run/small_checkpoint.h"
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
  return store.save(step, [&](const fs::path& to) { return write_small(to, step); });
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

// Nobody has to remove a folder of that name before the run goes on, and none of it is lost.
TEST(CheckpointStore, WhatIsNoCheckpointIsLeftAlone) {
  const TempDir dir;
  {
    CheckpointStore store = opened(dir);
    for (const int64_t step : {4, 8}) ASSERT_TRUE(save(store, step).ok());
  }
  dir.add("checkpoints/step-99/notes", "a user's");
  dir.add("checkpoints/step-1/notes", "a user's");
  fs::create_directory(dir / "checkpoints/step-12");
  CheckpointStore store = opened(dir);
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(*newest_checkpoint(store.dir()), store.at(8));
  EXPECT_EQ(fs::read_symlink(store.dir() / "latest"), "step-8");
  for (const int64_t step : {12, 99}) ASSERT_TRUE(save(store, step).ok());
  EXPECT_EQ(names_in(store.dir()),
            (std::vector<std::string>{"latest", "step-1", "step-12", "step-12-1", "step-99", "step-99-1"}));
  EXPECT_EQ(*read_file(store.dir() / "step-99-1/notes"), "a user's");
}

// What is named as a best model and is none stays as it is, and no link leads to it.
TEST(CheckpointStore, WhatIsNoBestModelIsLeftAlone) {
  const TempDir dir;
  const auto save_best = [](CheckpointStore& store, int64_t step) {
    return store.save_best(step, [&](const fs::path& to) { return write_small(to, step); });
  };
  {
    CheckpointStore store = opened(dir);
    for (const int64_t step : {1, 2}) ASSERT_TRUE(save_best(store, step).ok());
    EXPECT_EQ(names_in(store.dir()), (std::vector<std::string>{"best", "best-2"}));
  }
  dir.add("checkpoints/best-9/notes", "a user's");
  fs::remove(dir / "checkpoints/best");
  {
    CheckpointStore store = opened(dir);
    EXPECT_EQ(store.best(), 2);
    EXPECT_EQ(best_model(store.dir()), store.best_at(2));
    EXPECT_EQ(fs::read_symlink(store.dir() / "best"), "best-2");
    ASSERT_TRUE(save_best(store, 9).ok());
    dir.add("checkpoints/best-9/notes", "a user's, too");
    ASSERT_TRUE(save_best(store, 12).ok());
    EXPECT_EQ(names_in(store.dir()), (std::vector<std::string>{"best", "best-12", "best-9", "best-9-1"}));
  }
  EXPECT_EQ(opened(dir).best(), 12);
  EXPECT_EQ(*read_file(dir / "checkpoints/best-9-1/notes"), "a user's");
  EXPECT_EQ(*read_file(dir / "checkpoints/best-9/notes"), "a user's, too");
}

TEST(CheckpointStore, RemovesNoFilesOfOthers) {
  const TempDir dir;
  CheckpointStore store = opened(dir, {1});
  ASSERT_TRUE(save(store, 1).ok());
  dir.add("checkpoints/step-1/notes", "a user's");
  for (const int64_t step : {2, 3}) ASSERT_TRUE(save(store, step).ok());
  EXPECT_EQ(names_in(store.dir()), (std::vector<std::string>{"latest", "step-1", "step-3"}));
}

// Whatever is wrong with the newest one, nothing older is taken in its place unless somebody says so.
TEST(CheckpointStore, ADamagedNewestOneIsSaidWithTheOneBefore) {
  const TempDir dir;
  CheckpointStore store = opened(dir, {9});
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(save(store, step).ok());
  dir.add("checkpoints/step-8/checkpoint.json", "{}");
  dir.add("checkpoints/step-6/optimizer.safetensors", "short");
  std::string same_size = *read_file(store.at(4) / "model.safetensors");
  same_size.back() ^= 1;
  dir.add("checkpoints/step-4/model.safetensors", same_size);
  const auto newest = newest_checkpoint(store.dir());
  ASSERT_FALSE(newest.ok());
  EXPECT_EQ(newest.error().detail("damaged"), store.at(8).string());
  EXPECT_EQ(latest_checkpoint(store.dir()), store.at(4)) << "by sizes";
  const Error e =
      with_older_one(newest.error(), store.at(8), [](const fs::path& p) { return "Take " + p.string(); });
  const std::string end =
      "; the newest whole checkpoint before it is " + store.at(2).string() + ". Take " + store.at(2).string();
  EXPECT_TRUE(e.message.ends_with(end)) << e.message;
}

TEST(CheckpointStore, OfAnotherStepIsNone) {
  const TempDir dir;
  CheckpointStore store = opened(dir);
  ASSERT_TRUE(save(store, 3).ok());
  fs::copy(store.at(3), store.at(7));
  const auto newest = newest_checkpoint(store.dir());
  ASSERT_FALSE(newest.ok());
  EXPECT_EQ(newest.message(), store.at(7).string() + ": its checkpoint.json is of step 3");
}

TEST(CheckpointStore, ALinkIsNoStore) {
  const TempDir dir;
  dir.add("outside/step-1.tmp/file", "precious");
  fs::create_directory_symlink(dir / "outside", dir / "checkpoints");
  EXPECT_FALSE(CheckpointStore::open(dir / "checkpoints").ok());
  EXPECT_TRUE(fs::exists(dir / "outside/step-1.tmp/file"));
}

// A directory that has what a save wrote, or that `latest` names, was a checkpoint.
TEST(CheckpointStore, WithoutItsManifestTheNewestOneIsDamagedToo) {
  const TempDir dir;
  {
    CheckpointStore store = opened(dir);
    for (const int64_t step : {4, 8}) ASSERT_TRUE(save(store, step).ok());
  }
  const fs::path damaged = dir / "checkpoints/step-8";
  fs::remove(damaged / "checkpoint.json");
  for (const char* left : {"some of its files", "none"}) {
    CheckpointStore store = opened(dir);
    const auto newest = newest_checkpoint(store.dir());
    ASSERT_FALSE(newest.ok()) << left;
    EXPECT_EQ(newest.error().detail("damaged"), damaged.string());
    EXPECT_EQ(fs::read_symlink(store.dir() / "latest"), "step-8") << "who goes on says from where";
    for (const auto& file : fs::directory_iterator(damaged)) fs::remove(file.path());
  }
  fs::rename(damaged, dir / "aside");
  CheckpointStore store = opened(dir);
  EXPECT_EQ(*newest_checkpoint(store.dir()), store.at(4));
  EXPECT_EQ(fs::read_symlink(store.dir() / "latest"), "step-4");
}

}  // namespace
}  // namespace sluice::core
