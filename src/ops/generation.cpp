// SPDX-License-Identifier: Apache-2.0
#include "ops/generation.h"

#include "ops/gpu_partials.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

Operand slots_operand_of(int64_t rows, int64_t cache_rows) {
  return {"slots", Read, I32, rows, Ids, cache_rows};
}

Operands CachedAttention::operands() const {
  const int64_t q = tokens() * q_heads * head_dim, kv = tokens() * 2 * kv_heads * head_dim;
  Operands o{{"q", Read, dtype, q, Activations},
             {"kv", Read, dtype, kv, Activations},
             {"spans", Read, I32, 2 * rows, Spans, capacity - q_len},
             {"cache", Accumulate, dtype, cache_elements(), Activations},
             {"o", Write, dtype, q, Activations}};
  if (has_sinks) o.push_back({"sinks", Read, dtype, q_heads, Weights});
  if (cache_rows > 0) o.push_back(slots_operand_of(rows, cache_rows));
  return o;
}
// Every token, head and split has a sum of values, the largest score, and the sum of probabilities.
int64_t CachedAttention::workspace_bytes(const GpuLibraries&) const {
  if (q_len > kSplitTokens) return 0;
  return tokens() * q_heads * cache_splits(capacity) * (head_dim + 2) * size_of(F32);
}
double CachedAttention::traffic() const {
  const double width = double(head_dim * size_of(dtype));
  return double(rows) * keys() * 2 * double(kv_heads) * width +
         double(tokens()) * 2 * double(q_heads + 2 * kv_heads) * width;
}

Operands LastLogits::operands() const {
  return {{"x", Read, dtype, rows * q_len * dim, Activations},
          {"w", Read, dtype, vocab * dim, Weights},
          {"spans", Read, I32, 2 * rows, Spans},
          {"logits", Write, F32, rows * vocab, Activations}};
}
int64_t LastLogits::workspace_bytes(const GpuLibraries&) const {
  return is_product() ? kProductWorkspaceBytes : 0;
}
double LastLogits::traffic() const {
  return double(vocab + rows) * double(dim * size_of(dtype)) + 4.0 * double(rows) * double(vocab);
}

Operands CopyRows::operands() const {
  return {{"which", Read, I32, rows, Ids, rows}, {"x", Accumulate, dtype, rows * elements, Activations}};
}

Operands DrawTokens::operands() const {
  constexpr auto of_draw = int64_t{sizeof(TokenDraw) / sizeof(double)},
                 of_drawn = int64_t{sizeof(DrawnToken) / sizeof(double)};
  return {{"logits", Read, F32, texts * vocab, Activations},
          {"draws", Read, F64, of_draw * rows, Squares},
          {"drawn", Write, F64, of_drawn * rows, Activations}};
}

}  // namespace sluice::core
