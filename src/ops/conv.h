// SPDX-License-Identifier: Apache-2.0
// Depthwise causal convolution: over a chunk, its gradient, and over new tokens of texts that are generated.
//
// With two gates, as layers of LFM2 have it in place of attention, the input has three blocks of `dim`
// columns, B, C and X. With u[t] = B[t] X[t], rounded to dtype,
//
//   y[t] = C[t] s[t],  s[t] = the sum over j < width of w[:, width - 1 - j] u[t - j],
//
// elementwise, where only tokens of t's own document count: j <= pos[t]. Sums are f32. If `silu`, as before a
// gated delta rule, the input is u itself, and y[t] = s[t] sigmoid(s[t]).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "ops/operand.h"
#include "ops/work.h"

namespace sluice::core {

// The widest: how many rows a thread keeps at hand.
constexpr int64_t kMostConvWidth = 8;

// A chunk that is a piece of a sequence: `before` has the u of the width - 1 tokens before it. `tail` gets
// the u of its own last ones, [width - 1, dim], for the next piece. REQUIRES: then tokens >= width - 1.
struct ShortConv {
  static constexpr std::string_view kName = "short_conv";
  enum { kBcx, kW, kPos, kY };  // then before and tail, where they are
  int64_t tokens, dim, width;
  DType dtype;
  bool has_before = false, has_tail = false;
  bool silu = false;

  int64_t columns() const { return silu ? dim : 3 * dim; }  // of the input
  int before_operand() const { return kY + 1; }
  int tail_operand() const { return before_operand() + (has_before ? 1 : 0); }
  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("width", width), f("dtype", dtype), f("before", has_before),
        f("tail", has_tail);
    if (silu) f("silu", silu);
  }
};

// Gradients of ShortConv with respect to its input, w, and what came before.
struct ShortConvBwd {
  static constexpr std::string_view kName = "short_conv_bwd";
  enum { kBcx, kW, kPos, kDy, kDbcx, kDw };  // then before and d_before, and d_tail
  int64_t tokens, dim, width;
  DType dtype, grad_dtype;
  bool accumulate;  // dw
  bool has_before = false, has_tail = false;
  bool silu = false;

  int64_t columns() const { return silu ? dim : 3 * dim; }
  int before_operand() const { return kDw + 1; }
  int d_before_operand() const { return before_operand() + 1; }
  int d_tail_operand() const { return kDw + 1 + (has_before ? 2 : 0); }
  Operands operands() const;
  int64_t workspace_bytes(const GpuLibraries&) const;
  constexpr void fields(auto&& f) const {
    f("tokens", tokens), f("dim", dim), f("width", width), f("dtype", dtype), f("grad", grad_dtype),
        f("acc", accumulate), f("before", has_before), f("tail", has_tail);
    if (silu) f("silu", silu);
  }
};

// New tokens of `rows` texts, as in CachedAttention. The cache holds the u of the last width - 1 tokens of
// each, [rows, width - 1, dim]. A text without earlier tokens does not read it. A token that does not count
// has y = 0.
struct CachedConv {
  static constexpr std::string_view kName = "cached_conv";
  enum { kBcx, kW, kSpans, kCache, kY, kSlots };  // kSlots: if there are cache_rows
  int64_t rows, q_len, capacity, dim, width;
  DType dtype;
  bool silu = false;
  int64_t cache_rows = 0;  // 0: text r has row r of the cache

  int64_t tokens() const { return rows * q_len; }
  int64_t columns() const { return silu ? dim : 3 * dim; }
  Operands operands() const;
  constexpr void fields(auto&& f) const {
    f("rows", rows), f("q", q_len), f("capacity", capacity), f("dim", dim), f("width", width),
        f("dtype", dtype);
    if (silu) f("silu", silu);
    if (cache_rows > 0) f("cache_rows", cache_rows);
  }
};

}  // namespace sluice::core
