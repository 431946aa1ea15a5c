// SPDX-License-Identifier: Apache-2.0
// Attention over one block of keys and values, its gradient, and the rotation of gradients.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// The shape of one attention block: queries of a chunk against one block of keys and values.
//
// A chunk is `rows` independent rows of q_len tokens. distance is the index of the first query minus that of
// the first key within the sequence: 0 is the diagonal block (q_len == kv_len, causal). Otherwise the block
// lies wholly before the queries (distance >= kv_len) and rows is 1. Query i may look at key j exactly when
//     distance + i - pos[i] <= j <= distance + i  and  distance + i - window < j,
// where pos[i] is the query's position inside its document: causal, and never across a document boundary.
// When !packed no document begins inside a row, so the first bound holds for every j.
struct AttnShape {
  int64_t rows, q_len, kv_len, q_heads, kv_heads, head_dim, distance;
  bool packed;
  DType dtype;
  int64_t window = 0;  // the newest keys, its own among them, that a query may look at; 0: all
  float softcap = 0;   // scores become softcap tanh(score / softcap); 0: they stay

  int64_t tokens() const { return rows * q_len; }
  // Elements of q and o, of kv, and of lse.
  int64_t q_elements() const { return tokens() * q_heads * head_dim; }
  int64_t kv_elements() const { return rows * kv_len * 2 * kv_heads * head_dim; }
  int64_t lse_elements() const { return tokens() * q_heads; }
  // Query-key pairs when no document boundary cuts any off.
  double pairs() const;
  // Whether some query looks at a key, as far as the window goes.
  bool is_in_window() const { return window == 0 || distance - kv_len + 1 < window; }
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("kv", kv_len), f("hq", q_heads), f("hkv", kv_heads), f("hd", head_dim),
        f("dist", distance), f("packed", packed), f("dtype", dtype);
    if (window > 0) f("window", window);
    if (softcap > 0) f("softcap", softcap);
  }
};

// o = softmax(q k^T / sqrt(head_dim)) v over the keys of one block, lse = log of the softmax denominator
// (natural log, scores scaled). q and o are [tokens, q_heads * head_dim]; kv is [rows * kv_len, 2 * kv_heads
// * head_dim] with K in the first half of the columns and V in the second. And lse is f32 [rows, q_heads,
// q_len]. With merge, o (f32) and lse hold the result over other blocks and become the result over their
// union (log-sum-exp merge). A query with no visible key in the block contributes nothing: o = 0, lse = -inf.
//
// Sinks are a learnt logit of every head, [q_heads], which is in the softmax's sum beside the scores and has
// no value. The first block takes them, so that lse, and with it what is merged later, has them.
struct AttnFwd {
  static constexpr std::string_view kName = "attn_fwd";
  enum { kQ, kKv, kPos, kO, kLse, kSinks };
  AttnShape shape;
  DType out_dtype;  // F32 when blocks are merged, otherwise shape.dtype
  bool merge;
  bool has_sinks = false;  // REQUIRES: then !merge

  Operands operands() const;
  Work work() const {
    return {.unit = Unit::AttentionForward,
            .flops = 4.0 * shape.pairs() * double(shape.q_heads * shape.head_dim),
            .head_dim = shape.head_dim};
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    shape.fields(f), f("out", out_dtype), f("merge", merge);
    if (has_sinks) f("sinks", has_sinks);
  }
};

// Gradients of AttnFwd over one block, given the *global* output and lse. dq is [tokens, q_heads * head_dim],
// dkv is laid out as kv; both are in grad_dtype (F32 when several blocks add up) and accumulate as told.
// They are gradients with respect to the rotated q and k; RopeBwd undoes the rotation.
struct AttnBwd {
  static constexpr std::string_view kName = "attn_bwd";
  enum { kQ, kKv, kPos, kO, kLse, kDo, kDq, kDkv };
  AttnShape shape;
  DType grad_dtype;
  bool accumulate_dq, accumulate_dkv;

  Operands operands() const;
  Work work() const {
    const double product = 2.0 * shape.pairs() * double(shape.q_heads * shape.head_dim);
    // The scores are computed again: a fifth product beside the four of the gradients.
    return {.unit = Unit::AttentionBackward,
            .flops = 4 * product,
            .again_flops = product,
            .head_dim = shape.head_dim};
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  constexpr void fields(auto&& f) const {
    shape.fields(f), f("grad", grad_dtype), f("acc_dq", accumulate_dq), f("acc_dkv", accumulate_dkv);
  }
};

// Gradient of the sinks, given the global output and lse: of head h the sum over tokens of
// -exp(sinks[h] - lse) (o . do). Those of q, k and v are AttnBwd's, which the sinks reach by lse alone.
struct SinkGrad {
  static constexpr std::string_view kName = "sink_grad";
  enum { kSinks, kLse, kO, kDo, kDSinks };
  int64_t rows, q_len, heads, head_dim;
  DType dtype, grad_dtype;
  bool accumulate;

  int64_t tokens() const { return rows * q_len; }
  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("heads", heads), f("hd", head_dim), f("dtype", dtype),
        f("grad", grad_dtype), f("acc", accumulate);
  }
};

// A factor that grows with a token's position: 1 + beta ln(1 + floor(pos / context)).
struct Temperature {
  float beta = 0;  // 0: none
  int64_t context = 1;

  double at(int64_t pos) const {
    return beta == 0 ? 1 : 1 + double(beta) * std::log1p(double(pos / context));
  }
  constexpr void fields(auto&& f) const {
    if (beta != 0) f("beta", beta, kNoCost), f("context", context, kNoCost);
  }
};

// Rotary position embedding, in place: in each row of x the first heads * head_dim elements are rotated
// (halves paired: i with i + head_dim/2) by the angles pos[t] * inv_freq[i], and multiplied by rope_scale, or
// where inv_freq[i] is 0 and still_scale is not, by that; and by the token's temperature. The `rest` behind
// them stays.
struct Rope {
  static constexpr std::string_view kName = "rope";
  enum { kX, kPos, kInvFreq };
  int64_t tokens, heads, head_dim, rest;
  DType dtype;
  float rope_scale = 1;   // of the cosines and sines
  float still_scale = 0;  // of what no angle turns; 0: the same
  Temperature temperature = {};

  int64_t columns() const { return heads * head_dim + rest; }
  Operands operands() const;
  // Does not count bytes that stay.
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("heads", heads), f("hd", head_dim), f("rest", rest), f("dtype", dtype);
    if (rope_scale != 1) f("rope_scale", rope_scale, kNoCost);
    if (still_scale != 0) f("still_scale", still_scale, kNoCost);
    temperature.fields(f);
  }
};

// Takes the gradients of q and of the K half of kv back through Rope, of which q alone had the temperature,
// and casts them to dtype.
struct RopeBwd {
  static constexpr std::string_view kName = "rope_bwd";
  enum { kDqRotated, kDkvRotated, kPos, kInvFreq, kDq, kDkv };
  int64_t tokens, q_heads, kv_heads, head_dim;
  DType in_dtype, dtype;
  float rope_scale = 1, still_scale = 0;  // as Rope's
  Temperature temperature = {};

  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("hq", q_heads), f("hkv", kv_heads), f("hd", head_dim), f("in", in_dtype),
        f("dtype", dtype);
    if (rope_scale != 1) f("rope_scale", rope_scale, kNoCost);
    if (still_scale != 0) f("still_scale", still_scale, kNoCost);
    temperature.fields(f);
  }
};

}  // namespace sluice::core
