// SPDX-License-Identifier: Apache-2.0
// What the kernels take; the one place that says so.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels/kernels.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

struct Row {
  std::string_view name;
  int64_t length;
};

// Collects the first objection.
class Objection {
 public:
  Objection& activations(DType dtype) {
    if (dtype != DType::BF16) object("{} activations and parameters; bf16 is needed", name_of(dtype));
    return *this;
  }
  // Also takes ops that measured f32 steps have. Gradients of f32 are f32.
  Objection& activations_or_f32(DType dtype, DType grad) {
    floating("activations and parameters", dtype).floating("gradients", grad);
    if (dtype == DType::F32 && grad != DType::F32)
      object("{} gradients of f32; f32 is needed", name_of(grad));
    return *this;
  }
  Objection& activations_or_f32(DType dtype) { return activations_or_f32(dtype, dtype); }
  Objection& floating(std::string_view what, DType dtype) {
    if (dtype != DType::BF16 && dtype != DType::F32)
      object("{} {}; bf16 or f32 is needed", name_of(dtype), what);
    return *this;
  }
  Objection& rows(std::initializer_list<Row> rows) {
    for (const auto& [name, length] : rows) {
      if (length % 8 != 0) object("{} = {}; a multiple of 8 is needed", name, length);
    }
    return *this;
  }
  Objection& most(std::string_view name, int64_t value, int64_t limit) {
    if (value > limit) object("{} = {}; at most {} is supported", name, value, limit);
    return *this;
  }
  // Heads that lanes share out in pairs of eight columns, or of four.
  Objection& head_dim(int64_t value) {
    rows({{"head_dim", value}}).most("head_dim", value, cuda::kMaxHeadDim);
    if (value > cuda::kMaxHeadDimOfEights && value % 16 != 0)
      object("head_dim = {}; above {} a multiple of 16 is needed", value, cuda::kMaxHeadDimOfEights);
    return *this;
  }
  Objection& require(bool holds, std::string_view otherwise) {
    if (!holds) object("{}", otherwise);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  template <class... Args>
  void object(fmt::format_string<Args...> format, Args&&... args) {
    if (text_.empty()) text_ = fmt::format(format, std::forward<Args>(args)...);
  }
  std::string text_;
};

void examine(const Embed& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"dim", op.dim}});
}
void examine(const EmbedBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype).rows({{"dim", op.dim}});
}
void examine(const RmsNorm& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"dim", op.dim}}).most("dim", op.dim, cuda::kMaxNormDim);
}
void examine(const RmsNormBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype)
      .rows({{"dim", op.dim}})
      .most("dim", op.dim, cuda::kMaxNormDim);
}
void examine(const LayerNorm& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}}).most("dim", op.dim, cuda::kMaxNormDim);
}
void examine(const LayerNormBwd& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype);
  o.rows({{"dim", op.dim}}).most("dim", op.dim, cuda::kMaxNormDim);
}
// Both operands of a product in 8 bits are, and their rows are whole vectors.
void examine_narrow(DType dtype, const std::optional<Format>& one, const std::optional<Format>& other,
                    std::initializer_list<Row> rows, Objection& o) {
  if (!one && !other) return;
  o.require(one && other && one->block > 0 && other->block > 0,
            "a product of one operand in 8 bits, or without scales; both with scales are needed");
  o.activations(dtype);
  for (const auto& [name, length] : rows)
    o.require(is_narrow(length), fmt::format("{} = {} of 8 bits; a multiple of 16 is needed", name, length));
}
// So few columns need be no multiple of 8.
bool are_of_routers(int64_t columns) {
  return columns <= kMostExperts;
}
void examine(const Linear& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"in", op.in}, {"head_dim", op.head_dim}});
  o.require(op.dtype == DType::BF16 || (!op.has_bias && op.rope_heads == 0),
            "a product in f32 with a bias or a rotation; bf16 is needed");
  if (!op.f32_result || !are_of_routers(op.out)) o.rows({{"out", op.out}});
  o.most("head_dim", op.head_dim, cuda::kMaxHeadDim);
  examine_narrow(op.dtype, op.x_format, op.weight_format, {{"in", op.in}}, o);
}
void examine(const Route&, Objection&) {}
void examine(const RouteBwd& op, Objection& o) {
  o.activations(op.dtype);
}
void examine(const RouterLoad&, Objection&) {}
void examine(const SortByExpert&, Objection&) {}
void examine(const GroupedLinear& op, Objection& o) {
  o.activations(op.dtype).rows({{"in", op.in}, {"out", op.out}});
  o.most("tokens x top_k", op.mixture.rows(), cuda::kMostExpertRows);
}
void examine(const GroupedDgrad& op, Objection& o) {
  o.activations(op.dtype).rows({{"in", op.in}, {"out", op.out}});
  o.most("tokens x top_k", op.mixture.rows(), cuda::kMostExpertRows);
}
void examine(const GroupedWgrad& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype).rows({{"in", op.in}, {"out", op.out}});
  o.most("tokens x top_k", op.mixture.rows(), cuda::kMostExpertRows);
}
void examine(const GroupedBiasGrad& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype).rows({{"out", op.out}});
}
void examine(const CombineExperts& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}});
}
void examine(const ExpertGluBwd& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}, {"columns of the bias", op.biased}});
}
void examine(const GatedAdd& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}});
}
void examine(const GatedAddBwd& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}});
}
void examine(const LinearDgrad& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"in", op.in}});
  if (!are_of_routers(op.out)) o.rows({{"out", op.out}});
  examine_narrow(op.dtype, op.dy_format, op.weight_format, {{"out", op.out}}, o);
}
void examine(const LinearWgrad& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype).rows({{"in", op.in}});
  if (!are_of_routers(op.out)) o.rows({{"out", op.out}});
  examine_narrow(op.dtype, op.dy_format, op.x_format, {{"tokens", op.tokens}}, o);
}
void examine_sizes(const LowRankSizes& sizes, Objection& o) {
  o.rows({{"rank", sizes.rank}, {"part", sizes.part}, {"first", sizes.first}, {"columns", sizes.columns}});
}
void examine(const Dropout& op, Objection& o) {
  o.activations(op.dtype).rows({{"width", op.width}});
}
void examine(const LowRank& op, Objection& o) {
  o.activations_or_f32(op.dtype);
  examine_sizes(op.sizes, o);
}
void examine(const LowRankDgrad& op, Objection& o) {
  o.activations_or_f32(op.dtype);
  examine_sizes(op.sizes, o);
}
void examine(const LowRankWgrad& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype);
  examine_sizes(op.sizes, o);
}
void examine(const BiasGrad& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype).rows({{"out", op.out}});
}
constexpr std::string_view kNoneBehindWhole =
    "values that are normalised behind heads that are one row; heads of their own are needed";
