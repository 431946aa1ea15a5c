// SPDX-License-Identifier: Apache-2.0
// The one place for model FLOP formulas.
#pragma once

#include "model/spec.h"

namespace sluice::core {

// Training FLOPs per token (forward + backward, multiply-add = 2), causal attention counted half:
//   sum over layers of (6 D (2 Q + 2 K + 3 F) + 6 S Q) + 6 D V
// with D model dim, Q = heads * head_dim, K = kv_heads * head_dim, F ffn dim, V vocabulary, S sequence
// length. For Q == D this is the formula that published numbers use. In a layer with a window of W < S tokens
// W (2 - W / S) takes the place of S: twice the tokens that one attends to, on average.
inline double model_flops_per_token(const ModelSpec& spec, int64_t seq_len) {
  const double d = double(spec.dim);
  double flops = 6 * d * double(spec.vocab);
  for (const LayerSpec& layer : spec.layers) {
    const double q = double(layer.attention.q_dim()), k = double(layer.attention.kv_dim());
    const double window = double(layer.attention.window);
    const bool cut = window > 0 && window < double(seq_len);
    const double seen_twice = cut ? window * (2 - window / double(seq_len)) : double(seq_len);
    flops += 6 * d * (2 * q + 2 * k + 3 * double(layer.mlp.ffn)) + 6 * seen_twice * q;
  }
  return flops;
}

}  // namespace sluice::core
