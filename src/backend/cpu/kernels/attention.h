// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward kernel of attention share.
//
// Both work on blocks of 64 queries by 64 keys, with scores stored transposed, scores[key][query]: a
// vector holds 16 queries, so maxima and sums over keys need no horizontal operation. Scores are kept in
// base 2.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "ops/attention.h"

namespace sluice::core::cpu {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 64;

// A masked score, and the least running maximum: so far below that 2^(masked - maximum) is exactly 0 even for
// a query that has seen no key yet.
constexpr float kMasked = -3e38f;
constexpr float kLowest = -1e30f;

// Rows of copies are padded to whole vectors.
inline int64_t padded_head_dim(const AttnShape& s) {
  return align_up(s.head_dim, 16);
}
// Whether products are made of tiles of bf16 (tiles.h), which heads must fill.
inline bool is_tiled(CpuIsa isa, const AttnShape& s) {
  return isa >= CpuIsa::Avx512Bf16 && s.dtype == DType::BF16 && s.head_dim % 32 == 0;
}
inline float score_scale(const AttnShape& s) {
  return 1.0f / std::sqrt(static_cast<float>(s.head_dim));
}

// The keys that each query of a block may look at, low[i] <= j <= high[i], and what follows for the block.
struct Visible {
  int32_t low[kQueryBlock], high[kQueryBlock];
  int32_t low_min, low_max, high_min, high_max;

  // Queries [first, first + count) of a row whose positions are `pos`, as many `together` of each token; the
  // block's other queries see nothing.
  void set(const AttnShape& s, const int32_t* pos, int64_t first, int64_t count, int64_t together = 1) {
    low_min = high_min = INT32_MAX;
    low_max = high_max = INT32_MIN;
    for (int64_t i = 0; i < kQueryBlock; ++i) {
      if (i >= count) {
        low[i] = INT32_MAX;
        high[i] = -1;
        continue;
      }
      const int64_t token = (first + i) / together;
      const auto query = static_cast<int32_t>(s.distance + token);
      low[i] = s.packed ? query - pos[token] : 0;
      if (s.window > 0) low[i] = static_cast<int32_t>(std::max(int64_t{low[i]}, query - s.window + 1));
      high[i] = query;
      low_min = std::min(low_min, low[i]);
      low_max = std::max(low_max, low[i]);
      high_min = std::min(high_min, high[i]);
      high_max = std::max(high_max, high[i]);
    }
  }
  // Keys [first, first + count).
  bool none(int64_t first, int64_t count) const { return first + count <= low_min || first > high_max; }
  bool all(int64_t first, int64_t count) const { return first >= low_max && first + count - 1 <= high_min; }
};

// Queries of a text over keys of its own, from its first token on, by what training computes with
// (attention_fwd.cpp): a query has the bits that it has there.
struct TextQueries {
  AttnShape shape;                  // of one row, not packed; `distance` tokens come before the first query's
  const void* q;                    // [queries, head_dim], with so many elements from one to the next
  const void *k, *v;                // [kv_len, head_dim]
  void* o;                          // as q
  int64_t stride, together, count;  // queries of a token, which are of as many heads, and all of them
  float sink;                       // -inf: none
};
// At most so many at once.
constexpr int64_t kMostTextQueries = 256;
int64_t text_scratch_bytes(const AttnShape& shape);
void attend_to_text(const TextQueries& queries, CpuIsa isa, std::byte* scratch);

}  // namespace sluice::core::cpu
