// SPDX-License-Identifier: Apache-2.0
// Sums that GPU kernels form in parts, which lie in the workspace: how many parts there are depends on the op
// alone, so that the bits do. No dependency, so that device code can include it.
#pragma once

#include <cstdint>

namespace sluice::core {

// Rows of partial sums of RmsNormBwd's dw, one per block: three on each of the 132 multiprocessors of an H100
// or H200.
constexpr int64_t norm_partials(int64_t tokens) {
  return tokens < 396 ? tokens : 396;
}
// Partial sums of HeadNormRopeBwd's dw: several blocks for each multiprocessor.
constexpr int64_t head_norm_partials(int64_t tokens) {
  return tokens < 1056 ? tokens : 1056;
}
// Partial sums of BiasGrad: 64 tokens or more each.
constexpr int64_t bias_partials(int64_t tokens) {
  const int64_t blocks = (tokens + 63) / 64;
  return blocks < 64 ? blocks : 64;
}
// Partial sums of ShortConvBwd's dw: 64 tokens or more each.
constexpr int64_t conv_partials(int64_t tokens) {
  return bias_partials(tokens);
}
// The same with SiLU, by a kernel that makes dx, too, and wants more threads.
constexpr int64_t silu_conv_partials(int64_t tokens) {
  const int64_t blocks = (tokens + 63) / 64;
  return blocks < 256 ? blocks : 256;
}
// Partial sums of DeltaGatesBwd's gradients of a_log and dt_bias: 64 tokens or more each.
constexpr int64_t delta_gate_partials(int64_t tokens) {
  return bias_partials(tokens);
}
// Columns of a gated delta rule's keys and states in tiles, slices of its values, which blocks of threads
// have, and states that its way back keeps.
constexpr int64_t delta_columns(int64_t key_dim, int64_t value_dim) {
  return key_dim <= 64 && value_dim <= 64 ? 64 : 128;
}
constexpr int kDeltaSlice = 32;
constexpr int64_t delta_slices(int64_t value_dim) {
  return (value_dim + kDeltaSlice - 1) / kDeltaSlice;
}
constexpr int64_t delta_kept_states(int64_t tokens) {
  return tokens / 64 + 2;
}
// Partial sums of Adafactor's columns: 64 rows or more each.
constexpr int64_t column_partials(int64_t rows) {
  return bias_partials(rows);
}
// Partial counts of SortByExpert: 1024 rows or more each.
constexpr int64_t sort_partials(int64_t rows) {
  const int64_t blocks = (rows + 1023) / 1024;
  return blocks < 256 ? blocks : 256;
}
// Splits of CachedAttention with few new tokens: one per so many keys from the text's beginning, so that no
// result depends on the capacity. More tokens need no splits.
constexpr int64_t kCacheSplit = 64, kSplitTokens = 8;
constexpr int64_t cache_splits(int64_t capacity) {
  return (capacity + kCacheSplit - 1) / kCacheSplit;
}
// Sums of SumSq, one per block.
constexpr int kSumSqPartials = 1024;

}  // namespace sluice::core
