// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.h"

#include "ops/gpu_partials.h"
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

Operands RowNorms::operands() const {
  return {{"w", Read, dtype, sizes.columns * in, Weights},
          {"a", Read, dtype, sizes.inner() * in, Weights},
          {"b", Read, dtype, sizes.adapted() * sizes.rank, Weights},
          {"norms", Write, DType::F32, sizes.adapted(), Squares}};
}

Operands Magnitude::operands() const {
  Operands o{{"z", Read, dtype, tokens * columns, Activations},
             {"m", Read, DType::F32, adapted, Squares},
             {"norms", Read, DType::F32, adapted, Squares},
             {"y", Write, dtype, tokens * columns, Activations}};
  if (has_bias) o.push_back({"bias", Read, dtype, columns, Weights});
  if (has_residual) o.push_back({"residual", Read, dtype, tokens * columns, Activations});
  return o;
}

Operands MagnitudeBwd::operands() const {
  return {{"dy", Read, dtype, tokens * columns, Activations},
          {"z", Read, dtype, tokens * columns, Activations},
          {"m", Read, DType::F32, adapted, Squares},
          {"norms", Read, DType::F32, adapted, Squares},
          {"dz", Write, dtype, tokens * columns, Activations},
          {"dm", write_or(accumulate), grad_dtype, adapted, Activations}};
}
int64_t MagnitudeBwd::workspace_bytes(const GpuLibraries&) const {
  return bias_partials(tokens) * adapted * size_of(DType::F32);
}

}  // namespace sluice::core
