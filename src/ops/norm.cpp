#include "ops/norm.h"

namespace sluice {
using enum Access;
using enum Values;

Operands RmsNorm::operands() const {
  return {{"x", Read, dtype, tokens * dim, Activations},
          {"w", Read, dtype, dim, Weights},
          {"y", Write, dtype, tokens * dim, Activations}};
}

Operands RmsNormBwd::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations},
             {"w", Read, dtype, dim, Weights},
             {"dy", Read, dtype, tokens * dim, Activations},
             {"dx", Write, dtype, tokens * dim, Activations},
             {"dw", write_or(accumulate), grad_dtype, dim, Activations}};
  if (has_residual) o.push_back({"dres", Read, dtype, tokens * dim, Activations});
  return o;
}

}  // namespace sluice
