// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (Yang et al. 2024), which layers of Qwen3-Next and later have in place of attention.
// It is here over a chunk, with its gradient, and over new tokens of texts that are generated. So are the
// gates that it reads.
//
// Each value head has a state S, f32 [key_dim, value_dim], which is 0 where a document begins. With q and k
// normalised as x / sqrt(sum x^2 + 1e-6), and q over sqrt(key_dim) after that, a token does
//
//   S <- exp(-decay) S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q.
//
// It is computed by blocks of 64 tokens, in which all tokens read the state before the block (Yang et al.
// 2024b). Blocks begin at positions that 64 divides, and where a chunk does: so a document has the same bits
// wherever it stands. Sums are f32.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/delta_sizes.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

constexpr int64_t kDeltaBlock = 64;
// Added to the sum of squares of a head of q or k.
constexpr float kDeltaEps = 1e-6f;

// Gates of every value head, all f32: its beta, and behind those of all heads its decay.
//   beta = sigmoid(b),  decay = exp(a_log) log(1 + exp(a + dt_bias)),  with ba = b of all heads, then a
struct DeltaGates {
  static constexpr std::string_view kName = "delta_gates";
  enum { kBa, kALog, kDtBias, kGates };
  int64_t tokens, heads;
  DType dtype = DType::BF16;  // of its gradient, and nothing here follows from it

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("dtype", dtype, kNoCost);
  }
};

// dba in `dtype`; those of a_log and dt_bias are sums over tokens.
struct DeltaGatesBwd {
  static constexpr std::string_view kName = "delta_gates_bwd";
  enum { kBa, kALog, kDtBias, kDgates, kDba, kDaLog, kDdtBias };
  int64_t tokens, heads;
  DType dtype, grad_dtype;
  bool accumulate_a, accumulate_dt;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("dtype", dtype), f("grad", grad_dtype),
        f("acc_a", accumulate_a), f("acc_dt", accumulate_dt);
  }
};

// The tokens of the rule over a chunk, and of its gradient.
struct DeltaChunk {
  int64_t tokens;
  DeltaSizes sizes;
  DType dtype;
  bool has_before = false, has_after = false;

  constexpr void fields(auto&& f) const {
    f("tokens", tokens), sizes.fields(f);
    f("dtype", dtype), f("before", has_before), f("after", has_after);
  }
};

// A chunk that is a piece of a sequence: `before` has the state that the piece before it left, and `after`
// gets the one that it leaves, [value_heads, key_dim, value_dim].
struct DeltaRule : DeltaChunk {
  static constexpr std::string_view kName = "delta_rule";
  enum { kQkv, kGates, kPos, kO };  // then before and after, where they are

  int before_operand() const { return kO + 1; }
  int after_operand() const { return before_operand() + (has_before ? 1 : 0); }
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
};

// Gradients of DeltaRule with respect to qkv, the gates and the state before. States between are computed
// again.
struct DeltaRuleBwd : DeltaChunk {
  static constexpr std::string_view kName = "delta_rule_bwd";
  enum { kQkv, kGates, kPos, kDo, kDqkv, kDgates };  // then before and d_before, and d_after

  int before_operand() const { return kDgates + 1; }
  int d_before_operand() const { return before_operand() + 1; }
  int d_after_operand() const { return kDgates + 1 + (has_before ? 2 : 0); }
  Operands operands() const;
  Work work() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
};

// New tokens of `rows` texts, as in CachedAttention: the cache holds the state of each, f32, which a text
// that has no tokens yet does not read. The o of a token that does not count is 0.
struct CachedDelta {
  static constexpr std::string_view kName = "cached_delta";
  enum { kQkv, kGates, kSpans, kCache, kO, kSlots };  // kSlots: if there are cache_rows
  int64_t rows, q_len, capacity;
  DeltaSizes sizes;
  DType dtype;
  int64_t cache_rows = 0;  // 0: text r has row r of the cache

  int64_t tokens() const { return rows * q_len; }
  Operands operands() const;
  Work work() const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("capacity", capacity), sizes.fields(f);
    f("dtype", dtype);
    if (cache_rows > 0) f("cache_rows", cache_rows);
  }
};

// The output of a half of a layer, times a gate: y = x sigmoid(z), or if `normed` y = n(x) z sigmoid(z),
// where n divides every head by the root of its mean square and multiplies with w[head_dim], f32.
struct HeadGate {
  static constexpr std::string_view kName = "head_gate";
  enum { kX, kZ, kY, kW };  // kW: if normed
  int64_t tokens, heads, head_dim;
  DType dtype;
  bool normed = false;
  float eps = 0;

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("hd", head_dim), f("dtype", dtype), f("normed", normed),
        f("eps", eps, kNoCost);
  }
};

struct HeadGateBwd {
  static constexpr std::string_view kName = "head_gate_bwd";
  enum { kX, kZ, kDy, kDx, kDz, kW, kDw };  // kW and kDw: if normed
  int64_t tokens, heads, head_dim;
  DType dtype, grad_dtype;
  bool normed = false, accumulate = false;  // dw
  float eps = 0;

  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("hd", head_dim), f("dtype", dtype), f("grad", grad_dtype),
        f("normed", normed), f("acc", accumulate), f("eps", eps, kNoCost);
  }
};

}  // namespace sluice::core
