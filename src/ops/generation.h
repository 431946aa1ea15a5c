// SPDX-License-Identifier: Apache-2.0
// What generating text does beside the forward pass: attention over a cache of keys and values, and the
// logits of each row's last token.
//
// A pass has `rows` texts and room for q_len new tokens of each. Both ops take `spans`, i32 [rows, 2]: how
// many tokens the cache holds of a row, and how many of its new ones count, from the first on. A number above
// q_len means q_len. More than q_len are q_len. What a row's results are depends on that row alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// Appends new keys and values to a cache, and o = softmax(q k^T / sqrt(head_dim)) v. New token i of a row
// that has `held` tokens looks at the keys 0 <= j <= held + i of its row; if `window` is not 0, at the newest
// `window` of these. Scores may be capped, as AttnShape's, and sinks be in the sum, as AttnFwd's. q and o are
// [rows * q_len, q_heads * head_dim]; kv is [rows * q_len, 2 * kv_heads * head_dim] with K in the first half
// of the columns and V in the second. The cache is [rows, 2, kv_heads, capacity, head_dim] with K before V.
// The o of a token that does not count is 0, and its key is not appended. Scores and sums are f32. REQUIRES:
// held + new tokens <= capacity.
struct CachedAttention {
  static constexpr std::string_view kName = "cached_attn";
  enum { kQ, kKv, kSpans, kCache, kO, kSinks };
  int64_t rows, q_len, capacity, q_heads, kv_heads, head_dim;
  DType dtype;
  int64_t window = 0;
  float softcap = 0;
  bool has_sinks = false;

  int64_t tokens() const { return rows * q_len; }
  int64_t cache_elements() const { return rows * 2 * kv_heads * capacity * head_dim; }
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
  }
};

// logits[r, v] = x[r * q_len + n - 1, :] . w[v, :], f32, where n is how many new tokens of row r count, or 1
// if none does; capped as in HeadLoss.
struct LastLogits {
  static constexpr std::string_view kName = "last_logits";
  enum { kX, kW, kSpans, kLogits };
  int64_t rows, q_len, dim, vocab;
  DType dtype;
  float softcap = 0;

  Operands operands() const;
  Work work() const {
    return {.unit = Unit::Memory, .flops = 2.0 * double(rows) * double(dim) * double(vocab)};
  }
  int64_t workspace_bytes(const GpuLibraries&) const { return 0; }
  double traffic() const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("dim", dim), f("vocab", vocab), f("dtype", dtype);
    if (softcap > 0) f("softcap", softcap, kNoCost);
  }
};

}  // namespace sluice::core
