// SPDX-License-Identifier: Apache-2.0
#include "pages/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace sluice::core {
namespace {

TEST(Fit, WhatIsNarrowStaysAsItIs) {
  const std::string text = "a  b\n\n  c   d\nwords";
  EXPECT_EQ(fit(text, 0), text);
  EXPECT_EQ(fit(text, 60), text);
}

TEST(Fit, SentencesAreWrappedBehindTheirIndent) {
  EXPECT_EQ(fit("  one two three four five six seven eight nine\n", 30),
            "  one two three four five six\n  seven eight nine\n");
  EXPECT_EQ(fit("note     one two three four five six seven eight", 30),
            "note     one two three four\n         five six seven eight");
  // A path is not cut.
  const std::string path(50, 'p');
  EXPECT_EQ(fit("in " + path, 30), "in\n" + path);
}

TEST(Fit, TextInTheLastColumnOfATableIsWrappedThere) {
  EXPECT_EQ(fit("name   value  why\n"
                "long       1  because of this and of that and of more\n"
                "b         20  no reason\n",
                40),
            "name  value  why\n"
            "long      1  because of this and of that\n"
            "             and of more\n"
            "b        20  no reason\n");
}

TEST(Fit, WhatGoesOnInTheLastColumnStaysInIt) {
  EXPECT_EQ(fit("  longest context        168  bytes of all weights and of the\n"
                "                              cache of one token\n"
                "  other                 1000  by search\n",
                46),
            "  longest context   168  bytes of all weights\n"
            "                         and of the\n"
            "                         cache of one token\n"
            "  other            1000  by search\n");
}

TEST(Fit, AWideTableBecomesSeveral) {
  EXPECT_EQ(fit("cell      first    second     third\n"
                "8 x 32     1.00     20.00    300.00\n",
                24),
            "cell    first  second\n"
            "8 x 32   1.00   20.00\n"
            "\n"
            "cell     third\n"
            "8 x 32  300.00\n");
}

// Whatever the table, no line is wider, and no letter is lost.
TEST(Fit, NoLineIsWiderAndNothingIsLost) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t columns = 2 + random() % 12, rows = 2 + random() % 6, width = 60 + random() % 40;
    std::vector<size_t> widths;
    for (size_t c = 0; c < columns; ++c) widths.push_back(1 + random() % 18);
    std::string text;
    for (size_t r = 0; r < rows; ++r) {
      std::string line = "  ";
      for (size_t c = 0; c < columns; ++c) {
        std::string cell(1 + random() % widths[c], char('a' + (r + c) % 26));
        line += cell + std::string(widths[c] - cell.size() + 2, ' ');
      }
      text += line + "\n";
    }
    const std::string fitted = fit(text, width);
    for (size_t at = 0; at < fitted.size();) {
      const size_t end = fitted.find('\n', at);
      ASSERT_LE(end - at, width) << text << "\n" << fitted;
      at = end + 1;
    }
    for (const char letter : std::string("bcdefgh")) {
      ASSERT_GE(std::count(fitted.begin(), fitted.end(), letter),
                std::count(text.begin(), text.end(), letter))
          << text;
    }
  }
}

}  // namespace
}  // namespace sluice::core
