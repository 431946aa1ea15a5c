// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include "ops/compact_format.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;
namespace {

// A slot of an update's state, which it writes or only reads. Groups of compact state are whole.
Operand state_operand(std::string_view name, bool written, const auto& op, Values values = Activations) {
  const NumberFormat format = state_format(op.state_dtype, values == Squares);
  return {name, written ? Accumulate : Read, format, format.padded(op.elements), values};
}

void add_master(const auto& op, Operands& to) {
  if (op.master == MasterWeights::Off) return;
  to.push_back({"master", Accumulate, format_of(op.master), op.elements, Weights});
}

// The operands of an update with one state, m, and of one of m alone.
Operands update_of_m(const auto& op) {
  Operands o{{"p", Accumulate, op.dtype, op.elements, Weights},
             {"g", Read, op.grad_dtype, op.elements, Activations},
             state_operand("m", op.moments, op),
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  add_master(op, o);
  return o;
}
Operands update_of_m_alone(const auto& op) {
  return {{"g", Read, op.grad_dtype, op.elements, Activations},
          state_operand("m", true, op),
          {"clip", Read, F32, 2, Clip},
          args_operand()};
}

}  // namespace

Operands SumSq::operands() const {
  return {{"g", Read, dtype, elements, Activations},
          {"sums", first ? Write : Accumulate, F64, slots, Squares}};
}
int64_t SumSq::workspace_bytes(const GpuLibraries&) const {
  return kSumSqPartials * size_of(F64);
}

Operands ClipScale::operands() const {
  return {{"sums", Read, F64, slots, Squares}, {"clip", Write, F32, 2, Clip}};
}

Operands AdamW::operands() const {
  Operands o{{"p", Accumulate, dtype, elements, Weights},
             {"g", Read, grad_dtype, elements, Activations},
             state_operand("m", moments, *this),
             state_operand("v", moments, *this, Squares),
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  add_master(*this, o);
  return o;
}

Operands AdamWMoments::operands() const {
  return {{"g", Read, grad_dtype, elements, Activations},
          state_operand("m", true, *this),
          state_operand("v", true, *this, Squares),
          {"clip", Read, F32, 2, Clip},
          args_operand()};
}

Operands SgdMomentum::operands() const {
  return update_of_m(*this);
}
Operands SgdMomentumState::operands() const {
  return update_of_m_alone(*this);
}

Operands Lion::operands() const {
  return update_of_m(*this);
}
Operands LionState::operands() const {
  return update_of_m_alone(*this);
}

}  // namespace sluice::core
