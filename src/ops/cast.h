// SPDX-License-Identifier: Apache-2.0
// Conversion between element types, and multiples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// y = x, converted (round to nearest even). Elements of x are multiplied with the scale of their block, where
// its format has blocks. With `all`, y has so many elements, of which x's are those from `first` on. The
// others stay as they are, or become 0 where `first` is 0.
struct Cast {
  static constexpr std::string_view kName = "cast";
  enum { kX, kY };
  int64_t elements;
  NumberFormat in;
  DType dtype;
  int64_t first = 0, all = 0;  // all = 0: y has those of x

  Operands operands() const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("n", elements), f("in", in), f("dtype", dtype);
    if (all != 0) f("first", first), f("all", all);
  }
};

// Products in 8 bits read it: a scale for each row, whose elements are a multiple of 16, as tensor cores take
// them.
constexpr NumberFormat kFloat8(DType::F8E4M3, NumberFormat::kRow, DType::F32);
constexpr NumberFormat kFloat8Alone[] = {kFloat8};
// Gradients may have more of the exponent, and less of the mantissa.
constexpr NumberFormat kWideFloat8(DType::F8E5M2, NumberFormat::kRow, DType::F32);
constexpr NumberFormat kFloat8Kinds[] = {kFloat8, kWideFloat8};
constexpr bool is_float8(DType type) {
  return type == DType::F8E4M3 || type == DType::F8E5M2;
}
constexpr bool is_narrow(int64_t row) {
  return row % 16 == 0;
}
// The endings of the roles of such copies.
constexpr const char *kByRow = "_fp8", *kTurned = "_fp8_turned";

// x[rows, cols] in a format whose blocks are rows: as it is, with a scale for each row, and turned,
// [cols, rows], with one for each column of x. Either may be left out.
struct Quantize {
  static constexpr std::string_view kName = "quantize";
  enum { kX, kY };
  int64_t rows, cols;
  DType dtype;
  NumberFormat format;  // of kFloat8Kinds: ops/float8.h
  bool by_row, by_column;

  size_t turned_operand() const { return kY + (by_row ? 1 : 0); }

  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("cols", cols), f("dtype", dtype), f("to", format), f("by_row", by_row),
        f("by_column", by_column);
  }
};

// An op with `narrow` writes what it would write without, and `op` rounds it. Operand `wide` of the op
// without becomes these of the op with it, behind all other operands; 0: it has no such copy.
struct NarrowResult {
  int wide;
  Quantize op;
  int by_row, turned;
};
using NarrowResults = std::vector<NarrowResult>;

// y = x s, with one f32 number s, which no gradient moves. The gradient of x is dy s, which is the same op.
struct ScaleBy {
  static constexpr std::string_view kName = "scale_by";
  enum { kX, kS, kY };
  int64_t elements;
  DType dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const { f("n", elements), f("dtype", dtype); }
};

}  // namespace sluice::core
