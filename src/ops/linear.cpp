#include "ops/linear.h"

namespace sluice {
using enum Access;
using enum DType;

Operands Linear::operands() const {
  Operands o{
      {"x", Read, dtype, tokens * in}, {"w", Read, dtype, out * in}, {"y", Write, dtype, tokens * out}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * out});
  if (rope_heads > 0) {
    o.push_back({"pos", Read, I32, tokens});
    o.push_back({"inv_freq", Read, F32, head_dim / 2});
  }
  return o;
}

Operands LinearDgrad::operands() const {
  return {{"dy", Read, dtype, tokens * out},
          {"w", Read, dtype, out * in},
          {"dx", write_or(accumulate), dtype, tokens * in}};
}

Operands LinearWgrad::operands() const {
  return {{"dy", Read, dtype, tokens * out},
          {"x", Read, dtype, tokens * in},
          {"dw", write_or(accumulate), grad_dtype, out * in}};
}

}  // namespace sluice
