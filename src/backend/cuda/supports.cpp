// SPDX-License-Identifier: Apache-2.0
// What the kernels of backend/cuda/kernels and the libraries beside them take; the one place that says so.
// Part of builds with and without CUDA.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/limits.h"
#include "backend/support_table.h"
#include "ops/cast.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

using cuda::kMaxHeadDim, cuda::kMostGridRows;

void f32_with_f32(DType dtype, DType grad, Objection& o) {
  o.require(dtype != DType::F32 || grad == DType::F32, "bf16 gradients of f32; f32 is needed");
}
void only_bf16(bool holds, DType dtype, std::string_view what, Objection& o) {
  o.require(!holds || dtype == DType::BF16, fmt::format("{} in f32; bf16 is needed", what));
}

constexpr auto kF32Gradients = [](const auto& op, Objection& o) { f32_with_f32(op.dtype, op.grad_dtype, o); };
constexpr auto kNorm = [](const auto& op, Objection& o) { o.most("dim", op.dim, cuda::kMaxNormDim); };
// Results in 8 bits that are turned: rows of theirs are tokens.
void examine_turned(DType dtype, int64_t tokens, Objection& o) {
  only_bf16(true, dtype, "a result in 8 bits", o);
  o.multiple("tokens", tokens, 8);
}
// Heads that lanes share out in pairs of eight columns, or of four.
constexpr auto kHeadNorm = [](const auto& op, Objection& o) {
  o.most("hd", op.head_dim, kMaxHeadDim);
  if (op.head_dim > cuda::kMaxHeadDimOfEights) o.multiple("hd", op.head_dim, 16);
  o.require(!op.whole || op.behind == BehindHeads::Copied,
            "values that are normalised behind heads that are one row; heads of their own are needed");
};
constexpr auto kRope = [](const auto& op, Objection& o) { o.most("hd", op.head_dim, kMaxHeadDim); };
// So few columns need be no multiple of 8.
void columns(int64_t out, bool may_be_of_router, Objection& o) {
  if (!may_be_of_router || out > kMostExperts) o.multiple("out", out, 8);
}
// Both operands of a product in 8 bits are, and their rows, along its sum, are whole vectors.
void examine_narrow(DType dtype, const std::optional<NumberFormat>& one,
                    const std::optional<NumberFormat>& other, std::string_view name, int64_t length,
                    Objection& o) {
  if (!one && !other) return;
  o.require(one && other && one->block > 0 && other->block > 0,
            "a product of one operand in 8 bits, or without scales; both with scales are needed");
  only_bf16(true, dtype, "the result of a product in 8 bits", o);
  o.require(is_narrow(length), fmt::format("{} = {} of 8 bits; a multiple of 16 is needed", name, length));
  o.require(!other || other->type != DType::F8E5M2,
            "a product of f8e5m2 by f8e5m2; the library takes one of them in f8e4m3");
  const ComputeCapability capability = o.capability();
  o.require(
      !capability.known() || multiplies_float8(capability),
      fmt::format("products in 8 bits need a GPU of compute capability 8.9 or more, and this one has {}; "
                  "set train.compute = bf16",
                  capability.to_text()));
}
void examine_attention(const AttnShape& shape, Objection& o) {
  o.most("hd", shape.head_dim, kMaxHeadDim).most("rows", shape.rows, kMostGridRows);
  only_bf16(shape.softcap != 0, shape.dtype, "capped scores", o);
}
constexpr auto kConv = [](const auto& op, Objection& o) {
  o.most("width", op.width, kMostConvWidth);
  only_bf16(!op.silu, op.dtype, "a convolution with two gates", o);
};
constexpr auto kGate = [](const auto& op, Objection& o) {
  only_bf16(op.activation != GateActivation::Silu, op.dtype, "a gate other than SiLU", o);
};
constexpr auto kExpertRows = [](const auto& op, Objection& o) {
  o.most("tokens x k", op.mixture.rows(), cuda::kMostExpertRows);
};
constexpr auto kDelta = [](const auto& op, Objection& o) {
  o.most("dk", op.sizes.key_dim, cuda::kMaxDeltaDim).most("dv", op.sizes.value_dim, cuda::kMaxDeltaDim);
};
constexpr auto kHeadGate = [](const auto& op, Objection& o) {
  o.most("hd", op.head_dim, cuda::kMaxGatedHeadDim);
};

