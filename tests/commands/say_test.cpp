// SPDX-License-Identifier: Apache-2.0
#include "commands/say.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace sluice::core {
namespace {

TEST(SayWithoutWaiting, DropsWhatNobodyTakes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int kept = dup(STDERR_FILENO);
  ASSERT_GE(dup2(ends[1], STDERR_FILENO), 0);
  const bool empty = say_without_waiting("a line\n");
  // As full as it gets.
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const std::array<char, 4096> filling{};
  while (write(ends[1], filling.data(), filling.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const bool full = say_without_waiting("another\n");
  // Somebody else is waiting.
  dup2(kept, STDERR_FILENO);
  flockfile(stderr);
  bool taken = true;
  std::thread([&] { taken = say_without_waiting(""); }).join();
  funlockfile(stderr);
  std::array<char, 7> line{};
  EXPECT_EQ(read(ends[0], line.data(), line.size()), 7);
  for (const int fd : {ends[0], ends[1], kept}) close(fd);
  EXPECT_TRUE(empty);
  EXPECT_EQ(std::string_view(line.data(), line.size()), "a line\n");
  EXPECT_FALSE(full);
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace sluice::core
