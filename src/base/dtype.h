// SPDX-License-Identifier: Apache-2.0
// Element types and the host-side bfloat16.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// F8E4M3, F8E5M2 and F4E2M1 are floats of 8 and 4 bits (OCP's names: so many of the exponent, so many of the
// mantissa). F8E8M0 has powers of two, which are scales. NF4 has the 16 values of QLoRA's table.
enum class DType : uint8_t { F32, BF16, F64, I32, U8, F8E4M3, F4E2M1, I8, F8E8M0, NF4, F8E5M2 };

constexpr int bits_of(DType t) {
  switch (t) {
    case DType::F32:
    case DType::I32:
      return 32;
    case DType::BF16:
      return 16;
    case DType::F64:
      return 64;
    case DType::U8:
    case DType::I8:
    case DType::F8E4M3:
    case DType::F8E8M0:
    case DType::F8E5M2:
      return 8;
    case DType::F4E2M1:
    case DType::NF4:
      return 4;
  }
  return 0;
}
// Bytes of an element. REQUIRES: it has whole bytes.
constexpr int64_t size_of(DType t) {
  return bits_of(t) / 8;
}

std::string_view name_of(DType t);
// "f32", "bf16", "f64", "i32", "u8", "f8e4m3", "f4e2m1", "i8", "f8e8m0", "nf4" or "f8e5m2".
Result<DType> parse_dtype(std::string_view text);

// Storage for a bfloat16; conversion rounds to nearest, ties to even, and keeps NaN.
struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  explicit Bf16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

  static uint16_t round(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

// Fails the program: `t` got where only floats of matrices can be, f32 or bf16.
[[noreturn]] void not_a_float(DType t);

// Calls f with a value of the type that holds elements of `t`, one of the types of activations, weights and
// gradients. A type that is new has to find its place here, and in every other switch.
template <class F>
decltype(auto) with_type(DType t, F&& f) {
  switch (t) {
    case DType::F32:
      return f(float{});
    case DType::BF16:
      return f(Bf16{});
    case DType::F64:
    case DType::I32:
    case DType::U8:
    case DType::F8E4M3:
    case DType::F4E2M1:
    case DType::I8:
    case DType::F8E8M0:
    case DType::NF4:
    case DType::F8E5M2:
      break;
  }
  not_a_float(t);
}

}  // namespace sluice::core
