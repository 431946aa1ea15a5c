// SPDX-License-Identifier: Apache-2.0
#include "draw/markup.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Markup, WhatTagsAndQuotesAreMadeOfIsSpeltOut) {
  EXPECT_EQ(escape_markup("a < b && \"c\" > d"), "a &lt; b &amp;&amp; &quot;c&quot; &gt; d");
}

TEST(Markup, WhatXmlCannotCarryBecomesSpaces) {
  EXPECT_EQ(escape_markup(std::string("a\x01\x1b\0b", 5)), "a   b");
}

TEST(Markup, LinesTabsAndOtherAlphabetsStay) {
  EXPECT_EQ(escape_markup("a\tb\r\n\xc2\xb5\xe2\x89\xa5"), "a\tb\r\n\xc2\xb5\xe2\x89\xa5");
}

}  // namespace
}  // namespace sluice::core
