// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

NarrowResults RmsNorm::narrow_results() const {
  if (has_residual) return {};
  return {{kY, {tokens, dim, dtype, kFloat8, true, true}, kY, kTurned}};
}
Operands RmsNorm::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim, Activations},
             {"w", Read, dtype, dim, Weights},
             {"y", Write, narrow ? kFloat8.over(dim) : NumberFormat(dtype), tokens * dim, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * dim, Activations});
  if (narrow) o.push_back({"turned", Write, kFloat8.over(tokens), tokens * dim, Activations});
  return o;
}
// Two passes, of which the first finds the largest magnitudes.
Work RmsNorm::work() const {
  return {.pass_bytes = narrow ? double(tokens * dim * size_of(dtype)) : 0};
}
// The magnitudes of rows and columns, and the factor of each row.
int64_t RmsNorm::workspace_bytes(const GpuLibraries&) const {
  return narrow ? (2 * tokens + dim) * size_of(F32) : 0;
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
