// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_update.h"

#include "ops/compact_format.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands Adafactor::operands() const {
  Operands o{{"p", Accumulate, dtype, elements(), Weights},
             {"g", Read, grad_dtype, elements(), Activations},
             {"row", Accumulate, F32, rows, Squares},
             {"col", Accumulate, F32, cols, Squares},
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  if (master != MasterWeights::Off)
    o.push_back({"master", Accumulate, format_of(master), elements(), Weights});
  return o;
}

// The gradient is read for its sums, and for the size of the update, before the weights are changed.
Work Adafactor::work() const {
  return {.pass_bytes = 2.0 * double(elements() * size_of(grad_dtype))};
}

int64_t Adafactor::workspace_bytes(const GpuLibraries&) const {
  return parts_of(*this).bytes;
}

}  // namespace sluice::core
