// SPDX-License-Identifier: Apache-2.0
// The CPU backend's results do not depend on how many threads compute them.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/bytes.h"
#include "conformance/harness.h"

namespace sluice::core::conformance {
namespace {

TEST(CpuThreads, DoNotChangeABit) {
  constexpr int64_t kDeviceBytes = 16 * kMiB;
  const auto one = make_cpu_backend({.threads = 1}), three = make_cpu_backend({.threads = 3});
  Harness on_one = *Harness::create(*one, kDeviceBytes, {}),
          on_three = *Harness::create(*three, kDeviceBytes, {});
  for (const Case& test : all_cases()) {
    const std::vector<Tensor> operands = make_operands(test.op, test.data);
    const auto a = on_one.run(test.op, operands), b = on_three.run(test.op, operands);
    ASSERT_EQ(a.ok(), b.ok()) << test.name();
    if (!a.ok()) continue;  // the suite says why, unless the processor lacks bf16 products
    for (size_t i = 0; i < a->size(); ++i) EXPECT_EQ((*a)[i].bytes, (*b)[i].bytes) << test.name();
  }
}

}  // namespace
}  // namespace sluice::core::conformance