void examine(const HeadNormRope& op, Objection& o) {
  o.activations(op.dtype).rows({{"rest", op.rest}}).head_dim(op.head_dim);
  o.require(!op.whole || op.behind == BehindHeads::Copied, kNoneBehindWhole);
}
void examine(const HeadNormRopeBwd& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.in_dtype).floating("weight gradients", op.grad_dtype);
  o.rows({{"rest", op.rest}}).head_dim(op.head_dim);
  o.require(!op.whole || op.behind == BehindHeads::Copied, kNoneBehindWhole);
}
void examine(const AttnShape& shape, Objection& o) {
  o.activations_or_f32(shape.dtype).rows({{"head_dim", shape.head_dim}});
  o.most("head_dim", shape.head_dim, cuda::kMaxHeadDim).most("rows", shape.rows, 65535);
  o.require(shape.dtype == DType::BF16 || shape.softcap == 0, "capped scores in f32; bf16 is needed");
}
void examine(const AttnFwd& op, Objection& o) {
  examine(op.shape, o);
  o.floating("output", op.out_dtype);
  o.require(op.shape.dtype == DType::BF16 || !op.has_sinks, "sinks in f32; bf16 is needed");
  o.require(op.shape.dtype == DType::BF16 || op.out_dtype == DType::F32,
            "bf16 of f32; an f32 output is needed");
  o.require(!op.merge || op.out_dtype == DType::F32, "merging into bf16; an f32 output is needed");
}
void examine(const SinkGrad& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype).rows({{"head_dim", op.head_dim}});
}
void examine(const AttnBwd& op, Objection& o) {
  examine(op.shape, o);
  o.activations_or_f32(op.shape.dtype, op.grad_dtype);
}
void examine(const Rope& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"head_dim", op.head_dim}, {"rest", op.rest}});
  o.most("head_dim", op.head_dim, cuda::kMaxHeadDim);
}
void examine(const RopeBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.in_dtype).rows({{"head_dim", op.head_dim}});
  o.most("head_dim", op.head_dim, cuda::kMaxHeadDim);
}
void examine(const Cast& op, Objection& o) {
  if (!is_code(op.in.type)) o.floating("input", op.in.type);
  o.rows({{"block", int64_t{op.in.block}}}).floating("output", op.dtype);
}
void examine(const Quantize& op, Objection& o) {
  o.activations(op.dtype).rows({{"cols", op.cols}});
  if (op.by_column) {
    o.rows({{"rows", op.rows}});
  } else {
    o.most("cols", op.cols, cuda::kMostRowOf8Bits);
  }
}
void examine_gate(const auto& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"dim", op.dim}});
  o.require(op.dtype == DType::BF16 || op.activation == GateActivation::Silu,
            "a gate other than SiLU in f32; bf16 is needed");
}
void examine(const Swiglu& op, Objection& o) {
  examine_gate(op, o);
}
void examine(const SwigluBwd& op, Objection& o) {
  examine_gate(op, o);
}
void examine(const HeadLoss& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype).rows({{"dim", op.dim}});
  o.require(op.dtype == DType::BF16 || op.softcap == 0, "capped logits in f32; bf16 is needed");
}
void examine(const GatherWeights&, Objection&) {}
void examine(const CachedAttention& op, Objection& o) {
  o.activations(op.dtype).rows({{"head_dim", op.head_dim}});
  o.most("head_dim", op.head_dim, cuda::kMaxHeadDim).most("rows", op.rows, 65535);
  o.most("query heads for each key head", op.q_heads / op.kv_heads, cuda::most_sharing(op.head_dim));
}
void examine_conv(const auto& op, Objection& o) {
  o.rows({{"dim", op.dim}}).most("width", op.width, kMostConvWidth);
  o.require(op.silu || op.dtype == DType::BF16, "a convolution with two gates in f32; bf16 is needed");
}
void examine(const ShortConv& op, Objection& o) {
  o.activations_or_f32(op.dtype);
  examine_conv(op, o);
}
void examine(const ShortConvBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype);
  examine_conv(op, o);
}
void examine(const CachedConv& op, Objection& o) {
  o.activations_or_f32(op.dtype);
  examine_conv(op, o);
  o.most("rows", op.rows, 65535);
}
void examine(const DeltaGates&, Objection&) {}
void examine(const DeltaGatesBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype);
}
void examine_delta(const auto& op, Objection& o) {
  o.activations_or_f32(op.dtype).rows({{"key_dim", op.sizes.key_dim}, {"value_dim", op.sizes.value_dim}});
  o.most("key_dim", op.sizes.key_dim, cuda::kMaxDeltaDim)
      .most("value_dim", op.sizes.value_dim, cuda::kMaxDeltaDim);
}
void examine(const DeltaRule& op, Objection& o) {
  examine_delta(op, o);
}
void examine(const DeltaRuleBwd& op, Objection& o) {
  examine_delta(op, o);
}
void examine(const CachedDelta& op, Objection& o) {
  examine_delta(op, o);
}
void examine_head_gate(const auto& op, Objection& o) {
  o.rows({{"head_dim", op.head_dim}}).most("head_dim", op.head_dim, cuda::kMaxGatedHeadDim);
}
void examine(const HeadGate& op, Objection& o) {
  o.activations_or_f32(op.dtype);
  examine_head_gate(op, o);
}
void examine(const HeadGateBwd& op, Objection& o) {
  o.activations_or_f32(op.dtype, op.grad_dtype);
  examine_head_gate(op, o);
}
void examine(const ScaleBy& op, Objection& o) {
  o.activations_or_f32(op.dtype);
}
void examine(const ScaleGates& op, Objection& o) {
  o.floating("scales", op.dtype);
}
void examine(const ScaleGatesBwd& op, Objection& o) {
  o.floating("scales", op.dtype).floating("gradients", op.grad_dtype);
}
void examine(const LastLogits& op, Objection& o) {
  o.activations(op.dtype).rows({{"dim", op.dim}});
}
void examine(const CopyRows& op, Objection& o) {
  o.floating("rows", op.dtype).rows({{"elements", op.elements}}).most("rows", op.rows, 65535);
}
void examine(const DrawTokens&, Objection&) {}
void examine(const SumSq& op, Objection& o) {
  o.floating("gradients", op.dtype);
}
void examine(const ClipScale&, Objection&) {}
void examine(const AddGradients& op, Objection& o) {
  o.floating("left", op.left).floating("right", op.right).floating("sum", op.dtype);
}
void examine(const SumOverProcesses& op, Objection& o) {
  o.floating("gradients", op.dtype);
}
void examine(const ShareWeight& op, Objection& o) {
  o.activations(op.dtype);
}
void examine_update(const auto& op, Objection& o) {
  if constexpr (requires { op.dtype; }) o.floating("parameters", op.dtype);
  o.floating("gradients", op.grad_dtype);
  if (op.state_dtype != DType::I8) o.floating("state", op.state_dtype);
}
void examine(const AdamW& op, Objection& o) {
  examine_update(op, o);
}
void examine(const AdamWMoments& op, Objection& o) {
  examine_update(op, o);
}
void examine(const SgdMomentum& op, Objection& o) {
  examine_update(op, o);
}
void examine(const SgdMomentumState& op, Objection& o) {
  examine_update(op, o);
}
void examine(const Lion& op, Objection& o) {
  examine_update(op, o);
}
void examine(const LionState& op, Objection& o) {
  examine_update(op, o);
}
void examine(const Muon& op, Objection& o) {
  examine_update(op, o);
  o.activations(op.dtype).rows({{"rows", op.rows}, {"cols", op.cols}, {"first", op.first}});
}
void examine(const Adafactor& op, Objection& o) {
  o.activations(op.dtype).floating("gradients", op.grad_dtype);
}

}  // namespace

Status cuda_supports(const Op& op) {
  SLUICE_TRY(check_heeded(cuda_heeds(), "CUDA", op));
  Objection objection;
  std::visit([&](const auto& o) { examine(o, objection); }, op);
  if (objection.text().empty()) return {};
  return error("the CUDA backend cannot run \"{}\": {}", to_text(op), objection.text());
}

}  // namespace sluice::core
