// SPDX-License-Identifier: Apache-2.0
#include "what_if/grid.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace sluice::core {
namespace {

std::string refusal(const std::string& text) {
  const auto r = parse_sizes("--device-mem", text);
  return r.ok() ? "accepted" : r.message();
}

TEST(Grid, ListsAndRangesMix) {
  const auto sizes = parse_sizes("--device-mem", "24GiB,6GiB:10GiB:2GiB,8GiB,none");
  ASSERT_TRUE(sizes.ok()) << sizes.message();
  EXPECT_EQ(*sizes, (std::vector<int64_t>{6 * kGiB, 8 * kGiB, 10 * kGiB, 24 * kGiB, kUnlimited}));
  const auto counts = parse_counts("--seq-len", "512,1k:2.5k:1k");
  ASSERT_TRUE(counts.ok()) << counts.message();
  EXPECT_EQ(*counts, (std::vector<int64_t>{512, 1024, 2048}));
}

TEST(Grid, RefusalsNameOptionPartAndWhatIsAllowed) {
  EXPECT_EQ(refusal("6GiB:80GiB"),
            "--device-mem 6GiB:80GiB: a range is first:last:step, such as 6GiB:80GiB:2GiB");
  EXPECT_EQ(refusal("8GiB,9GiB:6GiB:1GiB"), "--device-mem 9GiB:6GiB:1GiB: the range ends before it begins");
  EXPECT_EQ(refusal("6GiB:none:1GiB"), "--device-mem 6GiB:none:1GiB: none has no place in a range");
  EXPECT_EQ(refusal("1GiB:2GiB:1kB"),
            "--device-mem 1GiB:2GiB:1kB: 1073742 values; at most 10000 are allowed");
  for (const char* bad : {"", "6GiB,", "6GiB:8GiB:0GiB", "-1GiB", "6 apples"}) {
    EXPECT_NE(refusal(bad).find("a positive size such as"), std::string::npos) << bad << ": " << refusal(bad);
  }
  EXPECT_EQ(refusal("24"), "--device-mem: 24: a size needs a unit; did you mean 24GiB?");
  EXPECT_EQ(refusal("6:8GiB:1GiB"), "--device-mem 6:8GiB:1GiB: 6: a size needs a unit; did you mean 6GiB?");
  const auto count = parse_counts("--seq-len", "0");
  ASSERT_FALSE(count.ok());
  EXPECT_EQ(count.message(), "--seq-len: 0: expected a whole number from 1");
}

TEST(Grid, WordsKeepTheirOrder) {
  const auto words = parse_words("--model", "8,1,8");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (std::vector<std::string>{"8", "1"}));
  EXPECT_FALSE(parse_words("--model", "8,").ok());
}

}  // namespace
}  // namespace sluice::core
