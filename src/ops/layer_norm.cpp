// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands LayerNorm::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations}, {"y", Write, dtype, tokens * dim, Activations}};
  if (has_weight) o.push_back({"w", Read, dtype, dim, Weights});
  if (has_bias) o.push_back({"bias", Read, dtype, dim, Weights});
  return o;
}

Operands LayerNormBwd::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations},
             {"dy", Read, dtype, tokens * dim, Activations},
             {"dx", Write, dtype, tokens * dim, Activations}};
  if (has_weight) {
    o.push_back({"w", Read, dtype, dim, Weights});
    o.push_back({"dw", write_or(accumulate_dw), grad_dtype, dim, Activations});
  }
  if (has_bias) o.push_back({"dbias", write_or(accumulate_dbias), grad_dtype, dim, Activations});
  if (has_residual) o.push_back({"dres", Read, dtype, tokens * dim, Activations});
  return o;
}
// Sums of dw, and of dbias behind them.
int64_t LayerNormBwd::workspace_bytes(const GpuLibraries&) const {
  return (int64_t{has_weight} + int64_t{has_bias}) * norm_partials(tokens) * dim * size_of(DType::F32);
}

}  // namespace sluice::core
