// SPDX-License-Identifier: Apache-2.0
#include "commands/working.h"

#include <gtest/gtest.h>

#include <memory>

namespace sluice::core {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

std::string content(FILE* file) {
  std::fflush(file);
  std::string out(size_t(std::ftell(file)), '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  return out;
}

TEST(Working, WhatIsDoneSoonIsNotShown) {
  const File file(std::tmpfile(), std::fclose);
  WorkLine line(file.get(), false);
  line.tick(99);
  line.say(100, "planning");
  line.tick(101);
  line.say(101.5, "planning what-ifs");
  line.tick(101.9);
  EXPECT_EQ(content(file.get()), "");
}

TEST(Working, ManyShortWorksAreShown) {
  const File file(std::tmpfile(), std::fclose);
  WorkLine line(file.get(), false);
  for (int s = 100; s <= 108; ++s) {
    line.say(s, s % 2 == 0 ? "trying 2 GiB" : "trying 3 GiB");
    line.tick(s + 0.4);
  }
  EXPECT_EQ(content(file.get()), "trying 2 GiB\ntrying 3 GiB\n");
}

TEST(Working, IntoAPipeItIsALineNowAndThen) {
  const File file(std::tmpfile(), std::fclose);
  WorkLine line(file.get(), false);
  line.say(100, "planning");
  for (int s = 101; s <= 112; ++s) line.tick(s);
  EXPECT_EQ(content(file.get()), "planning, 2 s\nplanning, 7 s\nplanning, 12 s\n");
}

TEST(Working, PartsGiveAnEta) {
  const File file(std::tmpfile(), std::fclose);
  WorkLine line(file.get(), false);
  line.say(100, "planning under caps", 0, 24);
  line.tick(102);
  line.say(106, "planning under caps", 6, 24, "last: 8 GiB");
  line.tick(107);
  line.say(108, "planning under caps", 24, 24);
  line.tick(112);
  EXPECT_EQ(content(file.get()),
            "planning under caps 0/24, 2 s\nplanning under caps 6/24, 7 s, ETA 21 s; last: 8 GiB\n"
            "planning under caps 24/24, 12 s\n");
}

TEST(Working, OnATerminalTheLineIsRewritten) {
  const File file(std::tmpfile(), std::fclose);
  {
    WorkLine line(file.get(), true);
    line.say(100, "planning");
    line.tick(109);
    line.tick(110);
    line.end();
  }
  EXPECT_EQ(content(file.get()), "\rplanning, 9 s\rplanning, 10 s\n");
}

TEST(Working, ResultsAreLinesAsTheyComeOnceThatTakesLong) {
  const File file(std::tmpfile(), std::fclose);
  WorkLine line(file.get(), false);
  line.say(100, "planning for cards", 0, 3);
  line.row("RTX 4090: 2,787 tokens/s");
  line.tick(101);
  line.say(102, "planning for cards", 1, 3);
  line.row("H100: 9,000 tokens/s");
  line.tick(103);
  line.tick(104);
  EXPECT_EQ(content(file.get()),
            "planned: RTX 4090: 2,787 tokens/s\nplanned: H100: 9,000 tokens/s\nplanning for cards 1/3, 3 s, "
            "ETA 6 s\n");
}

}  // namespace
}  // namespace sluice::core
