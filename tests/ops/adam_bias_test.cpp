// SPDX-License-Identifier: Apache-2.0
// The bias of AdamW's means against the library's power.
#include "ops/adam_bias.h"

#include <gtest/gtest.h>

#include <limits>

namespace sluice::core {
namespace {

TEST(AdamBias, IsThatOfTheLibrarysPower) {
  for (const double beta : {0.0, 0.5, 0.8, 0.9, double(0.9f), 0.95, double(0.95f), 0.98, 0.99, 0.995, 0.999,
                            double(0.999f), 0.9999, 0.99999}) {
    for (int64_t step = 1; step <= 100000; ++step) {
      const auto expected = static_cast<float>(1 - std::pow(beta, double(step)));
      ASSERT_EQ(adam_bias(beta, step), expected) << "beta " << beta << ", step " << step;
    }
  }
}

TEST(AdamBias, IsOneAfterVeryManySteps) {
  EXPECT_EQ(adam_bias(0.99999, std::numeric_limits<int64_t>::max()), 1.0f);
}

}  // namespace
}  // namespace sluice::core
