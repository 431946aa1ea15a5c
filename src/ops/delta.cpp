// SPDX-License-Identifier: Apache-2.0
#include "ops/delta.h"

#include "ops/generation.h"
#include "ops/gpu_partials.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
using enum Access;
using enum DType;
using enum Values;

namespace {

// FLOPs of a token, for every value head. Its key and query are multiplied with the state, and its key into
// the state. Within blocks half of a block's rows are multiplied with its keys, twice, and with its values,
// twice.
double block_flops(int64_t tokens, const DeltaSizes& s) {
  const double pairs = double(kDeltaBlock) / 2;
  const double of_token =
      3 * double(s.head_state()) + 2 * pairs * double(s.key_dim) + 2 * pairs * double(s.value_dim);
  return 2 * double(tokens) * double(s.value_heads) * of_token;
}

}  // namespace

Operands DeltaGates::operands() const {
  return {{"ba", Read, F32, tokens * 2 * heads, Activations},
          {"a_log", Read, F32, heads, Weights},
          {"dt_bias", Read, F32, heads, Weights},
          {"gates", Write, F32, tokens * 2 * heads, Activations}};
}

Operands DeltaGatesBwd::operands() const {
  return {{"ba", Read, F32, tokens * 2 * heads, Activations},
          {"a_log", Read, F32, heads, Weights},
          {"dt_bias", Read, F32, heads, Weights},
          {"dgates", Read, F32, tokens * 2 * heads, Activations},
          {"dba", Write, dtype, tokens * 2 * heads, Activations},
          {"da_log", write_or(accumulate_a), grad_dtype, heads, Activations},
          {"ddt_bias", write_or(accumulate_dt), grad_dtype, heads, Activations}};
}

int64_t DeltaGatesBwd::workspace_bytes(const GpuLibraries&) const {
  return delta_gate_partials(tokens) * 2 * heads * size_of(F32);
}

Operands DeltaRule::operands() const {
  Operands o{{"qkv", Read, dtype, tokens * sizes.columns(), Activations},
             {"gates", Read, F32, tokens * 2 * sizes.value_heads, Squares},
             {"pos", Read, I32, tokens, Positions},
             {"o", Write, dtype, tokens * sizes.values(), Activations}};
  if (has_before) o.push_back({"before", Read, F32, sizes.state(), Activations});
  if (has_after) o.push_back({"after", Write, F32, sizes.state(), Activations});
  return o;
}
Work DeltaRule::work() const {
  return {.unit = Unit::StateProduct, .flops = block_flops(tokens, sizes)};
}

int64_t DeltaRule::workspace_bytes(const GpuLibraries&) const {
  return workspace_parts(*this).bytes;
}

Operands DeltaRuleBwd::operands() const {
  Operands o{{"qkv", Read, dtype, tokens * sizes.columns(), Activations},
             {"gates", Read, F32, tokens * 2 * sizes.value_heads, Squares},
             {"pos", Read, I32, tokens, Positions},
             {"do", Read, dtype, tokens * sizes.values(), Activations},
             {"dqkv", Write, dtype, tokens * sizes.columns(), Activations},
             {"dgates", Write, F32, tokens * 2 * sizes.value_heads, Activations}};
  if (has_before) {
    o.push_back({"before", Read, F32, sizes.state(), Activations});
    o.push_back({"d_before", Write, F32, sizes.state(), Activations});
  }
  if (has_after) o.push_back({"d_after", Read, F32, sizes.state(), Activations});
  return o;
}
Work DeltaRuleBwd::work() const {
  const double flops = block_flops(tokens, sizes);
  return {.unit = Unit::StateProduct, .flops = 2 * flops, .again_flops = flops};
}

int64_t DeltaRuleBwd::workspace_bytes(const GpuLibraries&) const {
  return workspace_parts(*this).bytes;
}

Operands CachedDelta::operands() const {
  const int64_t kept = cache_rows > 0 ? cache_rows : rows;
  Operands o{{"qkv", Read, dtype, tokens() * sizes.columns(), Activations},
             {"gates", Read, F32, tokens() * 2 * sizes.value_heads, Squares},
             {"spans", Read, I32, 2 * rows, Spans, capacity - q_len},
             {"cache", Accumulate, F32, kept * sizes.state(), Activations},
             {"o", Write, dtype, tokens() * sizes.values(), Activations}};
  if (cache_rows > 0) o.push_back(slots_operand_of(rows, cache_rows));
  return o;
}
Work CachedDelta::work() const {
  return {.unit = Unit::StateProduct, .flops = block_flops(tokens(), sizes)};
}

Operands HeadGate::operands() const {
  const int64_t elements = tokens * heads * head_dim;
  Operands o{{"x", Read, dtype, elements, Activations},
             {"z", Read, dtype, elements, Activations},
             {"y", Write, dtype, elements, Activations}};
  if (normed) o.push_back({"w", Read, F32, head_dim, Weights});
  return o;
}

Operands HeadGateBwd::operands() const {
  const int64_t elements = tokens * heads * head_dim;
  Operands o{{"x", Read, dtype, elements, Activations},
             {"z", Read, dtype, elements, Activations},
             {"dy", Read, dtype, elements, Activations},
             {"dx", Write, dtype, elements, Activations},
             {"dz", Write, dtype, elements, Activations}};
  if (normed) {
    o.push_back({"w", Read, F32, head_dim, Weights});
    o.push_back({"dw", write_or(accumulate), grad_dtype, head_dim, Activations});
  }
  return o;
}
int64_t HeadGateBwd::workspace_bytes(const GpuLibraries&) const {
  return normed ? head_norm_partials(tokens) * head_dim * size_of(F32) : 0;
}

}  // namespace sluice::core
