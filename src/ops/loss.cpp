// SPDX-License-Identifier: Apache-2.0
#include "ops/loss.h"

#include "ops/cast.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operands HeadLoss::operands() const {
  Operands o{{"x", Read, x_format.value_or(dtype), tokens * dim, Activations},
             {"w", Read, x_format.value_or(dtype), vocab * dim, Weights},
             {"targets", Read, I32, tokens, Ids, vocab},
             args_operand(),
             {"loss", write_or(accumulate_loss), F64, forward_only ? 2 * tokens : 2, Activations}};
  if (!forward_only) {
    o.push_back({"dx", Write, dtype, tokens * dim, Activations});
    if (!frozen) o.push_back({"dw", write_or(accumulate_dw), grad_dtype, vocab * dim, Activations});
  }
  if (reads_turned()) {
    o.push_back({"w_turned", Read, x_format->in_rows_of(vocab), vocab * dim, Weights});
    if (!frozen) o.push_back({"x_turned", Read, x_format->in_rows_of(tokens), tokens * dim, Activations});
  }
  if (weighted) o.push_back({"weights", Read, F32, tokens, Activations});
  if (log_probs) o.push_back({"log_probs", Write, F32, tokens, Activations});
  if (top == 0) return o;
  o.push_back({"top_tokens", Read, I32, tokens * top, Ids, vocab});
  if (weighted) o.push_back({"top_weights", Read, F32, tokens * top, Activations});
  if (log_probs) o.push_back({"top_log_probs", Write, F32, tokens * top, Activations});
  return o;
}
int64_t HeadLoss::workspace_bytes(const GpuLibraries&) const {
  return workspace_parts(*this).bytes;
}

Operands GatherWeights::operands() const {
  return {{"weights", Read, F32, tokens, Activations},
          {"log_probs", Read, F32, tokens, Activations},
          {"all", write_or(first > 0), F32, 2 * round, Activations}};
}
double GatherWeights::traffic() const {
  return double(size_of(F32)) * double(2 * tokens + 2 * (first > 0 ? tokens : round));
}

}  // namespace sluice::core
