// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands Linear::operands() const {
  Operands o{{"x", Read, x_format.value_or(dtype), tokens * in, Activations},
             {"w", Read, weight_format.value_or(dtype), out * in, Weights},
             {"y", Write, result_type(), tokens * out, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * out, Activations});
  if (rope_heads > 0) {
    o.push_back({"pos", Read, I32, tokens, Positions});
    o.push_back({"inv_freq", Read, F32, head_dim / 2, Frequencies});
  }
  if (has_bias) o.push_back({"bias", Read, dtype, out, Weights});
  return o;
}
int64_t Linear::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

Operands LinearDgrad::operands() const {
  Operands o{{"dy", Read, dy_format.value_or(dtype), tokens * out, Activations},
             {"w", Read, weight_format.value_or(dtype), out * in, Weights},
             {"dx", write_or(accumulate), dtype, tokens * in, Activations}};
  if (has_residual) o.push_back({"dres", Read, dtype, tokens * in, Activations});
  return o;
}
int64_t LinearDgrad::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

Operands LinearWgrad::operands() const {
  return {{"dy", Read, dy_format.value_or(dtype), tokens * out, Activations},
          {"x", Read, x_format.value_or(dtype), tokens * in, Activations},
          {"dw", write_or(accumulate), grad_dtype, out * in, Activations}};
}
int64_t LinearWgrad::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

Operands BiasGrad::operands() const {
  return {{"dy", Read, dtype, tokens * out, Activations},
          {"dbias", write_or(accumulate), grad_dtype, out, Activations}};
}
int64_t BiasGrad::workspace_bytes(const GpuLibraries&) const {
  return bias_partials(tokens) * out * size_of(DType::F32);
}

}  // namespace sluice::core
