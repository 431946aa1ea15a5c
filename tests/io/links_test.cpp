// SPDX-License-Identifier: Apache-2.0
// Whoever may write to a directory in which files are made puts links there, under the names that these files
// have: no file outside of it is written to, emptied or removed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "io/directory.h"
#include "io/event_file.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "io/lock_file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

class Links : public testing::Test {
 protected:
  Links() { fs::create_directory(dir_ / "shared"); }

  fs::path link(const fs::path& name, const fs::path& target) {
    fs::create_symlink(target, dir_ / "shared" / name);
    return dir_ / "shared" / name;
  }
  void expect_precious() const { EXPECT_EQ(*read_file(precious_), "precious"); }

  TempDir dir_;
  const fs::path precious_ = dir_.add("outside/precious", "precious");
};

TEST_F(Links, ALockIsNone) {
  const fs::path lock = link("run.lock", precious_);
  EXPECT_EQ(LockFile::take(lock).message(),
            "cannot open " + lock.string() +
                ": it is a link, and links are not followed here; put a file in its "
                "place");
  expect_precious();
  // Not even one that leads to a file that is not there.
  EXPECT_FALSE(LockFile::take(link("other.lock", dir_ / "outside/new")).ok());
  EXPECT_FALSE(fs::exists(dir_ / "outside/new"));
}

TEST_F(Links, ALogIsNone) {
  EXPECT_FALSE(JsonLines::open(link("metrics.jsonl", precious_)).ok());
  expect_precious();
}

TEST_F(Links, TemporaryFilesHaveOtherNamesEachTime) {
  const fs::path path = dir_ / "shared/x";
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok()) << file.message();
    for (const auto& entry : fs::directory_iterator(dir_ / "shared")) names.insert(entry.path().filename());
  }
  EXPECT_EQ(names.size(), 3u);
}

// The names of versions before.
TEST_F(Links, TemporaryFilesAreNone) {
  link(fmt::format("x.{}.tmp", ::getpid()), precious_);
  link("events.out.tfevents.17.sluice." + std::to_string(::getpid()), precious_);
  ASSERT_TRUE(write_file(dir_ / "shared/x", "content").ok());
  ASSERT_TRUE(EventFile::create(dir_ / "shared", 17, 1).ok());
  expect_precious();
  ASSERT_TRUE(remove_temporaries(dir_ / "shared").ok());
  expect_precious();
}

TEST_F(Links, AFileThatIsOneIsReplaced) {
  const fs::path path = link("x", precious_);
  ASSERT_TRUE(write_file(path, "content").ok());
  EXPECT_FALSE(fs::is_symlink(path));
  expect_precious();
}

TEST_F(Links, DirectoriesAreNone) {
  link("step-1.tmp", dir_ / "outside");
  auto fresh = AtomicDirectory::create(dir_ / "shared/step-1");
  ASSERT_TRUE(fresh.ok()) << fresh.message();
  ASSERT_TRUE(write_file(fresh->temporary() / "precious", "content").ok());
  ASSERT_TRUE(fresh->commit().ok());
  expect_precious();
  link("step-2", dir_ / "outside");
  EXPECT_FALSE(AtomicDirectory::create(dir_ / "shared/step-2").ok());
  ASSERT_TRUE(remove_directory(dir_ / "shared/step-2").ok());
  expect_precious();
  const fs::path own = link("checkpoints", dir_ / "outside");
  EXPECT_EQ(make_own_directory(own).message(),
            "cannot use " + own.string() +
                ": it is a link, and links are not followed here; put a directory in its place");
}

}  // namespace
}  // namespace sluice::core
