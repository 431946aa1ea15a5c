// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include "base/check.h"

namespace sluice::core {

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
  }
  return "?";
}

void not_a_float(DType t) {
  check_failed(__FILE__, __LINE__, "f32 or bf16", name_of(t));
}

Result<DType> parse_dtype(std::string_view text) {
  for (DType t : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8, DType::F8E4M3, DType::F4E2M1,
                  DType::I8, DType::F8E8M0, DType::NF4}) {
    if (name_of(t) == text) return t;
  }
  return error("dtype '{}': allowed are f32, bf16, f64, i32, u8, f8e4m3, f4e2m1, i8, f8e8m0, nf4", text);
}

}  // namespace sluice::core
