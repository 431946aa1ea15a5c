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

// However long what it names, and whatever it takes to spell that out.
TEST(Printable, MessagesHaveABound) {
  const std::string most(kMostMessageBytes, 'a');
  EXPECT_EQ(printable_message(most), most);
  for (const std::string_view unit : {"a", "\xc3\xa4", "\x1b", "\xe2\x80\xae", "\xf0\x9f\x98\x80"}) {
    for (const size_t times : {size_t{700}, size_t{1999}, size_t{2001}, size_t{300'000}}) {
      std::string text = "model.config: ";
      for (size_t i = 0; i < times; ++i) text += unit;
      text += " is not allowed";
      const std::string said = printable_message(text);
      EXPECT_LE(said.size(), kMostMessageBytes);
      EXPECT_TRUE(said.starts_with("model.config: ") && said.ends_with(" is not allowed")) << said;
      EXPECT_EQ(said == printable(text), printable(text).size() <= kMostMessageBytes);
      EXPECT_EQ(printable_message(said), said) << "no character is cut";
    }
  }
}

}  // namespace
}  // namespace sluice::core
