// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;
namespace {

// The operands of an update with one state, m, and of one of m alone.
Operands update_of_m(const auto& op) {
  Operands o{{"p", Accumulate, op.dtype, op.elements, Weights},
             {"g", Read, op.grad_dtype, op.elements, Activations},
             {"m", op.moments ? Accumulate : Read, op.state_dtype, op.elements, Activations},
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  if (op.master) o.push_back({"master", Accumulate, F32, op.elements, Weights});
  return o;
}
Operands update_of_m_alone(const auto& op) {
  return {{"g", Read, op.grad_dtype, op.elements, Activations},
          {"m", Accumulate, op.state_dtype, op.elements, Activations},
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
  const Access state = moments ? Accumulate : Read;
  Operands o{{"p", Accumulate, dtype, elements, Weights},
             {"g", Read, grad_dtype, elements, Activations},
             {"m", state, state_dtype, elements, Activations},
             {"v", state, state_dtype, elements, Squares},
             {"clip", Read, F32, 2, Clip},
             args_operand()};
  if (master) o.push_back({"master", Accumulate, F32, elements, Weights});
  return o;
}

Operands AdamWMoments::operands() const {
  return {{"g", Read, grad_dtype, elements, Activations},
          {"m", Accumulate, state_dtype, elements, Activations},
          {"v", Accumulate, state_dtype, elements, Squares},
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
