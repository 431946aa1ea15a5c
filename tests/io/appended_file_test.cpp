// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole pieces, also where there is no room for a time.
#include "io/appended_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

// Files of this process hold no more than that for as long as this lives.
class MostBytes {
 public:
  explicit MostBytes(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  ~MostBytes() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(AppendedFile, WhatThereIsNoRoomForComesWholeAndLater) {
  const TempDir dir;
  const std::filesystem::path path = dir / "log";
  auto fd = Descriptor::open_own(path, O_APPEND);
  ASSERT_TRUE(fd.ok()) << fd.message();
  AppendedFile file(path, std::move(*fd));
  ASSERT_TRUE(file.append("one\n").ok());
  {
    const MostBytes few(6);
    const Status failed = file.append("two\n");
    EXPECT_EQ(failed.message(), "cannot write " + path.string() + ": File too large");
    EXPECT_EQ(*read_file(path), "one\n") << "no half of it is there";
    EXPECT_FALSE(file.append("three\n").ok());
    EXPECT_FALSE(file.flush().ok());
  }
  ASSERT_TRUE(file.append("four\n").ok());
  EXPECT_EQ(*read_file(path), "one\ntwo\nthree\nfour\n");
  EXPECT_TRUE(file.flush().ok());
}

}  // namespace
}  // namespace sluice::core
