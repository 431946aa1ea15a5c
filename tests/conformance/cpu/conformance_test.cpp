// SPDX-License-Identifier: Apache-2.0
// Every op on the CPU backend.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/bytes.h"
#include "conformance/suite.h"
#include "ops/op.h"

namespace {

using namespace sluice::core;

// Some providers have bf16 products on some processors only, and prepare() says so.
bool has_bf16_products() {
  const SharedOp op = Linear{8, 8, 8, DType::BF16};
  return make_cpu_backend({.threads = 1})->prepare({&op, 1}).ok();
}

bool is_bf16_product(const Op& op) {
  return std::visit(
      [&]<class T>(const T& o) {
        if constexpr (requires { o.dtype; }) return flops(op) > 0 && o.dtype == DType::BF16;
        return false;
      },
      op);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool bf16 = has_bf16_products();
  if (!bf16)
    fmt::print("{}: no bf16 products on this processor, their tests are left out\n", cpu_description());
  conformance::register_suite({
      .name = "cpu",
      .make = []() -> sluice::Result<std::unique_ptr<Backend>> { return make_cpu_backend({.threads = 2}); },
      .device_bytes = 32 * kMiB,
      .demands = {.same_bits_when_shifted = true},
      .takes = [bf16](const Op& op) { return bf16 || !is_bf16_product(op); },
  });
  return RUN_ALL_TESTS();
}
