// SPDX-License-Identifier: Apache-2.0
// A directory that appears: readers find it whole or not at all; and a link that is replaced.
#include "io/directory.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

AtomicDirectory begin(const fs::path& path, std::string_view name, std::string_view content) {
  auto directory = AtomicDirectory::create(path);
  EXPECT_TRUE(directory.ok()) << directory.message();
  EXPECT_TRUE(write_file(directory->temporary() / name, content).ok());
  return std::move(*directory);
}

std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(path)) out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Directory, AppearsWhole) {
  const TempDir dir;
  AtomicDirectory fresh = begin(dir / "parent/a", "new", "content");
  EXPECT_FALSE(fs::exists(dir / "parent/a"));
  ASSERT_TRUE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "parent/a"), std::vector<std::string>{"new"});
  EXPECT_EQ(names_in(dir / "parent"), std::vector<std::string>{"a"});
}

TEST(Directory, WithoutCommitNothingIsThere) {
  const TempDir dir;
  { const AtomicDirectory fresh = begin(dir / "a", "new", "content"); }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(Directory, ASlashAtTheEndOfItsPathMakesNoDifference) {
  const TempDir dir;
  AtomicDirectory fresh = begin(dir.path() / "a/", "new", "content");
  ASSERT_TRUE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"new"});
}

TEST(Directory, WhatAKilledProcessLeftIsNoPartOfTheNext) {
  const TempDir dir;
  dir.add("a.tmp/half", "");
  AtomicDirectory fresh = begin(dir / "a", "new", "content");
  ASSERT_TRUE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"new"});
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"a"});
}

TEST(Directory, NothingIsOverwritten) {
  const TempDir dir;
  AtomicDirectory fresh = begin(dir / "a", "new", "content");
  dir.add("a/old", "content");
  const auto refused = AtomicDirectory::create(dir / "a");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find((dir / "a").string()), std::string::npos) << refused.message();
  EXPECT_FALSE(fresh.commit().ok());
  EXPECT_EQ(names_in(dir / "a"), std::vector<std::string>{"old"});
}

TEST(Directory, IsRemovedWithWhatAKilledRemovalLeft) {
  const TempDir dir;
  dir.add("a.tmp/half", "");
  dir.add("a/b", "");
  ASSERT_TRUE(remove_directory(dir / "a").ok());
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(Link, IsReplacedAndReplacesNothingElse) {
  const TempDir dir;
  for (const char* target : {"a", "b"}) {
    ASSERT_TRUE(point_link(dir / "link", target).ok());
    EXPECT_EQ(fs::read_symlink(dir / "link"), target);
  }
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"link"});
  dir.add("file", "content");
  EXPECT_FALSE(point_link(dir / "file", "a").ok());
  EXPECT_FALSE(fs::is_symlink(dir / "file"));
  // As cp -rL has it.
  fs::create_directory(dir / "latest");
  const Status copied = point_link(dir / "latest", "step-2");
  EXPECT_NE(copied.message().find("latest: a directory, where a link to step-2 belongs"), std::string::npos)
      << copied.message();
}

// A file stands for a link where a file system has none.
TEST(Link, MayBeASmallFile) {
  const TempDir dir;
  dir.add("store/latest", "step-2\n");
  dir.add("store/step-2/file", "");
  EXPECT_EQ(target_of(dir / "store/latest"), "step-2");
  EXPECT_EQ(followed(dir / "store/latest"), dir / "store/step-2");
  EXPECT_EQ(followed((dir / "store/latest").string() + "/"), dir / "store/step-2");
  ASSERT_TRUE(point_link(dir / "store/latest", "step-3").ok());
  EXPECT_EQ(fs::read_symlink(dir / "store/latest"), "step-3");
  EXPECT_EQ(target_of(dir / "store/latest"), "step-3");
  EXPECT_EQ(target_of(dir / "store/none"), std::nullopt);
  for (const char* other : {"", "\n", "step-2", "step-2\nstep-3\n", "../step-2\n", "Notes\n", "a note\n"}) {
    dir.add("store/best", other);
    EXPECT_EQ(target_of(dir / "store/best"), std::nullopt) << other;
    EXPECT_EQ(followed(dir / "store/best"), dir / "store/best") << other;
    EXPECT_FALSE(point_link(dir / "store/best", "step-3").ok()) << other;
  }
}

}  // namespace
}  // namespace sluice::core