constexpr Support kTable[] = {
    row<Embed>("tokens vocab dim%8 dtype scale res"),
    row<EmbedBwd>("tokens vocab dim%8 dtype grad acc scale", kF32Gradients),
    row<RmsNorm>(
        "tokens dim%8 eps dtype offset scale res narrow",
        [](const RmsNorm& op, Objection& o) {
          kNorm(op, o);
          if (op.narrow) examine_turned(op.dtype, op.tokens, o);
        },
        kFloat8Alone),
    row<RmsNormBwd>("tokens dim%8 eps dtype grad acc res offset scale",
                    [](const RmsNormBwd& op, Objection& o) { kNorm(op, o), kF32Gradients(op, o); }),
    row<LayerNorm>("tokens dim%8 eps dtype:bf16 w bias scale", kNorm),
    row<LayerNormBwd>("tokens dim%8 eps dtype:bf16 grad w bias acc_dw acc_dbias res scale", kNorm),
    row<HeadNormRope>("tokens heads hd%8 rest%8 eps dtype:bf16 rope_scale offset whole behind", kHeadNorm),
    row<HeadNormRopeBwd>("tokens heads hd%8 rest%8 eps in dtype:bf16 grad acc rope_scale "
                         "offset whole behind",
                         kHeadNorm),
    row<ShortConv>("tokens dim%8 width dtype before tail silu", kConv),
    row<ShortConvBwd>("tokens dim%8 width dtype grad acc before tail silu",
                      [](const ShortConvBwd& op, Objection& o) { kConv(op, o), kF32Gradients(op, o); }),
    row<CachedConv>("rows q capacity dim%8 width dtype silu cache_rows",
                    [](const CachedConv& op, Objection& o) {
                      kConv(op, o);
                      o.most("rows", op.rows, kMostGridRows);
                    }),
    row<Linear>(
        "tokens in%8 out dtype res rope hd%8 bias rope_scale still_scale beta context f32_result w "
        "x",
        [](const Linear& op, Objection& o) {
          only_bf16(op.has_bias || op.rope_heads > 0, op.dtype, "a product with a bias or a rotation", o);
          columns(op.out, op.f32_result, o);
          o.most("hd", op.head_dim, kMaxHeadDim);
          examine_narrow(op.dtype, op.x_format, op.weight_format, "in", op.in, o);
          if (op.x_format) o.multiple("out", op.out, 8);
        },
        kFloat8Alone),
    row<LinearDgrad>(
        "tokens in%8 out dtype acc res w dy",
        [](const LinearDgrad& op, Objection& o) {
          columns(op.out, true, o);
          examine_narrow(op.dtype, op.dy_format, op.weight_format, "out", op.out, o);
        },
        kFloat8Kinds),
    row<LinearWgrad>(
        "tokens in%8 out dtype grad acc dy x",
        [](const LinearWgrad& op, Objection& o) {
          columns(op.out, true, o);
          kF32Gradients(op, o);
          examine_narrow(op.dtype, op.dy_format, op.x_format, "tokens", op.tokens, o);
        },
        kFloat8Kinds),
    row<BiasGrad>("tokens out%8 dtype:bf16 grad acc"),
    row<AttnFwd>("rows q kv hq hkv hd%8 dist packed dtype window softcap out merge sinks",
                 [](const AttnFwd& op, Objection& o) {
                   examine_attention(op.shape, o);
                   only_bf16(op.has_sinks, op.shape.dtype, "sinks", o);
                   o.require(op.shape.dtype == DType::BF16 || op.out_dtype == DType::F32,
                             "bf16 of f32; an f32 output is needed");
                   o.require(!op.merge || op.out_dtype == DType::F32,
                             "merging into bf16; an f32 output is needed");
                 }),
    row<AttnBwd>("rows q kv hq hkv hd%8 dist packed dtype window softcap grad acc_dq acc_dkv",
                 [](const AttnBwd& op, Objection& o) {
                   examine_attention(op.shape, o);
                   f32_with_f32(op.shape.dtype, op.grad_dtype, o);
                 }),
    row<SinkGrad>("rows q heads hd%8 dtype:bf16 grad acc"),
    row<Rope>("tokens heads hd%8 rest%8 dtype rope_scale still_scale beta context", kRope),
    row<RopeBwd>("tokens hq hkv hd%8 in dtype rope_scale still_scale beta context",
                 [](const RopeBwd& op, Objection& o) {
                   kRope(op, o);
                   f32_with_f32(op.dtype, op.in_dtype, o);
                 }),
    row<Cast>(
        "n in dtype first%8 all",
        [](const Cast& op, Objection& o) {
          const DType in = op.in.type;
          o.require(is_code(in) || in == DType::BF16 || in == DType::F32,
                    fmt::format("in = {}; bf16, f32 or codes are needed", name_of(in)));
          o.multiple("block", op.in.block, 8);
        },
        kPackedFormats),
    row<Quantize>(
        "rows cols%8 dtype:bf16 to by_row by_column",
        [](const Quantize& op, Objection& o) {
          if (op.by_column) {
            o.multiple("rows by column", op.rows, 8);
          } else {
            o.most("cols", op.cols, cuda::most_row_of_8_bits(o.capability().major));
          }
        },
        kFloat8Kinds),
    row<Swiglu>(
        "tokens dim%8 dtype activation plain limit apart narrow",
        [](const Swiglu& op, Objection& o) {
          kGate(op, o);
          if (!op.narrow) return;
          only_bf16(true, op.dtype, "a result in 8 bits", o);
          o.most("dim", op.dim, cuda::most_row_of_8_bits(o.capability().major));
        },
        kFloat8Alone),
    row<SwigluBwd>(
        "tokens dim%8 dtype activation plain limit apart narrow",
        [](const SwigluBwd& op, Objection& o) {
          kGate(op, o);
          if (op.narrow) examine_turned(op.dtype, op.tokens, o);
        },
        kFloat8Alone),
    row<HeadLoss>(
        "tokens dim%8 vocab sub dtype grad acc_loss acc_dw fwd frozen weighted log_probs softcap top x",
        [](const HeadLoss& op, Objection& o) {
          kF32Gradients(op, o);
          only_bf16(op.softcap != 0, op.dtype, "capped logits", o);
          o.most("top", op.top, HeadLoss::kMostTop);
          examine_narrow(op.dtype, op.x_format, op.x_format, "dim", op.dim, o);
          if (!op.x_format) return;
          o.multiple("vocab", op.vocab, 16);
          if (op.reads_turned()) o.multiple("tokens", op.tokens, 16);
          // Scales of a part's rows begin where the library takes them.
          if (op.sub_tokens < op.tokens) o.multiple("sub", op.sub_tokens, 16);
        },
        kFloat8Alone),
    row<GatherWeights>("tokens first round"),
    row<SumSq>("n slot slots dtype first"),
    row<ClipScale>("slots max"),
    row<AdamW>("n first object b1 b2 eps wd dtype grad state:bf16,f32,i8 master sr moments"),
    row<AdamWMoments>("n first object b1 b2 grad state:bf16,f32,i8 sr"),
    row<SgdMomentum>("n first object momentum wd nesterov dtype grad state:bf16,f32,i8 "
                     "master sr moments"),
    row<SgdMomentumState>("n first object momentum grad state:bf16,f32,i8 sr"),
    row<Lion>("n first object b1 b2 wd dtype grad state:bf16,f32,i8 master sr moments"),
    row<LionState>("n first object b2 grad state:bf16,f32,i8 sr"),
    row<Muon>("rows%8 cols%8 first%8 object momentum scale wd nesterov dtype:bf16 grad "
              "state:bf16,f32,i8 master sr"),
    row<Adafactor>(
        "rows cols first object decay eps eps_scale threshold wd scaled relative warmup dtype:bf16 "
        "grad master sr"),
    row<CachedAttention>("rows q capacity hq hkv hd%8 dtype:bf16 window softcap sinks cache_rows",
                         [](const CachedAttention& op, Objection& o) {
                           o.most("hd", op.head_dim, kMaxHeadDim).most("rows", op.rows, kMostGridRows);
                           o.most("query heads for each key head", op.q_heads / op.kv_heads,
                                  cuda::most_sharing(op.head_dim));
                         }),
    row<LastLogits>("rows q dim%8 vocab dtype:bf16 softcap"),
    row<CopyRows>("rows elements%8 dtype",
                  [](const CopyRows& op, Objection& o) { o.most("rows", op.rows, kMostGridRows); }),
    row<DrawTokens>("rows texts vocab"),
    row<AddGradients>("n left right dtype"),
    row<Route>("tokens experts k score normalised bias scale dtype balance z n"),
    row<RouteBwd>("tokens experts k dtype:bf16 score normalised scale balance z n"),
    row<RouterLoad>("tokens experts k acc_layer acc_round alone"),
    row<SortByExpert>("tokens experts k"),
    row<GroupedLinear>("tokens experts k first count in%8 out%8 dtype:bf16 gathers acc bias", kExpertRows),
    row<GroupedDgrad>("tokens experts k first count in%8 out%8 dtype:bf16 gathers acc", kExpertRows),
    row<GroupedWgrad>("tokens experts k first count in%8 out%8 dtype:bf16 grad gathers_dy gathers_x "
                      "acc",
                      kExpertRows),
    row<GroupedBiasGrad>("tokens experts k out%8 dtype:bf16 grad gathers acc"),
    row<CombineExperts>("tokens experts k dim%8 dtype:bf16 gates res"),
    row<ExpertGluBwd>("tokens experts k dim%8 dtype:bf16 activation limit biased%8"),
    row<GatedAdd>("tokens dim%8 dtype:bf16 res"),
    row<GatedAddBwd>("tokens dim%8 dtype:bf16"),
    row<Dropout>("tokens width%8 dtype:bf16 rate first seq_len target acc"),
    row<LowRank>("tokens rank%8 parts part%8 first%8 columns%8 dtype scale res"),
    row<LowRankDgrad>("tokens rank%8 parts part%8 first%8 columns%8 dtype scale"),
    row<LowRankWgrad>("tokens rank%8 parts part%8 first%8 columns%8 dtype grad scale acc", kF32Gradients),
    row<RowNorms>(
        "tokens rank parts part first columns in dtype scale",
        [](const RowNorms& op, Objection& o) { o.most("rank", op.sizes.rank, cuda::kMaxNormRank); }),
    row<Magnitude>("tokens columns%8 first%8 adapted%8 dtype bias res"),
    row<MagnitudeBwd>("tokens columns%8 first%8 adapted%8 dtype grad acc", kF32Gradients),
    row<GroupedLowRank>(
        "tokens experts k first count rank%8 parts part%8 at%8 columns%8 dtype:bf16 scale turned",
        kExpertRows),
    row<GroupedLowRankDgrad>(
        "tokens experts k first count rank%8 parts part%8 at%8 columns%8 dtype:bf16 scale gathers acc",
        kExpertRows),
    row<GroupedLowRankWgrad>(
        "tokens experts k first count rank%8 parts part%8 at%8 columns%8 dtype:bf16 grad scale gathers acc",
        kExpertRows),
    row<DeltaGates>("tokens heads dtype"),
    row<DeltaGatesBwd>("tokens heads dtype grad acc_a acc_dt", kF32Gradients),
    row<DeltaRule>("tokens hk hv dk%8 dv%8 dtype before after", kDelta),
    row<DeltaRuleBwd>("tokens hk hv dk%8 dv%8 dtype before after", kDelta),
    row<CachedDelta>("rows q capacity hk hv dk%8 dv%8 dtype cache_rows", kDelta),
    row<HeadGate>("tokens heads hd%8 dtype normed eps", kHeadGate),
    row<HeadGateBwd>("tokens heads hd%8 dtype grad normed acc eps",
                     [](const HeadGateBwd& op, Objection& o) { kHeadGate(op, o), kF32Gradients(op, o); }),
    row<ScaleBy>("n dtype"),
    row<ScaleGates>("tokens experts k dtype"),
    row<ScaleGatesBwd>("tokens experts k dtype grad acc"),
    row<SumOverProcesses>("n processes slot slots dtype first apart"),
    row<ShareWeight>("n processes owner dtype:bf16"),
};
static_assert(has_every_op(kTable));

}  // namespace

Status cuda_supports(const Op& op, ComputeCapability capability) {
  return check_support(kTable, "CUDA", op, capability);
}

}  // namespace sluice::core
