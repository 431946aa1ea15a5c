// SPDX-License-Identifier: Apache-2.0
// Checksums are those of xxhsum -H2, however the bytes are cut.
#include "base/checksum.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Checksum, IsThatOfXxhsum) {
  EXPECT_EQ(checksum_of("").to_text(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum_of("abc").to_text(), "06b05ab6733a618578af5f94892f3950");
}

TEST(Checksum, DoesNotDependOnTheCuts) {
  std::string text(5000, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = char(i * 37);
  Checksummer pieces;
  for (size_t at = 0, size = 1; at < text.size(); at += size++)
    pieces.add(std::string_view(text).substr(at, size));
  EXPECT_EQ(pieces.value(), checksum_of(text));
  EXPECT_EQ(pieces.value(), checksum_of(text)) << "asking changes nothing";
  text[4000] = char(text[4000] ^ 1);
  EXPECT_NE(pieces.value(), checksum_of(text));
}

TEST(Checksum, IsReadBackFromItsText) {
  const Checksum sum = checksum_of("abc");
  EXPECT_EQ(Checksum::parse(sum.to_text()), sum);
  for (const char* text : {"", "06b05ab6733a618578af5f94892f395", "06b05ab6733a618578af5f94892f39500",
                           "06B05AB6733A618578AF5F94892F3950", "-6b05ab6733a618578af5f94892f3950"}) {
    EXPECT_FALSE(Checksum::parse(text)) << text;
  }
}

}  // namespace
}  // namespace sluice::core
