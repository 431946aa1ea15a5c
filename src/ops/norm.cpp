// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands RmsNorm::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations},
             {"w", Read, dtype, dim, Weights},
             {"y", Write, dtype, tokens * dim, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * dim, Activations});
  return o;
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
int64_t RmsNormBwd::workspace_bytes(const GpuLibraries&) const {
  return norm_partials(tokens) * dim * size_of(DType::F32);
}

Operands HeadNormRope::operands() const {
  return {{"x", Read, dtype, tokens * x_columns(), Activations},
          {"w", Read, dtype, weights(), Weights},
          {"pos", Read, I32, tokens, Positions},
          {"inv_freq", Read, F32, head_dim / 2, Frequencies},
          {"y", Write, dtype, tokens * columns(), Activations}};
}

Operands HeadNormRopeBwd::operands() const {
  return {{"dy", Read, in_dtype, tokens * columns(), Activations},
          {"x", Read, dtype, tokens * x_columns(), Activations},
          {"w", Read, dtype, weights(), Weights},
          {"pos", Read, I32, tokens, Positions},
          {"inv_freq", Read, F32, head_dim / 2, Frequencies},
          {"dx", Write, dtype, tokens * x_columns(), Activations},
          {"dw", write_or(accumulate), grad_dtype, weights(), Activations}};
}
int64_t HeadNormRopeBwd::workspace_bytes(const GpuLibraries&) const {
  return head_norm_partials(tokens) * weights() * size_of(DType::F32);
}

}  // namespace sluice::core
