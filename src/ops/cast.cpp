// SPDX-License-Identifier: Apache-2.0
#include "ops/cast.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands Cast::operands() const {
  return {{"x", Read, in, elements, Activations},
          {"y", write_or(first > 0), dtype, all == 0 ? elements : all, Activations}};
}
double Cast::traffic() const {
  const int64_t written = all == 0 || first > 0 ? elements : all;
  return double(in.bytes(elements) + written * size_of(dtype));
}

Operands Quantize::operands() const {
  Operands o{{"x", Read, dtype, rows * cols, Activations}};
  if (by_row) o.push_back({"y", Write, format.over(cols), rows * cols, Activations});
  if (by_column) o.push_back({"turned", Write, format.over(rows), rows * cols, Activations});
  return o;
}
// By column two passes, of which the first finds the largest magnitudes.
Work Quantize::work() const {
  return {.pass_bytes = by_column ? double(rows * cols * size_of(dtype)) : 0};
}
// These of each row and of each column.
int64_t Quantize::workspace_bytes(const GpuLibraries&) const {
  return (rows + cols) * size_of(DType::F32);
}

Operands ScaleBy::operands() const {
  return {{"x", Read, dtype, elements, Activations},
          {"s", Read, DType::F32, 1, Weights},
          {"y", Write, dtype, elements, Activations}};
}

}  // namespace sluice::core
