// SPDX-License-Identifier: Apache-2.0
#include "api/exact.h"

namespace sluice {
namespace {

using namespace api_rig;

TEST(Exact, SamplersHaveTheLogProbabilitiesOfTraining) {
  if (const auto machine = exact_machine("cuda"); !machine.ok()) GTEST_SKIP() << machine.message();
  for (const Family& family : families()) {
    if (std::string_view(family.name) == "sinks") continue;  // refused there
    SCOPED_TRACE(family.name);
    expect_exact(family, Format::BF16, "cuda", 1, int64_t(4) << 30);
  }
}

}  // namespace
}  // namespace sluice
