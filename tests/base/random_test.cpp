// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/philox.h"

namespace sluice::core {
namespace {

void expect_words(const Philox4& actual, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(actual.v[0], a);
  EXPECT_EQ(actual.v[1], b);
  EXPECT_EQ(actual.v[2], c);
  EXPECT_EQ(actual.v[3], d);
}

// The known answers for philox4x32-10 that Random123 (Salmon et al.) ships: zeros, ones, and digits of pi.
TEST(Philox, MatchesRandom123) {
  expect_words(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox(~0ull, ~0ull, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09, 0x94fdcceb,
               0x5001e420, 0x24126ea1);
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(uniform_open(0), 0.0f);
  EXPECT_LT(uniform_open(~0u), 1.0f);
}

// Plans and caches on disk are named by these values: they must not change.
TEST(Hash, IsStable) {
  EXPECT_EQ(Hash().value(), 0xcbf29ce484222325ull);
  EXPECT_EQ(Hash().add("sluice").value(), 0x827dbf656856ee35ull);
  EXPECT_EQ(Hash().add(int32_t{-1}).value(), Hash().add(int64_t{-1}).value());
  EXPECT_EQ(Hash().add(42).add("a").value(), 0x4a58f67ed6fca08full);
}

TEST(Hash, SeparatesAdjacentStrings) {
  EXPECT_NE(Hash().add("ab").add("c").value(), Hash().add("a").add("bc").value());
  EXPECT_NE(Hash().add("").add("a").value(), Hash().add("a").add("").value());
}

}  // namespace
}  // namespace sluice::core
