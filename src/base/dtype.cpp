// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include "base/check.h"

namespace sluice::core {

constexpr std::string_view kNone = "?";  // is no type

std::string_view name_of(DType t) {
  switch (t) {
    case DType::F32:
      return "f32";
    case DType::BF16:
      return "bf16";
    case DType::F64:
      return "f64";
    case DType::I32:
      return "i32";
    case DType::U8:
      return "u8";
    case DType::F8E4M3:
      return "f8e4m3";
    case DType::F4E2M1:
      return "f4e2m1";
    case DType::I8:
      return "i8";
    case DType::F8E8M0:
      return "f8e8m0";
    case DType::NF4:
      return "nf4";
    case DType::F8E5M2:
      return "f8e5m2";
  }
  return kNone;
}

void not_a_float(DType t) {
  check_failed(__FILE__, __LINE__, "f32 or bf16", name_of(t));
}

Result<DType> parse_dtype(std::string_view text) {
  std::string allowed;
  for (uint8_t i = 0; name_of(DType(i)) != kNone; ++i) {
    if (name_of(DType(i)) == text) return DType(i);
    allowed += fmt::format("{}{}", i == 0 ? "" : ", ", name_of(DType(i)));
  }
  return error("dtype '{}': allowed are {}", text, allowed);
}

}  // namespace sluice::core
