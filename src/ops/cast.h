// SPDX-License-Identifier: Apache-2.0
// Conversion between element types, and multiples.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/format.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y = x, converted (round to nearest even). Elements of x are multiplied with the scale of their block, where
// its format has blocks.
struct Cast {
  static constexpr std::string_view kName = "cast";
  enum { kX, kY };
  int64_t elements;
  Format in;
  DType dtype;

  Operands operands() const;
  Work work() const { return {}; }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  constexpr void fields(auto&& f) const { f("n", elements), f("in", in), f("dtype", dtype); }
};

// y = x s, with one f32 number s, which no gradient moves. The gradient of x is dy s, which is the same op.
struct ScaleBy {
  static constexpr std::string_view kName = "scale_by";
  enum { kX, kS, kY };
  int64_t elements;
  DType dtype;

  Operands operands() const;
  Work work() const { return {}; }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  constexpr void fields(auto&& f) const { f("n", elements), f("dtype", dtype); }
};

}  // namespace sluice::core
