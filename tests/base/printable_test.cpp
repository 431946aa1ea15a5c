// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Printable, LeavesWhatPeopleWrite) {
  for (const std::string text : {"", "a line\n\tand another", "Größe", "日本語", "مرحبا", "\U0001f600",
                                 "a \\x1b that was spelt out"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, SpellsOutWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b]0;pwned\x07"), "\\x1b]0;pwned\\x07");
  EXPECT_EQ(printable(std::string_view("a\0b\rc\x7f", 6)), "a\\x00b\\x0dc\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m")
      << "one character that begins a sequence";
}

TEST(Printable, SpellsOutWhatTurnsText) {
  EXPECT_EQ(printable("\u202egpj.exe"), "\\u202egpj.exe");
  EXPECT_EQ(printable("\u2066\u2069\u200f\u061c\u2028"), "\\u2066\\u2069\\u200f\\u061c\\u2028");
}

TEST(Printable, SpellsOutWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xafx"), "\\xc0\\xafx") << "two bytes for a slash";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(Printable, IsTheSameTheSecondTime) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  EXPECT_EQ(printable(printable(all)), printable(all));
}

}  // namespace
}  // namespace sluice::core
