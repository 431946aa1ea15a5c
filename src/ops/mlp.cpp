// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands Swiglu::operands() const {
  return {{"gu", Read, dtype, tokens * columns(), Activations},
          {"y", Write, dtype, tokens * dim, Activations}};
}

Operands SwigluBwd::operands() const {
  return {{"gu", Read, dtype, tokens * columns(), Activations},
          {"dy", Read, dtype, tokens * dim, Activations},
          {"dgu", Write, dtype, tokens * columns(), Activations},
          {"y", Write, dtype, tokens * dim, Activations}};
}

}  // namespace sluice::core
