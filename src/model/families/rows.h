// SPDX-License-Identifier: Apache-2.0
// The two parts of the table of families.
#pragma once

#include <span>

#include "model/families/family.h"

namespace sluice::core {

// Those whose layers have experts; rows.cpp has the others, and what looks into both.
std::span<const Family> families_with_experts();

// Names of `lfm2` and `lfm2_moe`; the first has no experts.
inline constexpr TensorNames kLfm2Names = {.norm = "model.embedding_norm",
                                           .o = "self_attn.out_proj",
                                           .q_norm = "self_attn.q_layernorm",
                                           .k_norm = "self_attn.k_layernorm",
                                           .gate = "feed_forward.w1",
                                           .up = "feed_forward.w3",
                                           .down = "feed_forward.w2",
                                           .router = "feed_forward.gate",
                                           .experts = "feed_forward.experts",
                                           .expert_gate = "w1",
                                           .expert_up = "w3",
                                           .expert_down = "w2",
                                           .selection_bias = "feed_forward.expert_bias",
                                           .norm1 = "operator_norm",
                                           .norm2 = "ffn_norm"};

}  // namespace sluice::core
