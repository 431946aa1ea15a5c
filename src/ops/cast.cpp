// SPDX-License-Identifier: Apache-2.0
#include "ops/cast.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands Cast::operands() const {
  return {{"x", Read, in, elements, Activations}, {"y", Write, dtype, elements, Activations}};
}

Operands ScaleBy::operands() const {
  return {{"x", Read, dtype, elements, Activations},
          {"s", Read, DType::F32, 1, Weights},
          {"y", Write, dtype, elements, Activations}};
}

}  // namespace sluice::core
