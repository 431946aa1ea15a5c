// SPDX-License-Identifier: Apache-2.0
#include "ops/embed.h"

#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands Embed::operands() const {
  Operands out{{"ids", Read, I32, tokens, Ids, vocab},
               {"table", Read, dtype, vocab * dim, Weights},
               {"y", Write, dtype, tokens * dim, Activations}};
  if (has_residual) out.push_back({"residual", Read, dtype, tokens * dim, Activations});
  return out;
}
double Embed::traffic() const {
  const double rows = has_residual ? 3 : 2;
  return double(tokens) * (4.0 + rows * double(dim) * double(size_of(dtype)));
}

Operands EmbedBwd::operands() const {
  return {{"ids", Read, I32, tokens, Ids, vocab},
          {"dy", Read, dtype, tokens * dim, Activations},
          {"dtable", write_or(accumulate), grad_dtype, vocab * dim, Activations}};
}
// Ids in order, and where they come from.
int64_t EmbedBwd::workspace_bytes(const GpuLibraries&) const {
  return 2 * tokens * size_of(I32);
}

}  // namespace sluice::core
