// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <algorithm>

#include "ops/gpu_partials.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

double AttnShape::pairs() const {
  const double q = double(q_len), k = double(kv_len);
  if (distance == 0 && (window == 0 || window >= q_len)) return double(rows) * (q * (q + 1) / 2);
  if (window == 0) return double(rows) * (q * k);
  // Queries that see `most` keys of the block, and after them some that see one less each, down to none.
  const auto falling = [](double count, double from) { return count * from - count * (count - 1) / 2; };
  if (distance == 0) {
    const double w = double(window);
    return double(rows) * (w * (w + 1) / 2 + (q - w) * w);
  }
  const int64_t whole = std::clamp(window - distance, int64_t{0}, q_len);
  const int64_t most = std::clamp(kv_len + window - distance - 1 - whole, int64_t{0}, kv_len);
  const int64_t part = std::min(q_len - whole, most);
  return double(rows) * (double(whole) * k + falling(double(part), double(most)));
}

Operands AttnFwd::operands() const {
  const AttnShape& s = shape;
  Operands o{{"q", Read, s.dtype, s.q_elements(), Activations},
             {"kv", Read, s.dtype, s.kv_elements(), Activations},
             {"pos", Read, I32, s.tokens(), Positions, s.q_len},
             {"o", write_or(merge), out_dtype, s.q_elements(), Activations},
             {"lse", write_or(merge), F32, s.lse_elements(), LogSumExp}};
  if (has_sinks) o.push_back({"sinks", Read, s.dtype, s.q_heads, Weights});
  return o;
}
int64_t AttnFwd::workspace_bytes(const GpuLibraries& libraries) const {
  return workspace_parts(*this, libraries).bytes;
}

Operands AttnBwd::operands() const {
  const AttnShape& s = shape;
  const int64_t q = s.q_elements(), kv = s.kv_elements();
  return {{"q", Read, s.dtype, q, Activations},
          {"kv", Read, s.dtype, kv, Activations},
          {"pos", Read, I32, s.tokens(), Positions, s.q_len},
          {"o", Read, s.dtype, q, Activations},
          {"lse", Read, F32, s.lse_elements(), LogSumExp},
          {"do", Read, s.dtype, q, Activations},
          {"dq", write_or(accumulate_dq), grad_dtype, q, Activations},
          {"dkv", write_or(accumulate_dkv), grad_dtype, kv, Activations}};
}
int64_t AttnBwd::workspace_bytes(const GpuLibraries& libraries) const {
  return workspace_parts(*this, libraries).bytes;
}

Operands SinkGrad::operands() const {
  const int64_t elements = tokens() * heads * head_dim;
  return {{"sinks", Read, dtype, heads, Weights},
          {"lse", Read, F32, tokens() * heads, LogSumExp},
          {"o", Read, dtype, elements, Activations},
          {"do", Read, dtype, elements, Activations},
          {"d_sinks", write_or(accumulate), grad_dtype, heads, Activations}};
}
int64_t SinkGrad::workspace_bytes(const GpuLibraries&) const {
  return bias_partials(tokens()) * heads * size_of(F32);
}

Operands Rope::operands() const {
  return {{"x", Accumulate, dtype, tokens * columns(), Activations},
          {"pos", Read, I32, tokens, Positions},
          {"inv_freq", Read, F32, head_dim / 2, Frequencies}};
}
double Rope::traffic() const {
  return double(2 * tokens * heads * head_dim * size_of(dtype) + tokens * size_of(I32));
}

Operands RopeBwd::operands() const {
  const int64_t q = tokens * q_heads * head_dim, kv = tokens * 2 * kv_heads * head_dim;
  return {{"dq_rotated", Read, in_dtype, q, Activations}, {"dkv_rotated", Read, in_dtype, kv, Activations},
          {"pos", Read, I32, tokens, Positions},          {"inv_freq", Read, F32, head_dim / 2, Frequencies},
          {"dq", Write, dtype, q, Activations},           {"dkv", Write, dtype, kv, Activations}};
}

}  // namespace sluice::core
