// SPDX-License-Identifier: Apache-2.0
// Weights as codes with a scale for each block: the formats that casts take (ops/cast.h), and the definition
// of their values for every backend. A value is its code's number times the scale of its block, rounded to
// f32 once. Of codes of 4 bits a byte has two, the first in its lower bits.
#pragma once

#include <array>
#include <cstdint>

#include "base/format.h"
#include "ops/float8.h"

namespace sluice::core {

// By row: of any block.
constexpr NumberFormat kPackedFormats[] = {{DType::F8E4M3, NumberFormat::kRow, DType::F32},
                                           {DType::NF4, NumberFormat::kRow, DType::F32},
                                           {DType::F4E2M1, NumberFormat::kRow, DType::F8E8M0}};

constexpr bool is_code(DType type) {
  for (const NumberFormat& format : kPackedFormats) {
    if (format.type == type) return true;
  }
  return false;
}

// Blocks of NF4 as bitsandbytes has them, and of MXFP4 as OCP does (Microscaling Formats 1.0).
constexpr NumberFormat kNf4{DType::NF4, 64, DType::F32};
constexpr NumberFormat kMxfp4{DType::F4E2M1, 32, DType::F8E8M0};

using Codes16 = std::array<float, 16>;
// QLoRA's table: quantiles of a normal distribution.
constexpr Codes16 kNf4Codes = {-1.0f,
                               -0.6961928009986877f,
                               -0.5250730514526367f,
                               -0.39491748809814453f,
                               -0.28444138169288635f,
                               -0.18477343022823334f,
                               -0.09105003625154495f,
                               0.0f,
                               0.07958029955625534f,
                               0.16093020141124725f,
                               0.24611230194568634f,
                               0.33791524171829224f,
                               0.44070982933044434f,
                               0.5626170039176941f,
                               0.7229568362236023f,
                               1.0f};
// OCP's E2M1: 2 bits of exponent with a bias of 1, one of mantissa.
constexpr Codes16 kE2m1Codes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// The numbers of codes of 4 bits. REQUIRES: `type` is one of them.
constexpr const Codes16& codes_of(DType type) {
  return type == DType::NF4 ? kNf4Codes : kE2m1Codes;
}

}  // namespace sluice::core
