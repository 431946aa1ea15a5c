// SPDX-License-Identifier: Apache-2.0
// What a GPU of NVIDIA's can do, as its maker counts it.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <string>

namespace sluice::core {

// 8.9 of Ada, 9.0 of Hopper; 0.0: no such GPU, or none in particular.
struct ComputeCapability {
  int major = 0, minor = 0;

  constexpr auto operator<=>(const ComputeCapability&) const = default;
  constexpr bool known() const { return major > 0; }
  std::string to_text() const { return fmt::format("{}.{}", major, minor); }
};

// Tensor cores multiply 8 bits.
constexpr bool multiplies_float8(ComputeCapability c) {
  return c >= ComputeCapability{8, 9};
}
// cuBLASLt (12.9) scales such a product's rows and columns, as it does on Hopper alone. Elsewhere it makes the
// sums, and a pass over them scales.
constexpr bool scales_products(ComputeCapability c) {
  return c.major == 9;
}

}  // namespace sluice::core
