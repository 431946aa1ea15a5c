#include "ops/linear.h"

namespace sluice {
using enum Access;
using enum DType;
using enum Values;

Operands Linear::operands() const {
  Operands o{{"x", Read, dtype, tokens * in, Activations},
             {"w", Read, dtype, out * in, Weights},
             {"y", Write, dtype, tokens * out, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * out, Activations});
  if (rope_heads > 0) {
    o.push_back({"pos", Read, I32, tokens, Positions});
    o.push_back({"inv_freq", Read, F32, head_dim / 2, Frequencies});
  }
  if (has_bias) o.push_back({"bias", Read, dtype, out, Weights});
  return o;
}

Operands LinearDgrad::operands() const {
  return {{"dy", Read, dtype, tokens * out, Activations},
          {"w", Read, dtype, out * in, Weights},
          {"dx", write_or(accumulate), dtype, tokens * in, Activations}};
}

Operands LinearWgrad::operands() const {
  return {{"dy", Read, dtype, tokens * out, Activations},
          {"x", Read, dtype, tokens * in, Activations},
          {"dw", write_or(accumulate), grad_dtype, out * in, Activations}};
}

Operands BiasGrad::operands() const {
  return {{"dy", Read, dtype, tokens * out, Activations},
          {"dbias", write_or(accumulate), grad_dtype, out, Activations}};
}

}  // namespace sluice
