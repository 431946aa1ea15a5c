// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_update.h"

#include "ops/compact_format.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands Muon::operands() const {
  const NumberFormat state = state_format(state_dtype, false);
  Operands o{{"p", Accumulate, dtype, elements(), Weights},
             {"g", Read, grad_dtype, elements(), Activations},
             {"m", Accumulate, state, state.padded(elements()), Activations},
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  if (master != MasterWeights::Off)
    o.push_back({"master", Accumulate, format_of(master), elements(), Weights});
  return o;
}

// The direction is written and read in f32, and what products leave once more each.
Work Muon::work() const {
  const auto n = double(side()), other = double(elements()) / n;
  Work out = Work::product(kSteps * (4 * n * n * other + 2 * n * n * n));
  out.pass_bytes = double(elements()) * (12.0 + 3.0 * double(size_of(dtype))) +
                   kSteps * 3 * n * n * double(size_of(dtype));
  return out;
}

int64_t Muon::workspace_bytes(const GpuLibraries&) const {
  return workspace_parts(*this).bytes;
}

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
  return workspace_parts(*this).bytes;
}

}  // namespace sluice::core
