// SPDX-License-Identifier: Apache-2.0
#include "ops/conv.h"

#include "ops/generation.h"
#include "ops/gpu_partials.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands ShortConv::operands() const {
  Operands o{{"bcx", Read, dtype, tokens * columns(), Activations},
             {"w", Read, dtype, dim * width, Weights},
             {"pos", Read, I32, tokens, Positions},
             {"y", Write, dtype, tokens * dim, Activations}};
  if (has_before) o.push_back({"before", Read, dtype, (width - 1) * dim, Activations});
  if (has_tail) o.push_back({"tail", Write, dtype, (width - 1) * dim, Activations});
  return o;
}

Operands ShortConvBwd::operands() const {
  Operands o{{"bcx", Read, dtype, tokens * columns(), Activations},
             {"w", Read, dtype, dim * width, Weights},
             {"pos", Read, I32, tokens, Positions},
             {"dy", Read, dtype, tokens * dim, Activations},
             {"dbcx", Write, dtype, tokens * columns(), Activations},
             {"dw", write_or(accumulate), grad_dtype, dim * width, Activations}};
  if (has_before) {
    o.push_back({"before", Read, dtype, (width - 1) * dim, Activations});
    o.push_back({"d_before", Write, dtype, (width - 1) * dim, Activations});
  }
  if (has_tail) o.push_back({"d_tail", Read, dtype, (width - 1) * dim, Activations});
  return o;
}
int64_t ShortConvBwd::workspace_bytes(const GpuLibraries&) const {
  return (silu ? silu_conv_partials(tokens) : conv_partials(tokens)) * dim * width * size_of(F32);
}

Operands CachedConv::operands() const {
  const int64_t kept = cache_rows > 0 ? cache_rows : rows;
  Operands o{{"bcx", Read, dtype, tokens() * columns(), Activations},
             {"w", Read, dtype, dim * width, Weights},
             {"spans", Read, I32, 2 * rows, Spans, capacity - q_len},
             {"cache", Accumulate, dtype, kept * (width - 1) * dim, Activations},
             {"y", Write, dtype, tokens() * dim, Activations}};
  if (cache_rows > 0) o.push_back(slots_operand_of(rows, cache_rows));
  return o;
}

}  // namespace sluice::core
