// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::core {
namespace {

TEST(Nearest, CountsWhatWasMistyped) {
  EXPECT_EQ(edit_distance("train", "train"), 0u);
  EXPECT_EQ(edit_distance("", "train"), 5u);
  EXPECT_EQ(edit_distance("train", ""), 5u);
  EXPECT_EQ(edit_distance("trains", "train"), 1u);
  EXPECT_EQ(edit_distance("tran", "train"), 1u);
  EXPECT_EQ(edit_distance("drain", "train"), 1u);
  EXPECT_EQ(edit_distance("trian", "train"), 1u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // not a swap and an insertion between the two
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

// The key of somebody's file may have megabytes, and there are many names that it is compared with.
TEST(Nearest, OfNamesThatNobodyTypesAllAreFar) {
  const std::string name(kLongestName, 'a'), beyond(100 * kLongestName, 'a');
  EXPECT_EQ(edit_distance(name, name), 0u);
  EXPECT_EQ(edit_distance(beyond, beyond), beyond.size());
  EXPECT_FALSE(similar(beyond, beyond + "a"));
  EXPECT_EQ(nearest(std::string(30'000'000, 'a'), {{"plan", "train"}}), "plan");
}

TEST(Nearest, IsTheFirstOfTheClosest) {
  const std::vector<std::string> names{"plan", "train", "brain", "keys"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("rain", names), "train");
  EXPECT_EQ(nearest("kes", names), "keys");
  EXPECT_EQ(nearest("anything", {}), "");
}

TEST(Nearest, SimilarIsAThirdAtMost) {
  EXPECT_TRUE(similar("trian", "train"));
  EXPECT_TRUE(similar("--device-memm", "--device-mem"));
  EXPECT_TRUE(similar("kes", "keys"));
  EXPECT_FALSE(similar("xyzzy", "plan"));
  EXPECT_FALSE(similar("to", "train"));
}

}  // namespace
}  // namespace sluice::core
