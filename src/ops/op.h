// SPDX-License-Identifier: Apache-2.0
// The schema of every op: attributes, operands with their access, FLOPs and bytes. No kernels here.
//
// An op is a plain struct of attributes in the header of its family, and its members say all that others need
// to know of it. An op that leaves something out does not compile (OpSchema). Its operands come in a fixed
// order, named by the struct's enum; the same order is used by Task::uses in a Program and by the operand
// span a backend receives. Matrices are row-major; weights are [out, in] as in Hugging Face checkpoints;
// `tokens` counts all rows of a chunk.
//
// Every op is a pure function of the operands it reads: running it again on the same bytes writes the same
// bits (on one backend). Recomputation and bit-identical results under every plan rest on this.
#pragma once

#include <concepts>
#include <string_view>
#include <utility>
#include <variant>

#include "ops/attention.h"
#include "ops/cast.h"
#include "ops/conv.h"
#include "ops/delta.h"
#include "ops/dropout.h"
#include "ops/embed.h"
#include "ops/exchange.h"
#include "ops/experts.h"
#include "ops/generation.h"
#include "ops/gpu_workspace.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/low_rank.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/operand.h"
#include "ops/ops.h"
#include "ops/step_args.h"
#include "ops/tensor_update.h"
#include "ops/update.h"
#include "ops/work.h"

namespace sluice::core {

using AnyOp =
    std::variant<Embed, EmbedBwd, RmsNorm, RmsNormBwd, Linear, LinearDgrad, LinearWgrad, AttnFwd, AttnBwd,
                 Rope, RopeBwd, Cast, Swiglu, SwigluBwd, HeadLoss, SumSq, ClipScale, AdamW, AdamWMoments,
                 SgdMomentum, SgdMomentumState, Lion, LionState, BiasGrad, HeadNormRope, HeadNormRopeBwd,
                 CachedAttention, LastLogits, GatherWeights, LayerNorm, LayerNormBwd, AddGradients,
                 SumOverProcesses, ShareWeight, ShortConv, ShortConvBwd, CachedConv, SinkGrad, Adafactor,
                 Muon, Route, RouteBwd, RouterLoad, SortByExpert, GroupedLinear, GroupedDgrad, GroupedWgrad,
                 GroupedBiasGrad, CombineExperts, ExpertGluBwd, GatedAdd, GatedAddBwd, LowRank, LowRankDgrad,
                 LowRankWgrad, DeltaGates, DeltaGatesBwd, DeltaRule, DeltaRuleBwd, CachedDelta, HeadGate,
                 HeadGateBwd, ScaleBy, ScaleGates, ScaleGatesBwd, Dropout, Quantize, CopyRows, DrawTokens,
                 RowNorms, Magnitude, MagnitudeBwd, GroupedLowRank, GroupedLowRankDgrad, GroupedLowRankWgrad>;

// A struct, so that it can be declared without its attributes (ops/ops.h).
struct Op : AnyOp {
  using AnyOp::AnyOp;
};

template <class T>
requires requires {
  T::kName;
}
SharedOp::SharedOp(T op) : SharedOp(Op(std::move(op))) {}

// The members of every op. It also says work(), where it multiplies matrices or passes over them more than
// once; workspace_bytes(), where it needs some; traffic(), where it does not move every operand once; and
// kLane, where it does not compute.
template <class T>
concept OpSchema = requires(const T& op) {
  { T::kName } -> std::convertible_to<std::string_view>;
  { op.operands() } -> std::same_as<Operands>;
  // f(name, value), or f(name, value, kNoCost) or (.., kOfStep), for every attribute, always in the same
  // order. One that came later may be left out where it has its default, so that what is kept of ops before
  // it still holds. One that is forgotten does not compile (ops/fields.h).
  op.fields([](std::string_view, auto, auto...) {});
};
template <class T>
constexpr bool all_are_schemas = false;
template <class... T>
constexpr bool all_are_schemas<std::variant<T...>> = (OpSchema<T> && ...);
static_assert(all_are_schemas<AnyOp>);

}  // namespace sluice::core
