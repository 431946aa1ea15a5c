#include "ops/update.h"

namespace sluice {
using enum Access;
using enum DType;

Operands SumSq::operands() const {
  return {{"g", Read, dtype, elements}, {"sums", first ? Write : Accumulate, F64, slots}};
}

Operands ClipScale::operands() const {
  return {{"sums", Read, F64, slots}, {"clip", Write, F32, 2}};
}

Operands AdamW::operands() const {
  const Access state = moments ? Accumulate : Read;
  Operands o{{"p", Accumulate, dtype, elements},
             {"g", Read, grad_dtype, elements},
             {"m", state, state_dtype, elements},
             {"v", state, state_dtype, elements},
             {"clip", Read, F32, 2},
             args_operand()};
  if (master) o.push_back({"master", Accumulate, F32, elements});
  return o;
}

Operands AdamWMoments::operands() const {
  return {{"g", Read, grad_dtype, elements},
          {"m", Accumulate, state_dtype, elements},
          {"v", Accumulate, state_dtype, elements},
          {"clip", Read, F32, 2},
          args_operand()};
}

}  // namespace sluice
