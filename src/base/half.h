// SPDX-License-Identifier: Apache-2.0
// The 16-bit float of IEEE 754, as files hold it; nothing computes in it.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::core {

// Conversion rounds to nearest, ties to even, and keeps NaN; from 65520 on it is infinite.
struct F16 {
  uint16_t bits = 0;

  F16() = default;
  explicit F16(float value) : bits(round(value)) {}

  // Exact.
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits} << 16 & 0x80000000u, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {
      const auto tiny = std::bit_cast<uint32_t>(float(rest) * 0x1p-24f);
      return std::bit_cast<float>(sign | tiny);
    }
    return std::bit_cast<float>(sign | ((rest << 13) + kRebias));
  }

  static uint16_t round(float value) {
    const auto all = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(all >> 16 & 0x8000u);
    const uint32_t u = all & 0x7fffffffu;
    if (u > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (u >> 13 & 0x1ffu));
    if (u >= std::bit_cast<uint32_t>(65520.0f)) return static_cast<uint16_t>(sign | 0x7c00u);
    if (u < std::bit_cast<uint32_t>(0x1p-14f)) {
      // Beside a half, a float's last bit is 2^-24, which is that of these: the sum rounds as they do.
      const float sum = std::bit_cast<float>(u) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f)));
    }
    return static_cast<uint16_t>(sign | ((u - kRebias + 0xfffu + (u >> 13 & 1u)) >> 13));
  }

 private:
  static constexpr uint32_t kRebias = (127u - 15u) << 23;  // between the exponents of both types
};

}  // namespace sluice::core
