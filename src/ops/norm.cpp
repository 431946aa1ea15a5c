#include "ops/norm.h"

namespace sluice {
using enum Access;

Operands RmsNorm::operands() const {
  return {{"x", Read, dtype, tokens * dim}, {"w", Read, dtype, dim}, {"y", Write, dtype, tokens * dim}};
}

Operands RmsNormBwd::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim},
             {"w", Read, dtype, dim},
             {"dy", Read, dtype, tokens * dim},
             {"dx", Write, dtype, tokens * dim},
             {"dw", write_or(accumulate), grad_dtype, dim}};
  if (has_residual) o.push_back({"dres", Read, dtype, tokens * dim});
  return o;
}

}  // namespace sluice
