// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands Swiglu::operands() const {
  Operands o{{"gu", Read, dtype, tokens * columns(), Activations},
             {"y", Write, dtype, tokens * dim, Activations}};
  if (apart) o.push_back({"up", Read, dtype, tokens * dim, Activations});
  return o;
}

Operands SwigluBwd::operands() const {
  Operands o{{"gu", Read, dtype, tokens * columns(), Activations},
             {"dy", Read, dtype, tokens * dim, Activations},
             {"dgu", Write, dtype, tokens * columns(), Activations},
             {"y", Write, dtype, tokens * dim, Activations}};
  if (apart) {
    o.push_back({"up", Read, dtype, tokens * dim, Activations});
    o.push_back({"dup", Write, dtype, tokens * dim, Activations});
  }
  return o;
}

}  // namespace sluice::core
