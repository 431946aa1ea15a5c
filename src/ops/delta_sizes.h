// SPDX-License-Identifier: Apache-2.0
// Sizes of the gated delta rule: of models, which need not know the ops.
#pragma once

#include <cstdint>

namespace sluice::core {

// Consecutive value heads share a key head. REQUIRES: value_heads is a multiple of key_heads.
struct DeltaSizes {
  int64_t key_heads, value_heads, key_dim, value_dim;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t columns() const { return 2 * keys() + values(); }  // q, k and v of a token, in turn
  int64_t shared() const { return value_heads / key_heads; }
  int64_t head_state() const { return key_dim * value_dim; }
  int64_t state() const { return value_heads * head_state(); }
  constexpr void fields(auto&& f) const {
    f("hk", key_heads), f("hv", value_heads), f("dk", key_dim), f("dv", value_dim);
  }
  bool operator==(const DeltaSizes&) const = default;
};

}  // namespace sluice::core
