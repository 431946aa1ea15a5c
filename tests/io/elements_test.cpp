// SPDX-License-Identifier: Apache-2.0
#include "io/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::core {
namespace {

constexpr TensorType kTypes[] = {TensorType::F32, TensorType::BF16, TensorType::F16};

TEST(Elements, ComeBackAsTheyWere) {
  const std::vector<float> values{0, -0.0f, 1, -2.5f, 0.125f, 240, 0x1p-14f, -0x1p-20f};
  for (const TensorType type : kTypes) {
    std::vector<std::byte> bytes;
    EXPECT_EQ(round_elements(type, values, bytes), -1);
    ASSERT_EQ(int64_t(bytes.size()), int64_t(values.size()) * size_of(type));
    // Unaligned.
    bytes.insert(bytes.begin(), std::byte{});
    std::vector<float> read;
    read_elements(type, std::span(bytes).subspan(1), read);
    EXPECT_EQ(read, values) << name_of(type);
    EXPECT_TRUE(std::signbit(read[1]));
  }
}

TEST(Elements, ThatBecomeInfiniteAreFound) {
  std::vector<float> values(10000, 1.0f);
  values[7001] = -70000.0f;
  std::vector<std::byte> bytes;
  EXPECT_EQ(round_elements(TensorType::F16, values, bytes), 7001);
  EXPECT_EQ(round_elements(TensorType::BF16, values, bytes), -1);
  values[5] = 3.4e38f;
  EXPECT_EQ(round_elements(TensorType::BF16, values, bytes), 5);
}

TEST(Elements, ThatAreNotFiniteAreFound) {
  for (const TensorType type : kTypes) {
    std::vector<float> values(5000, -2.0f);
    std::vector<std::byte> bytes;
    (void)round_elements(type, values, bytes);
    EXPECT_EQ(first_not_finite(type, bytes), -1);
    values[4999] = std::numeric_limits<float>::quiet_NaN();
    (void)round_elements(type, values, bytes);
    EXPECT_EQ(first_not_finite(type, bytes), 4999) << name_of(type);
  }
}

}  // namespace
}  // namespace sluice::core
