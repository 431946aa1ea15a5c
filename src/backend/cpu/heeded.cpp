// SPDX-License-Identifier: Apache-2.0
// What the kernels of backend/cpu/kernels heed.
#include "backend/heeded.h"
#include "backend/cpu/cpu_backend.h"
#include "ops/cast.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

constexpr Heeded kHeeded[] = {
    {"embed", "tokens vocab dim dtype scale res"},
    {"embed_bwd", "tokens vocab dim dtype grad acc scale"},
    {"rms_norm", "tokens dim eps dtype offset scale res"},
    {"rms_norm_bwd", "tokens dim eps dtype grad acc res offset scale"},
    {"layer_norm", "tokens dim eps dtype w bias scale"},
    {"layer_norm_bwd", "tokens dim eps dtype grad w bias acc_dw acc_dbias res scale"},
    {"head_norm_rope", "tokens heads hd rest eps dtype rope_scale offset whole behind"},
    {"head_norm_rope_bwd", "tokens heads hd rest eps in dtype grad acc rope_scale offset whole behind"},
    {"short_conv", "tokens dim width dtype before tail silu"},
    {"short_conv_bwd", "tokens dim width dtype grad acc before tail silu"},
    {"cached_conv", "rows q capacity dim width dtype silu cache_rows"},
    {"linear", "tokens in out dtype res rope hd bias rope_scale still_scale beta context f32_result w x",
     kFloat8Alone},
    {"linear_dgrad", "tokens in out dtype acc res w dy", kFloat8Alone},
    {"linear_wgrad", "tokens in out dtype grad acc dy x", kFloat8Alone},
    {"bias_grad", "tokens out dtype grad acc"},
    {"attn_fwd", "rows q kv hq hkv hd dist packed dtype window softcap out merge sinks"},
    {"attn_bwd", "rows q kv hq hkv hd dist packed dtype window softcap grad acc_dq acc_dkv"},
    {"sink_grad", "rows q heads hd dtype grad acc"},
    {"rope", "tokens heads hd rest dtype rope_scale still_scale beta context"},
    {"rope_bwd", "tokens hq hkv hd in dtype rope_scale still_scale beta context"},
    {"cast", "n in dtype", kPackedFormats},
    {"quantize", "rows cols dtype to by_row by_column", kFloat8Alone},
    {"swiglu", "tokens dim dtype activation plain limit apart"},
    {"swiglu_bwd", "tokens dim dtype activation plain limit apart"},
    {"head_loss", "tokens dim vocab sub dtype grad acc_loss acc_dw fwd frozen weighted log_probs softcap"},
    {"gather_weights", "tokens first round"},
    {"sum_sq", "n slot slots dtype first"},
    {"clip_scale", "slots max"},
    {"adamw", "n first object b1 b2 eps wd dtype grad state master sr moments"},
    {"adamw_moments", "n first object b1 b2 grad state sr"},
    {"sgd_momentum", "n first object momentum wd nesterov dtype grad state master sr moments"},
    {"sgd_momentum_state", "n first object momentum grad state sr"},
    {"lion", "n first object b1 b2 wd dtype grad state master sr moments"},
    {"lion_state", "n first object b2 grad state sr"},
    {"muon", "rows cols first object momentum scale wd nesterov dtype grad state master sr"},
    {"adafactor",
     "rows cols first object decay eps eps_scale threshold wd scaled relative warmup dtype grad master sr"},
    {"cached_attn", "rows q capacity hq hkv hd dtype window softcap sinks cache_rows"},
    {"last_logits", "rows q dim vocab dtype softcap"},
    {"copy_rows", "rows elements dtype"},
    {"draw_tokens", "rows texts vocab"},
    {"add_gradients", "n left right dtype"},
    {"route", "tokens experts k score normalised bias scale dtype balance z n"},
    {"route_bwd", "tokens experts k dtype score normalised scale balance z n"},
    {"router_load", "tokens experts k acc_layer acc_round alone"},
    {"sort_by_expert", "tokens experts k"},
    {"grouped_linear", "tokens experts k first count in out dtype gathers acc bias"},
    {"grouped_dgrad", "tokens experts k first count in out dtype gathers acc"},
    {"grouped_wgrad", "tokens experts k first count in out dtype grad gathers_dy gathers_x acc"},
    {"grouped_bias_grad", "tokens experts k out dtype grad gathers acc"},
    {"combine_experts", "tokens experts k dim dtype gates res"},
    {"expert_glu_bwd", "tokens experts k dim dtype activation limit biased"},
    {"gated_add", "tokens dim dtype res"},
    {"gated_add_bwd", "tokens dim dtype"},
    {"dropout", "tokens width dtype rate first seq_len target acc"},
    {"low_rank", "tokens rank parts part first columns dtype scale res"},
    {"low_rank_dgrad", "tokens rank parts part first columns dtype scale"},
    {"low_rank_wgrad", "tokens rank parts part first columns dtype grad scale acc"},
    {"delta_gates", "tokens heads dtype"},
    {"delta_gates_bwd", "tokens heads dtype grad acc_a acc_dt"},
    {"delta_rule", "tokens hk hv dk dv dtype before after"},
    {"delta_rule_bwd", "tokens hk hv dk dv dtype before after"},
    {"cached_delta", "rows q capacity hk hv dk dv dtype cache_rows"},
    {"head_gate", "tokens heads hd dtype normed eps"},
    {"head_gate_bwd", "tokens heads hd dtype grad normed acc eps"},
    {"scale_by", "n dtype"},
    {"scale_gates", "tokens experts k dtype"},
    {"scale_gates_bwd", "tokens experts k dtype grad acc"},
    {"sum_over_processes", "n processes slot slots dtype first apart"},
    {"share_weight", "n processes owner dtype"},
};

}  // namespace

std::span<const Heeded> cpu_heeds() {
  return kHeeded;
}

}  // namespace sluice::core
