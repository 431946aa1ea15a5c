// SPDX-License-Identifier: Apache-2.0
#include "base/counts.h"

#include <gtest/gtest.h>

namespace sluice::core {
namespace {

TEST(Counts, SuffixesArePowersOf1024) {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},         {"8192", 8192},   {"-3", -3},
                                                   {"8k", 8192},     {"128K", 131072}, {"1.5k", 1536},
                                                   {"1 M", 1 << 20}, {"2m", 2 << 20},  {"1g", 1 << 30}};
  for (const auto& [text, value] : cases) {
    const auto count = parse_count(text);
    ASSERT_TRUE(count.ok()) << count.message();
    EXPECT_EQ(*count, value) << text;
  }
}

TEST(Counts, RefusesWhatIsNotWhole) {
  for (const char* text :
       {"", "k", "many", "1.5", "1.3k", "8kb", "8 apples", "99999999999999999999", "nan", "1e30k"})
    EXPECT_FALSE(parse_count(text).ok()) << text;
  EXPECT_NE(parse_count("8x").message().find("8k"), std::string::npos) << parse_count("8x").message();
}

TEST(Counts, WholeNumbersTakeNoSuffix) {
  EXPECT_EQ(*parse_whole("10000"), 10000);
  EXPECT_EQ(parse_whole("10k").message(), "10k: expected a whole number without suffix; did you mean 10000?");
  EXPECT_EQ(parse_whole("ten").message(), "ten: expected a whole number");
}

TEST(Counted, ThingsHaveTheirNumberAndTheirVerb) {
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(1234567, "token"), "1,234,567 tokens");
  EXPECT_EQ(counted(1, "answer", "is", "are"), "1 answer is");
  EXPECT_EQ(counted(2, "answer", "is", "are"), "2 answers are");
}

}  // namespace
}  // namespace sluice::core
