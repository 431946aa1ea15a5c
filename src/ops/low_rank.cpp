// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum Values;

Operands LowRank::operands() const {
  Operands o{{"u", Read, dtype, sizes.tokens * sizes.inner(), Activations},
             {"b", Read, dtype, sizes.adapted() * sizes.rank, Weights},
             {"y", Write, dtype, sizes.tokens * sizes.columns, Activations}};
  if (has_residual) o.push_back({"residual", Read, dtype, sizes.tokens * sizes.columns, Activations});
  return o;
}
int64_t LowRank::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

Operands LowRankDgrad::operands() const {
  return {{"dy", Read, dtype, sizes.tokens * sizes.columns, Activations},
          {"b", Read, dtype, sizes.adapted() * sizes.rank, Weights},
          {"du", Write, dtype, sizes.tokens * sizes.inner(), Activations}};
}
int64_t LowRankDgrad::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

Operands LowRankWgrad::operands() const {
  return {{"dy", Read, dtype, sizes.tokens * sizes.columns, Activations},
          {"u", Read, dtype, sizes.tokens * sizes.inner(), Activations},
          {"db", write_or(accumulate), grad_dtype, sizes.adapted() * sizes.rank, Activations}};
}
int64_t LowRankWgrad::workspace_bytes(const GpuLibraries&) const {
  return kProductWorkspaceBytes;
}

}  // namespace sluice::core
