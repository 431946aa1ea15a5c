// SPDX-License-Identifier: Apache-2.0
// What the kernels of backend/cpu/kernels take; the one place that says so.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/rope.h"
#include "backend/support_table.h"
#include "ops/cast.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

constexpr auto kHeads = [](const auto& op, Objection& o) { o.most("hd", op.head_dim, cpu::kMaxHeadDim); };

constexpr Support kTable[] = {
    row<Embed>("tokens vocab dim dtype scale res"),
    row<EmbedBwd>("tokens vocab dim dtype grad acc scale"),
    row<RmsNorm>("tokens dim eps dtype offset scale res narrow", TakesAll(), kFloat8Alone),
    row<RmsNormBwd>("tokens dim eps dtype grad acc res offset scale"),
    row<LayerNorm>("tokens dim eps dtype w bias scale"),
    row<LayerNormBwd>("tokens dim eps dtype grad w bias acc_dw acc_dbias res scale"),
    row<HeadNormRope>("tokens heads hd rest eps dtype rope_scale offset whole behind", kHeads),
    row<HeadNormRopeBwd>("tokens heads hd rest eps in dtype grad acc rope_scale offset whole behind", kHeads),
    row<ShortConv>("tokens dim width dtype before tail silu"),
    row<ShortConvBwd>("tokens dim width dtype grad acc before tail silu"),
    row<CachedConv>("rows q capacity dim width dtype silu cache_rows"),
    row<Linear>("tokens in out dtype res rope hd bias rope_scale still_scale beta context f32_result w x",
                kHeads, kFloat8Alone),
    row<LinearDgrad>("tokens in out dtype acc res w dy", TakesAll(), kFloat8Kinds),
    row<LinearWgrad>("tokens in out dtype grad acc dy x", TakesAll(), kFloat8Kinds),
    row<BiasGrad>("tokens out dtype grad acc"),
    row<AttnFwd>("rows q kv hq hkv hd dist packed dtype window softcap out merge sinks"),
    row<AttnBwd>("rows q kv hq hkv hd dist packed dtype window softcap grad acc_dq acc_dkv"),
    row<SinkGrad>("rows q heads hd dtype grad acc"),
    row<Rope>("tokens heads hd rest dtype rope_scale still_scale beta context", kHeads),
    row<RopeBwd>("tokens hq hkv hd in dtype rope_scale still_scale beta context", kHeads),
    row<Cast>("n in dtype first all", TakesAll(), kPackedFormats),
    row<Quantize>("rows cols dtype to by_row by_column", TakesAll(), kFloat8Kinds),
    row<Swiglu>("tokens dim dtype activation plain limit apart narrow", TakesAll(), kFloat8Alone),
    row<SwigluBwd>("tokens dim dtype activation plain limit apart narrow", TakesAll(), kFloat8Alone),
    row<HeadLoss>(
        "tokens dim vocab sub dtype grad acc_loss acc_dw fwd frozen weighted log_probs softcap top x",
        [](const HeadLoss& op, Objection& o) { o.most("top", op.top, HeadLoss::kMostTop); }, kFloat8Alone),
    row<GatherWeights>("tokens first round"),
    row<SumSq>("n slot slots dtype first"),
    row<ClipScale>("slots max"),
    row<AdamW>("n first object b1 b2 eps wd dtype grad state:bf16,f32,i8 master sr moments"),
    row<AdamWMoments>("n first object b1 b2 grad state:bf16,f32,i8 sr"),
    row<SgdMomentum>("n first object momentum wd nesterov dtype grad state:bf16,f32,i8 master sr moments"),
    row<SgdMomentumState>("n first object momentum grad state:bf16,f32,i8 sr"),
    row<Lion>("n first object b1 b2 wd dtype grad state:bf16,f32,i8 master sr moments"),
    row<LionState>("n first object b2 grad state:bf16,f32,i8 sr"),
    row<Muon>("rows cols first object momentum scale wd nesterov dtype grad state:bf16,f32,i8 master sr"),
    row<Adafactor>("rows cols first object decay eps eps_scale threshold wd scaled relative warmup dtype "
                   "grad master sr"),
    row<CachedAttention>("rows q capacity hq hkv hd dtype window softcap sinks cache_rows"),
    row<LastLogits>("rows q dim vocab dtype softcap"),
    row<CopyRows>("rows elements dtype"),
    row<DrawTokens>("rows texts vocab"),
    row<AddGradients>("n left right dtype"),
    row<Route>("tokens experts k score normalised bias scale dtype balance z n"),
    row<RouteBwd>("tokens experts k dtype score normalised scale balance z n"),
    row<RouterLoad>("tokens experts k acc_layer acc_round alone"),
    row<SortByExpert>("tokens experts k"),
    row<GroupedLinear>("tokens experts k first count in out dtype gathers acc bias"),
    row<GroupedDgrad>("tokens experts k first count in out dtype gathers acc"),
    row<GroupedWgrad>("tokens experts k first count in out dtype grad gathers_dy gathers_x acc"),
    row<GroupedBiasGrad>("tokens experts k out dtype grad gathers acc"),
    row<CombineExperts>("tokens experts k dim dtype gates res"),
    row<ExpertGluBwd>("tokens experts k dim dtype activation limit biased"),
    row<GatedAdd>("tokens dim dtype res"),
    row<GatedAddBwd>("tokens dim dtype"),
    row<Dropout>("tokens width dtype rate first seq_len target acc"),
    row<LowRank>("tokens rank parts part first columns dtype scale res"),
    row<LowRankDgrad>("tokens rank parts part first columns dtype scale"),
    row<LowRankWgrad>("tokens rank parts part first columns dtype grad scale acc"),
    row<RowNorms>("tokens rank parts part first columns in dtype scale"),
    row<Magnitude>("tokens columns first adapted dtype bias res"),
    row<MagnitudeBwd>("tokens columns first adapted dtype grad acc"),
    row<GroupedLowRank>("tokens experts k first count rank parts part at columns dtype scale turned"),
    row<GroupedLowRankDgrad>(
        "tokens experts k first count rank parts part at columns dtype scale gathers acc"),
    row<GroupedLowRankWgrad>(
        "tokens experts k first count rank parts part at columns dtype grad scale gathers acc"),
    row<DeltaGates>("tokens heads dtype"),
    row<DeltaGatesBwd>("tokens heads dtype grad acc_a acc_dt"),
    row<DeltaRule>("tokens hk hv dk dv dtype before after"),
    row<DeltaRuleBwd>("tokens hk hv dk dv dtype before after"),
    row<CachedDelta>("rows q capacity hk hv dk dv dtype cache_rows"),
    row<HeadGate>("tokens heads hd dtype normed eps"),
    row<HeadGateBwd>("tokens heads hd dtype grad normed acc eps"),
    row<ScaleBy>("n dtype"),
    row<ScaleGates>("tokens experts k dtype"),
    row<ScaleGatesBwd>("tokens experts k dtype grad acc"),
    row<SumOverProcesses>("n processes slot slots dtype first apart"),
    row<ShareWeight>("n processes owner dtype"),
};
static_assert(has_every_op(kTable));

}  // namespace

Status cpu_supports(const Op& op) {
  return check_support(kTable, "CPU", op);
}

}  // namespace sluice::core
