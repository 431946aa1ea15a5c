// SPDX-License-Identifier: Apache-2.0
// A directory that is replaced: readers find the old one or the new one, whole.
#include "io/directory.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

using Swap = AtomicDirectory::Swap;

AtomicDirectory begin(const std::filesystem::path& path, std::string_view name, std::string_view content) {
  auto directory = AtomicDirectory::create(path);
  EXPECT_TRUE(directory.ok()) << directory.message();
  EXPECT_TRUE(write_file(directory->temporary() / name, content).ok());
  return std::move(*directory);
}

std::vector<std::string> names_in(const std::filesystem::path& path) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(path)) out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

class Directories : public testing::TestWithParam<Swap> {};

TEST_P(Directories, AreReplacedWhole) {
  const TempDir dir;
  const auto path = dir / "a";
  for (const std::string name : {"first", "second", "third"}) {
    AtomicDirectory fresh = begin(path, name, "content");
    ASSERT_TRUE(fresh.commit(GetParam()).ok());
    EXPECT_EQ(names_in(path), std::vector<std::string>{name});
    EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"a"});
  }
}

INSTANTIATE_TEST_SUITE_P(Swaps, Directories, testing::Values(Swap::AtOnce, Swap::InTwoMoves),
                         [](const auto& test) {
                           return test.param == Swap::AtOnce ? "AtOnce" : "InTwoMoves";
                         });

TEST(Directory, WithoutCommitNothingChanges) {
  const TempDir dir;
  dir.add("a/old", "content");
  { const AtomicDirectory fresh = begin(dir / "a", "new", "content"); }
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"old"});
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"a"});
}

TEST(Directory, ASlashAtTheEndOfItsPathMakesNoDifference) {
  const TempDir dir;
  dir.add("a/old", "content");
  AtomicDirectory fresh = begin(dir.path() / "a/", "new", "content");
  ASSERT_TRUE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"new"});
}

TEST(Directory, WhatAKilledProcessLeftIsNoPartOfTheNext) {
  const TempDir dir;
  dir.add("a.tmp/half", "");
  dir.add("a.old/before", "");
  dir.add("a/old", "");
  AtomicDirectory fresh = begin(dir / "a", "new", "content");
  ASSERT_TRUE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"new"});
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"a"});
}

TEST(Directory, StoppedBetweenTheTwoMovesTheOldOneComesBack) {
  const TempDir dir;
  dir.add("a.old/old", "content");
  dir.add("a.tmp/new", "content");
  ASSERT_TRUE(restore_directory(dir / "a").ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"old"});
}

TEST(Directory, RestoringChangesNothingWhereOneIs) {
  const TempDir dir;
  dir.add("a/new", "content");
  dir.add("a.old/old", "content");
  ASSERT_TRUE(restore_directory(dir / "a").ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"new"});
  EXPECT_TRUE(restore_directory(dir / "none").ok());
}

}  // namespace
}  // namespace sluice::core
