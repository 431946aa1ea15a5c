#include "ops/update.h"

namespace sluice {
using enum Access;
using enum DType;
using enum Values;

Operands SumSq::operands() const {
  return {{"g", Read, dtype, elements, Activations},
          {"sums", first ? Write : Accumulate, F64, slots, Squares}};
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

}  // namespace sluice
