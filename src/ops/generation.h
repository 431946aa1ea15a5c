// SPDX-License-Identifier: Apache-2.0
// What generating text does beside the forward pass: attention over a cache of keys and values, and the
// logits of each row's last token.
//
// A pass has `rows` texts and room for q_len new tokens of each. Both ops take `spans`, i32 [rows, 2]: how
// many tokens the cache holds of a row, and how many of its new ones count, from the first on. More than
// q_len are q_len. What a row's results are depends on that row alone. A pass over prompts may have fewer
// texts than the cache has rows: `slots`, i32 [rows], says which row of it each text has. No two that have
// new tokens share one.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/draws.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// The operand of ops whose cache has so many rows.
Operand slots_operand_of(int64_t rows, int64_t cache_rows);

// Appends new keys and values to a cache, and o = softmax(q k^T / sqrt(head_dim)) v. New token i of a row
// that has `held` tokens looks at the keys 0 <= j <= held + i of its row; if `window` is not 0, at the newest
// `window` of these. Scores may be capped, as AttnShape's, and sinks be in the sum, as AttnFwd's. q and o are
// [rows * q_len, q_heads * head_dim]; kv is [rows * q_len, 2 * kv_heads * head_dim] with K in the first half
// of the columns and V in the second. The cache is [rows, 2, kv_heads, capacity, head_dim] with K before V.
// The o of a token that does not count is 0, and its key is not appended. Scores and sums are f32. REQUIRES:
// held + new tokens <= capacity.
struct CachedAttention {
  static constexpr std::string_view kName = "cached_attn";
  enum { kQ, kKv, kSpans, kCache, kO, kSinks };  // slots behind them, if there are cache_rows
  int64_t rows, q_len, capacity, q_heads, kv_heads, head_dim;
  DType dtype;
  int64_t window = 0;
  float softcap = 0;
  bool has_sinks = false;
  int64_t cache_rows = 0;  // 0: text r has row r of the cache

  size_t slots_operand() const { return has_sinks ? kSinks + 1 : kSinks; }
  int64_t tokens() const { return rows * q_len; }
  int64_t cache_elements() const {
    return (cache_rows > 0 ? cache_rows : rows) * 2 * kv_heads * capacity * head_dim;
  }
  // Where K (0) or V (1) of a row's head begins in the cache, in elements.
  int64_t cache_at(int64_t row, int64_t which, int64_t kv_head) const {
    return ((row * 2 + which) * kv_heads + kv_head) * capacity * head_dim;
  }
  // With the cache half full.
  double keys() const {
    const double all = double(capacity + q_len) / 2;
    return window > 0 && double(window + q_len) < all ? double(window + q_len) : all;
  }

  Operands operands() const;
  Work work() const {
    return {.unit = Unit::AttentionForward,
            .flops = 4.0 * double(tokens()) * keys() * double(q_heads * head_dim),
            .head_dim = head_dim};
  }
  int64_t workspace_bytes(const GpuLibraries& libraries) const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("capacity", capacity), f("hq", q_heads), f("hkv", kv_heads),
        f("hd", head_dim), f("dtype", dtype);
    if (window > 0) f("window", window);
    if (softcap > 0) f("softcap", softcap);
    if (has_sinks) f("sinks", has_sinks);
    if (cache_rows > 0) f("cache_rows", cache_rows);
  }
};

// Rows of a cache become copies of others: row r has what row which[r] had. REQUIRES: a row that is copied
// stays itself, which[which[r]] = which[r].
struct CopyRows {
  static constexpr std::string_view kName = "copy_rows";
  enum { kWhich, kX };
  int64_t rows, elements;  // of each row
  DType dtype;

  Operands operands() const;
  constexpr void fields(auto&& f) const { f("rows", rows), f("elements", elements), f("dtype", dtype); }
};

// logits[r, v] = x[r * q_len + n - 1, :] . w[v, :], f32, where n is how many new tokens of row r count, or 1
// if none does; capped as in HeadLoss.
struct LastLogits {
  static constexpr std::string_view kName = "last_logits";
  enum { kX, kW, kSpans, kLogits };
  int64_t rows, q_len, dim, vocab;
  DType dtype;
  float softcap = 0;

  // Whether a GPU multiplies all rows at once: each has one new token, and they are many.
  bool is_product() const { return q_len == 1 && rows > 8 && vocab % 8 == 0 && softcap == 0; }
  Operands operands() const;
  Work work() const {
    return {.unit = Unit::Memory, .flops = 2.0 * double(rows) * double(dim) * double(vocab)};
  }
  int64_t workspace_bytes(const GpuLibraries&) const;
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("dim", dim), f("vocab", vocab), f("dtype", dtype);
    if (softcap > 0) f("softcap", softcap, kNoCost);
  }
};

// Tokens are drawn with probability p_v = exp(logits[text, v] / t) / sum: the first one up to which the sum
// of p is more than u. `draws`, f64 [rows, 3], is a TokenDraw of each, and `drawn` a DrawnToken. Sums are f64
// over blocks of kDrawBlock tokens. A result depends on its draw and its text's logits alone.
struct DrawTokens {
  static constexpr std::string_view kName = "draw_tokens";
  enum { kLogits, kDraws, kDrawn };
  int64_t rows, texts, vocab;

  Operands operands() const;
  constexpr void fields(auto&& f) const { f("rows", rows), f("texts", texts), f("vocab", vocab); }
};

}  // namespace sluice::core
