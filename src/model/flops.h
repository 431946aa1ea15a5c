// SPDX-License-Identifier: Apache-2.0
// The one place for model FLOP formulas.
#pragma once

#include "model/spec.h"

namespace sluice::core {

// Training FLOPs per token (forward + backward, multiply-add = 2), causal attention counted half:
//   sum over layers of (6 D (2 Q + 2 K + 3 F) + 6 S Q) + 6 D V
// with D model dim, Q = heads * head_dim, K = kv_heads * head_dim, F ffn dim (a third less where there are no
// gates), V vocabulary, S sequence length. For Q == D this is the formula that published numbers use. In a
// layer with a window of W < S tokens W (2 - W / S) takes the place of S: twice the tokens that one attends
// to, on average.
//
// Frozen weights take less: a third of a matrix that is not trained, and two thirds of all before the first
// weight that is trained, to which no gradient goes.
double model_flops_per_token(const ModelSpec& spec, int64_t seq_len);

}  // namespace sluice::core
