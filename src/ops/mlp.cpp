// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

namespace sluice::core {
using enum Access;
using enum Values;

NarrowResults Swiglu::narrow_results() const {
  if (apart) return {};
  return {{kY, {tokens, dim, dtype, kFloat8, true, false}, kY, 0}};
}
Operands Swiglu::operands() const {
  Operands o{{"gu", Read, dtype, tokens * columns(), Activations},
             {"y", Write, narrow ? kFloat8.over(dim) : NumberFormat(dtype), tokens * dim, Activations}};
  if (apart) o.push_back({"up", Read, dtype, tokens * dim, Activations});
  return o;
}

NarrowResults SwigluBwd::narrow_results() const {
  if (apart) return {};
  return {{kDgu, {tokens, columns(), dtype, kFloat8, true, true}, kDgu, kTurned},
          {kY, {tokens, dim, dtype, kFloat8, false, true}, 0, kY}};
}
Operands SwigluBwd::operands() const {
  if (narrow) {
    const NumberFormat turned = kFloat8.over(tokens);
    return {{"gu", Read, dtype, tokens * columns(), Activations},
            {"dy", Read, dtype, tokens * dim, Activations},
            {"dgu", Write, kFloat8.over(columns()), tokens * columns(), Activations},
            {"y_turned", Write, turned, tokens * dim, Activations},
            {"dgu_turned", Write, turned, tokens * columns(), Activations}};
  }
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
// Two passes, of which the first finds the largest magnitudes.
Work SwigluBwd::work() const {
  return {.pass_bytes = narrow ? double(tokens * (columns() + dim) * size_of(dtype)) : 0};
}
// The magnitudes, of rows and columns of dgu and of columns of y.
int64_t SwigluBwd::workspace_bytes(const GpuLibraries&) const {
  return narrow ? (tokens + columns() + dim) * size_of(DType::F32) : 0;
}

}  // namespace sluice::core
