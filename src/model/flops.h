// The one place for model FLOP formulas.
#pragma once

#include "model/llama.h"

namespace sluice {

// Training FLOPs per token (forward + backward, multiply-add = 2), causal attention counted half:
//   L (6 D (2 Q + 2 K + 3 F) + 6 S Q) + 6 D V
// with D model dim, Q = heads * head_dim, K = kv_heads * head_dim, F ffn dim, V vocabulary, L layers, S
// sequence length. For Q == D this is the formula that published numbers use.
inline double model_flops_per_token(const LlamaConfig& c, int64_t seq_len) {
  const double d = double(c.dim), q = double(c.q_dim()), k = double(c.kv_dim());
  return double(c.layers) * (6 * d * (2 * q + 2 * k + 3 * double(c.ffn)) + 6 * double(seq_len) * q) +
         6 * d * double(c.vocab);
}

}  // namespace sluice
