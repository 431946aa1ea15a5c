// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "host/mapped_ranges.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

size_t entries(const fs::path& directory) {
  return size_t(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(File, ReadsWhatWasWritten) {
  TempDir dir;
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(write_file(dir / "x", content).ok());
  EXPECT_EQ(*read_file(dir / "x"), content);
}

TEST(File, WriteReplacesAndLeavesNoTemporary) {
  TempDir dir;
  ASSERT_TRUE(write_file(dir / "x", "long old content").ok());
  ASSERT_TRUE(write_file(dir / "x", "new").ok());
  EXPECT_EQ(*read_file(dir / "x"), "new");
  EXPECT_EQ(entries(dir.path()), 1u);
}

TEST(File, ErrorsNamePathAndReason) {
  const std::string message = read_file("/no/such/file").message();
  EXPECT_NE(message.find("/no/such/file"), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  EXPECT_NE(write_file("/no/such/dir/x", "").message().find("/no/such/dir/x"), std::string::npos);
}

TEST(File, WhatIsNotThereIsToldFromWhatFails) {
  const TempDir dir;
  EXPECT_EQ(read_file(dir / "none").error().kind, ErrorKind::NotFound);
  EXPECT_EQ(list_files(dir / "none").error().kind, ErrorKind::NotFound);
  EXPECT_EQ(read_file(dir.path()).error().kind, ErrorKind::Io);
  EXPECT_EQ(make_directories(dir.add("file", "")).error().kind, ErrorKind::Io);
}

TEST(File, RefusesWhatNeverEndsOrWaitsForEver) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {fs::path("/dev/zero"), dir / "pipe", dir.path()}) {
    const std::string said = "cannot read " + path.string() + ": not a regular file";
    EXPECT_EQ(read_file(path).message(), said);
    EXPECT_EQ(MappedFile::open(path).message(), said);
    EXPECT_EQ(checksum_of_file(path).message(), said);
  }
}

TEST(File, RefusesMoreThanMakesSense) {
  const TempDir dir;
  const fs::path path = dir.add("x", std::string(100, 'a'));
  EXPECT_EQ(read_file(path, 100)->size(), 100u);
  const Error e = read_file(path, 99).error();
  EXPECT_EQ(e.message, "cannot read " + path.string() + ": it has 100 bytes, at most 99 make sense");
  // Files of /proc have no size until they are read.
  EXPECT_GT(read_file("/proc/self/status")->size(), 100u);
  EXPECT_NE(read_file("/proc/self/status", 10).message().find("or more, at most 10"), std::string::npos);
}

TEST(File, ChecksumsAreThoseOfTheContent) {
  const TempDir dir;
  std::string content((3 << 20) + 5, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * i >> 3);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, content.size()}) {
    const std::string part = content.substr(0, size);
    EXPECT_EQ(*checksum_of_file(dir.add("x", part)), checksum_of(part)) << size;
  }
}

// Another process may cut short what is mapped; the access to what is gone cannot be undone.
TEST(MappedFileDeathTest, NamesTheFileThatWasCutShort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempDir dir;
  const fs::path path = dir.add("shrinks", std::string(1 << 16, 'x'));
  const auto read_all = [&] {
    name_files_that_shrink();
    const auto other = MappedFile::open(dir.add("stays", std::string(1 << 16, 'x')));
    const auto file = MappedFile::open(path);
    fs::resize_file(path, 10);
    int sum = 0;
    for (const std::byte b : file->bytes()) sum += int(b);
    std::exit(sum == 0 ? 2 : 3);
  };
  EXPECT_EXIT(read_all(), testing::ExitedWithCode(1), "sluice: .*shrinks was cut short");
}

TEST(File, MakesDirectories) {
  TempDir dir;
  EXPECT_TRUE(make_directories(dir / "a/b/c").ok());
  EXPECT_TRUE(make_directories(dir / "a/b/c").ok());
  EXPECT_TRUE(fs::is_directory(dir / "a/b/c"));
}

TEST(File, ADirectoryCannotReplaceAFile) {
  TempDir dir;
  dir.add("a", "");
  EXPECT_FALSE(make_directories(dir / "a").ok());
  EXPECT_FALSE(make_directories(dir / "a/b").ok());
}

TEST(File, ListsFilesSortedWithoutHiddenOnes) {
  TempDir dir;
  for (const char* name : {"b.txt", "a/z.txt", "a/.hidden", ".git/config", "a/b/c.txt"}) dir.add(name, "");
  const std::vector<fs::path> expected{"a/b/c.txt", "a/z.txt", "b.txt"};
  EXPECT_EQ(*list_files(dir.path()), expected);
}

TEST(File, ListingAMissingDirectoryIsAnError) {
  EXPECT_NE(list_files("/no/such/dir").message().find("/no/such/dir"), std::string::npos);
}

TEST(MappedFile, ShowsTheContentAndMoves) {
  TempDir dir;
  auto opened = MappedFile::open(dir.add("x", "hello"));
  ASSERT_TRUE(opened.ok());
  const MappedFile moved = std::move(*opened);
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  EXPECT_EQ(moved.path(), dir / "x");
}

// The resident bytes of this process that are pages of files, on a disk or in memory.
int64_t resident_file_bytes() {
  int64_t bytes = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    for (const std::string_view key : {"RssFile:", "RssShmem:"})
      if (line.starts_with(key)) bytes += std::stoll(line.substr(key.size())) * 1024;
  return bytes;
}

TEST(MappedFile, ReleaseTakesItOutOfResidentMemory) {
  TempDir dir;
  const std::string content(16 << 20, 'x');
  const auto file = MappedFile::open(dir.add("x", content));
  const auto touch = [&] { return std::count(file->bytes().begin(), file->bytes().end(), std::byte{'x'}); };
  EXPECT_EQ(touch(), int64_t(content.size()));
  const int64_t before = resident_file_bytes();
  file->release();
  EXPECT_LT(resident_file_bytes(), before - int64_t(content.size()) / 2);
  EXPECT_EQ(touch(), int64_t(content.size())) << "the content comes back";
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  TempDir dir;
  EXPECT_TRUE(MappedFile::open(dir.add("x", ""))->bytes().empty());
}

TEST(MappedFile, ADirectoryIsAnError) {
  TempDir dir;
  EXPECT_NE(MappedFile::open(dir.path()).message().find("not a regular file"), std::string::npos);
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  TempDir dir;
  dir.add("x", "old");
  {
    auto file = AtomicFile::create(dir / "x");
    ASSERT_TRUE(file->write_at(0, "half of it").ok());
    EXPECT_EQ(entries(dir.path()), 2u);
  }
  EXPECT_EQ(*read_file(dir / "x"), "old");
  EXPECT_EQ(entries(dir.path()), 1u);
}

TEST(AtomicFile, PiecesComeInAnyOrder) {
  TempDir dir;
  auto file = AtomicFile::create(dir / "x");
  ASSERT_TRUE(file->write_at(3, "def").ok());
  ASSERT_TRUE(file->write_at(0, "abc").ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*read_file(dir / "x"), "abcdef");
}

}  // namespace
}  // namespace sluice::core
