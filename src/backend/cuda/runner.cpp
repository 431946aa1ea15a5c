// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/runner.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/device_type.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runner_call.h"
#include "ops/packed.h"

namespace sluice::core::cuda {
namespace {

// Ops of a pass over few tokens take less time than it takes to start one after the other has ended. What
// begins early runs functions that take a Queue (kernels.h) and nothing else.
constexpr int64_t kBriefTokens = 512;

bool begins_early(const Linear& op, bool exact) {
  return has_few_rows(op) && !exact;
}
bool begins_early(const RmsNorm& op, bool) {
  return !op.narrow && op.tokens <= kBriefTokens;
}
bool begins_early(const LayerNorm& op, bool) {
  return op.tokens <= kBriefTokens;
}
bool begins_early(const HeadNormRope& op, bool) {
  return op.tokens <= kBriefTokens;
}
bool begins_early(const Swiglu& op, bool) {
  return !op.narrow && op.tokens <= kBriefTokens;
}
bool begins_early(const CachedAttention& op, bool) {
  return op.tokens() <= kBriefTokens;
}
bool begins_early(const LastLogits& op, bool exact) {
  return op.rows <= kFewRows && !exact;
}
bool begins_early(const auto&, bool) {
  return false;
}

// Whether an op ends with a kernel that writes nothing which one that begins early reads before it waits.
template <class O>
bool lets_begin(const O& op, bool exact) {
  return std::is_same_v<O, Linear> || begins_early(op, exact);
}

GateForm form_of(const auto& op) {
  return {activation_of(op.activation), op.limit};
}
template <class T>
GateRows<T> rows_of(const auto& op, const T* gu, const Buffer* up) {
  return {gu, op.plain ? nullptr : up != nullptr ? up->as<T>() : gu + op.dim, op.columns()};
}

HeadShape shape_of(const auto& op) {
  const bool copied = op.behind == BehindHeads::Copied;
  return {int(op.heads),
          int(op.head_dim),
          copied ? 0 : int(op.rest / op.head_dim),
          op.behind == BehindHeads::Again,
          op.whole,
          copied ? op.rest : 0};
}

}  // namespace

Runner::Runner(Products products, Attention attention, std::unique_ptr<Exchange> exchange)
    : products_(std::move(products)),
      attention_(std::move(attention)),
      exchange_(std::move(exchange)),
      begin_early_(kernels_begin_early()) {}

namespace {

// The bytes of the last rows, one after another.
int64_t last_rows_bytes(const LastLogits& op) {
  return op.q_len > 1 ? op.rows * op.dim * size_of(op.dtype) : 0;
}

}  // namespace

int64_t Runner::workspace_bytes(const Op& op) const {
  if (const auto* logits = std::get_if<LastLogits>(&op); logits != nullptr && products_.exact())
    return kProductWorkspaceBytes + last_rows_bytes(*logits);
  return sluice::core::workspace_bytes(op, attention_.libraries());
}

Status Runner::prepare(const Op& op, const Scratch& scratch, cudaStream_t stream,
                       const std::function<void(std::string_view)>& log) {
  const auto report = [&](const std::string& line) {
    if (log) log(line);
  };
  for (const Product& product : products_of(op, products_.exact())) {
    SLUICE_ASSIGN(const std::string about, products_.prepare(product, scratch, stream));
    report(about);
  }
  if (const auto* forward = std::get_if<AttnFwd>(&op)) report(attention_.prepare(*forward));
  if (const auto* backward = std::get_if<AttnBwd>(&op)) report(attention_.prepare(*backward));
  return {};
}

Status Runner::run(const Launch& launch, cudaStream_t stream) {
  return std::visit(
      [&](const auto& op) {
        const bool early = begin_early_ && last_lets_begin_ && begins_early(op, products_.exact());
        last_lets_begin_ = lets_begin(op, products_.exact());
        return run(op, Call{launch.operands, launch.workspace, stream, early});
      },
      *launch.op);
}

Status Runner::run(const Embed& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    return embed(call.as<int32_t>(Embed::kIds), call.as<T>(Embed::kTable),
                 op.has_residual ? call.as<T>(Embed::kResidual) : nullptr, call.as<T>(Embed::kY), op.tokens,
                 op.dim, op.scale, call.stream);
  });
}

Status Runner::run(const EmbedBwd& op, const Call& call) {
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    return embed_bwd(call.as<int32_t>(EmbedBwd::kIds), call.as<T>(EmbedBwd::kDy),
                     call.as<G>(EmbedBwd::kDTable), call.workspace.data, op.tokens, op.vocab, op.dim,
                     op.scale, op.accumulate, call.stream);
  });
}

Status Runner::run(const RmsNorm& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (op.narrow)
        return rms_norm_narrow(call.as<T>(RmsNorm::kX), call.as<T>(RmsNorm::kW),
                               call.as<uint8_t>(RmsNorm::kY), call.as<uint8_t>(RmsNorm::kTurned),
                               call.workspace.data, op.tokens, op.dim, NormForm{op.eps, op.offset, op.scale},
                               call.stream);
    }
    return rms_norm(call.as<T>(RmsNorm::kX), call.as<T>(RmsNorm::kW),
                    op.has_residual ? call.as<T>(RmsNorm::kResidual) : nullptr, call.as<T>(RmsNorm::kY),
                    op.tokens, op.dim, NormForm{op.eps, op.offset, op.scale}, call.queue());
  });
}

Status Runner::run(const RmsNormBwd& op, const Call& call) {
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    return rms_norm_bwd(call.as<T>(RmsNormBwd::kX), call.as<T>(RmsNormBwd::kW), call.as<T>(RmsNormBwd::kDy),
                        op.has_residual ? call.as<T>(RmsNormBwd::kDres) : nullptr,
                        call.as<T>(RmsNormBwd::kDx), call.as<G>(RmsNormBwd::kDw), call.workspace.data,
                        op.tokens, op.dim, NormForm{op.eps, op.offset, op.scale}, op.accumulate, call.stream);
  });
}

Status Runner::run(const LayerNorm& op, const Call& call) {
  SLUICE_CUDA_TRY(
      layer_norm(call.as<bf16>(LayerNorm::kX), op.has_weight ? call.as<bf16>(LayerNorm::kW) : nullptr,
                 op.has_bias ? call.as<bf16>(LayerNorm::kBias) : nullptr, call.as<bf16>(LayerNorm::kY),
                 op.tokens, op.dim, op.eps, op.scale, call.queue()));
  return {};
}

Status Runner::run(const LayerNormBwd& op, const Call& call) {
  return with_float(op.grad_dtype, [&]<class G>(G) {
    const LayerNormGradient<G> gradient{
        .x = call.as<bf16>(LayerNormBwd::kX),
        .w = op.has_weight ? call.as<bf16>(op.w_operand()) : nullptr,
        .dy = call.as<bf16>(LayerNormBwd::kDy),
        .dres = op.has_residual ? call.as<bf16>(op.dres_operand()) : nullptr,
        .dx = call.as<bf16>(LayerNormBwd::kDx),
        .dw = op.has_weight ? call.as<G>(op.dw_operand()) : nullptr,
        .dbias = op.has_bias ? call.as<G>(op.dbias_operand()) : nullptr,
        .accumulate_dw = op.accumulate_dw,
        .accumulate_dbias = op.accumulate_dbias,
    };
    return layer_norm_bwd(gradient, call.workspace.data, op.tokens, op.dim, op.eps, op.scale, call.stream);
  });
}

Status Runner::run(const Linear& op, const Call& call) {
  void* y = call[Linear::kY].data;
  if (has_few_rows(op) && !products_.exact()) {
    const bool rotated = op.rope_heads > 0;
    const FewRows product{
        .x = call.as<bf16>(Linear::kX),
        .w = call.as<bf16>(Linear::kW),
        .rows = op.tokens,
        .out = op.out,
        .in = op.in,
        .bias = op.has_bias ? call.as<bf16>(int(op.bias_operand())) : nullptr,
        .residual = op.has_residual ? call.as<bf16>(int(op.residual_operand())) : nullptr,
        .rotary = rotated ? Rotary{call.as<int32_t>(int(op.pos_operand())),
                                   call.as<float>(int(op.inv_freq_operand())), op.rope_scale, op.still_scale,
                                   op.temperature.beta, op.temperature.context}
                          : Rotary{},
        .rope_heads = op.rope_heads,
        .head_dim = op.head_dim,
        .spans = nullptr,
        .q_len = 0,
        .softcap = 0,
    };
    return with_float(op.result_type(),
                      [&]<class Y>(Y) { return few_rows(product, static_cast<Y*>(y), call.queue()); });
  }
  SLUICE_TRY(products_.run(product_of(op), call[Linear::kX].data, call[Linear::kW].data,
                           op.has_residual ? call[op.residual_operand()].data : nullptr, y, call.scratch(),
                           call.stream, op.has_bias ? call[int(op.bias_operand())].data : nullptr));
  if (op.f32_result && op.has_bias)
    SLUICE_CUDA_TRY(add_bias(static_cast<float*>(y), call.as<bf16>(int(op.bias_operand())), op.tokens, op.out,
                             call.stream));
  if (op.rope_heads == 0) return {};
  const Rotary rotary{call.as<int32_t>(op.pos_operand()),
                      call.as<float>(op.inv_freq_operand()),
                      op.rope_scale,
                      op.still_scale,
                      op.temperature.beta,
                      op.temperature.context};
  // Behind the product's kernel.
  SLUICE_CUDA_TRY(rope(static_cast<bf16*>(y), rotary, op.tokens, op.out, op.rope_heads, op.head_dim,
                       Queue(call.stream, begin_early_)));
  return {};
}

Status Runner::run(const SinkGrad& op, const Call& call) {
  return with_float(op.grad_dtype, [&](auto grad) {
    return sink_grad(call.as<bf16>(SinkGrad::kSinks), call.as<float>(SinkGrad::kLse),
                     call.as<bf16>(SinkGrad::kO), call.as<bf16>(SinkGrad::kDo),
                     call.as<decltype(grad)>(SinkGrad::kDSinks), call.workspace.data, op.tokens(), op.q_len,
                     op.heads, op.head_dim, op.accumulate, call.stream);
  });
}

Status Runner::run(const BiasGrad& op, const Call& call) {
  return with_float(op.grad_dtype, [&](auto grad) {
    return bias_grad(call.as<bf16>(BiasGrad::kDy), call.as<decltype(grad)>(BiasGrad::kDbias),
                     call.workspace.data, op.tokens, op.out, op.accumulate, call.stream);
  });
}

Status Runner::run(const HeadNormRope& op, const Call& call) {
  const Rotary rotary{call.as<int32_t>(HeadNormRope::kPos), call.as<float>(HeadNormRope::kInvFreq),
                      op.rope_scale};
  SLUICE_CUDA_TRY(head_norm_rope(call.as<bf16>(HeadNormRope::kX), call.as<bf16>(HeadNormRope::kW), rotary,
                                 call.as<bf16>(HeadNormRope::kY), op.tokens, shape_of(op),
                                 NormForm{op.eps, op.offset, 1}, call.queue()));
  return {};
}

Status Runner::run(const HeadNormRopeBwd& op, const Call& call) {
  using H = HeadNormRopeBwd;
  const Rotary rotary{call.as<int32_t>(H::kPos), call.as<float>(H::kInvFreq), op.rope_scale};
  const auto run_typed = [&](auto in, auto grad) {
    return head_norm_rope_bwd(call.as<decltype(in)>(H::kDy), call.as<bf16>(H::kX), call.as<bf16>(H::kW),
                              rotary, call.as<bf16>(H::kDx), call.as<decltype(grad)>(H::kDw),
                              call.workspace.data, op.tokens, shape_of(op), NormForm{op.eps, op.offset, 1},
                              op.accumulate, call.stream);
  };
  return with_float(op.in_dtype, [&](auto in) {
    return with_device_type(op.grad_dtype, [&](auto grad) { return run_typed(in, grad); });
  });
}

Status Runner::run(const LinearDgrad& op, const Call& call) {
  void* dx = call[LinearDgrad::kDx].data;
  const void* before = op.has_residual ? call[LinearDgrad::kDres].data : dx;
  return products_.run(product_of(op), call[LinearDgrad::kDy].data, call[LinearDgrad::kW].data, before, dx,
                       call.scratch(), call.stream);
}

Status Runner::run(const LinearWgrad& op, const Call& call) {
  void* dw = call[LinearWgrad::kDw].data;
  return products_.run(product_of(op), call[LinearWgrad::kDy].data, call[LinearWgrad::kX].data, dw, dw,
                       call.scratch(), call.stream);
}

namespace {

// The element `at` of an operand.
template <class Call>
void* element(const Call& call, size_t operand, int64_t at, DType dtype) {
  return static_cast<std::byte*>(call[operand].data) + at * size_of(dtype);
}

// Columns [from, to) of rows of y: the residual's, or 0.
template <class Call>
Status keep_columns(const LowRank& op, const Call& call, int64_t from, int64_t to) {
  if (from == to) return {};
  const size_t row = size_t(op.sizes.columns * size_of(op.dtype)),
               width = size_t((to - from) * size_of(op.dtype));
  void* y = element(call, LowRank::kY, from, op.dtype);
  if (op.has_residual) {
    SLUICE_CUDA_TRY(cudaMemcpy2DAsync(y, row, element(call, LowRank::kResidual, from, op.dtype), row, width,
                                      size_t(op.sizes.tokens), cudaMemcpyDeviceToDevice, call.stream));
  } else {
    SLUICE_CUDA_TRY(cudaMemset2DAsync(y, row, 0, width, size_t(op.sizes.tokens), call.stream));
  }
  return {};
}

}  // namespace

Status Runner::run(const LowRank& op, const Call& call) {
  const LowRankSizes& s = op.sizes;
  SLUICE_TRY(keep_columns(op, call, 0, s.first));
  SLUICE_TRY(keep_columns(op, call, s.first + s.adapted(), s.columns));
  for (int64_t p = 0; p < s.parts; ++p) {
    const int64_t column = s.first + p * s.part;
    void* y = element(call, LowRank::kY, column, op.dtype);
    SLUICE_TRY(products_.run(product_of(op), element(call, LowRank::kU, p * s.rank, op.dtype),
                             element(call, LowRank::kB, p * s.part * s.rank, op.dtype),
                             op.has_residual ? element(call, LowRank::kResidual, column, op.dtype) : y, y,
                             call.scratch(), call.stream));
  }
  return {};
}

Status Runner::run(const Dropout& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    return dropout(call.as<T>(Dropout::kX), call.as<DropoutArgs>(Dropout::kArgs), call.as<T>(Dropout::kY),
                   op.tokens, {op.width, op.seq_len, op.first, op.target, op.rate, op.accumulate},
                   call.stream);
  });
}

Status Runner::run(const LowRankDgrad& op, const Call& call) {
  const LowRankSizes& s = op.sizes;
  for (int64_t p = 0; p < s.parts; ++p) {
    void* du = element(call, LowRankDgrad::kDu, p * s.rank, op.dtype);
    SLUICE_TRY(products_.run(product_of(op), element(call, LowRankDgrad::kDy, s.first + p * s.part, op.dtype),
                             element(call, LowRankDgrad::kB, p * s.part * s.rank, op.dtype), du, du,
                             call.scratch(), call.stream));
  }
  return {};
}

Status Runner::run(const LowRankWgrad& op, const Call& call) {
  const LowRankSizes& s = op.sizes;
  for (int64_t p = 0; p < s.parts; ++p) {
    void* db = element(call, LowRankWgrad::kDb, p * s.part * s.rank, op.grad_dtype);
    SLUICE_TRY(products_.run(product_of(op), element(call, LowRankWgrad::kDy, s.first + p * s.part, op.dtype),
                             element(call, LowRankWgrad::kU, p * s.rank, op.dtype), db, db, call.scratch(),
                             call.stream));
  }
  return {};
}

Status Runner::run(const RowNorms& op, const Call& call) {
  const LowRankSizes& s = op.sizes;
  return with_float(op.dtype, [&]<class T>(T) {
    cudaError_t status = cudaSuccess;
    for (int64_t p = 0; p < s.parts && status == cudaSuccess; ++p) {
      const int64_t row = p * s.part;
      status =
          row_norms(call.as<T>(RowNorms::kW) + (s.first + row) * op.in,
                    call.as<T>(RowNorms::kA) + p * s.rank * op.in, call.as<T>(RowNorms::kB) + row * s.rank,
                    call.as<float>(RowNorms::kNorms) + row, s.part, op.in, s.rank, op.scale, call.stream);
    }
    return status;
  });
}

Status Runner::run(const Magnitude& op, const Call& call) {
  const MagnitudeForm form{op.columns, op.first, op.adapted, call.as<float>(Magnitude::kM),
                           call.as<float>(Magnitude::kNorms)};
  return with_float(op.dtype, [&]<class T>(T) {
    return magnitude(call.as<T>(Magnitude::kZ), op.has_bias ? call.as<T>(op.bias_operand()) : nullptr,
                     op.has_residual ? call.as<T>(op.residual_operand()) : nullptr, call.as<T>(Magnitude::kY),
                     op.tokens, form, call.stream);
  });
}

Status Runner::run(const MagnitudeBwd& op, const Call& call) {
  using M = MagnitudeBwd;
  const MagnitudeForm form{op.columns, op.first, op.adapted, call.as<float>(M::kM),
                           call.as<float>(M::kNorms)};
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    return magnitude_bwd(call.as<T>(M::kDy), call.as<T>(M::kZ), call.as<T>(M::kDz), call.as<G>(M::kDm),
                         call.workspace.data, op.tokens, form, op.accumulate, call.stream);
  });
}

Status Runner::run(const AttnFwd& op, const Call& call) {
  return attention_.run(op, call.operands, call.workspace, call.stream);
}

Status Runner::run(const AttnBwd& op, const Call& call) {
  return attention_.run(op, call.operands, call.workspace, call.stream);
}

Status Runner::run(const Rope& op, const Call& call) {
  const Rotary rotary{
      call.as<int32_t>(Rope::kPos), call.as<float>(Rope::kInvFreq), op.rope_scale, op.still_scale,
      op.temperature.beta,          op.temperature.context};
  return with_float(op.dtype, [&]<class T>(T) {
    return rope(call.as<T>(Rope::kX), rotary, op.tokens, op.columns(), op.heads, op.head_dim, call.stream);
  });
}

Status Runner::run(const RopeBwd& op, const Call& call) {
  const Rotary rotary{call.as<int32_t>(RopeBwd::kPos),
                      call.as<float>(RopeBwd::kInvFreq),
                      op.rope_scale,
                      op.still_scale,
                      op.temperature.beta,
                      op.temperature.context};
  return with_floats(op.dtype, op.in_dtype, [&]<class T, class In>(T, In) {
    return rope_bwd(call.as<In>(RopeBwd::kDqRotated), call.as<In>(RopeBwd::kDkvRotated), rotary,
                    call.as<T>(RopeBwd::kDq), call.as<T>(RopeBwd::kDkv), op.tokens, op.q_heads, op.kv_heads,
                    op.head_dim, call.stream);
  });
}

Status Runner::run(const Cast& op, const Call& call) {
  auto* const y = call.as<std::byte>(Cast::kY) + op.first * size_of(op.dtype);
  const int64_t others = op.first == 0 ? op.all - op.elements : 0;
  if (others > 0)
    SLUICE_CUDA_TRY(cudaMemsetAsync(y + op.elements * size_of(op.dtype), 0,
                                    size_t(others * size_of(op.dtype)), call.stream));
  if (is_code(op.in.type)) {
    const auto* codes = call.as<uint8_t>(Cast::kX);
    const uint8_t* const scales = codes + NumberFormat(op.in.type).bytes(op.elements);
    const PackedRows packed{codes, op.in.type == DType::F8E4M3 ? nullptr : codes_of(op.in.type).data(),
                            reinterpret_cast<const float*>(scales),
                            op.in.scale == DType::F8E8M0 ? scales : nullptr, int64_t{op.in.block}};
    return with_float(op.dtype, [&]<class Out>(Out) {
      return expand(packed, reinterpret_cast<Out*>(y), op.elements, call.stream);
    });
  }
  return with_float(op.in.type, [&]<class In>(In) {
    return with_device_type(op.dtype, [&]<class Out>(Out) {
      if constexpr (std::is_same_v<In, Out>) {
        return cudaMemcpyAsync(y, call[Cast::kX].data, size_t(op.elements * size_of(op.dtype)),
                               cudaMemcpyDeviceToDevice, call.stream);
      } else {
        return cast(call.as<In>(Cast::kX), reinterpret_cast<Out*>(y), op.elements, call.stream);
      }
    });
  });
}

Status Runner::run(const Quantize& op, const Call& call) {
  auto* y = op.by_row ? call.as<uint8_t>(Quantize::kY) : nullptr;
  auto* turned = op.by_column ? call.as<uint8_t>(int(op.turned_operand())) : nullptr;
  SLUICE_CUDA_TRY(quantize(op.format.type == DType::F8E5M2, call.as<bf16>(Quantize::kX), op.cols, y, turned,
                           call.workspace.data, op.rows, op.cols, call.stream));
  return {};
}

Status Runner::run(const Swiglu& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    const auto rows = rows_of(op, call.as<T>(Swiglu::kGu), op.apart ? &call[Swiglu::kUp] : nullptr);
    if constexpr (std::is_same_v<T, bf16>) {
      if (op.narrow)
        return swiglu_narrow(rows, call.as<uint8_t>(Swiglu::kY), op.tokens, op.dim, form_of(op), call.stream);
    }
    return swiglu(rows, call.as<T>(Swiglu::kY), op.tokens, op.dim, form_of(op), call.queue());
  });
}

Status Runner::run(const SwigluBwd& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    using S = SwigluBwd;
    const auto rows = rows_of(op, call.as<T>(S::kGu), op.apart ? &call[S::kUp] : nullptr);
    if constexpr (std::is_same_v<T, bf16>) {
      if (op.narrow)
        return swiglu_bwd_narrow(
            rows, call.as<T>(S::kDy),
            {call.as<uint8_t>(S::kDgu), call.as<uint8_t>(S::kTurned), call.as<uint8_t>(S::kY)},
            call.workspace.data, op.tokens, op.dim, form_of(op), call.stream);
    }
    T* const d_gate = call.as<T>(S::kDgu);
    return swiglu_bwd(rows, call.as<T>(S::kDy), d_gate, op.apart ? call.as<T>(S::kDup) : d_gate + op.dim,
                      call.as<T>(S::kY), op.tokens, op.dim, form_of(op), call.stream);
  });
}

Status Runner::run(const ScaleBy& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    return scale_by(call.as<T>(ScaleBy::kX), call.as<float>(ScaleBy::kS), call.as<T>(ScaleBy::kY),
                    op.elements, call.stream);
  });
}

Status Runner::run(const HeadLoss& op, const Call& call) {
  const HeadLossParts at = workspace_parts(op);
  const Scratch scratch{call.workspace.data + at.product, kProductWorkspaceBytes};
  auto* logits = reinterpret_cast<float*>(call.workspace.data + at.logits);
  auto* row_loss = reinterpret_cast<float*>(call.workspace.data + at.row_loss);
  const void* w = call[HeadLoss::kW].data;
  const float* weights = op.weighted ? call.as<float>(op.weights_operand()) : nullptr;
  for (int64_t begin = 0; begin < op.tokens; begin += op.sub_tokens) {
    const int64_t rows = std::min(op.sub_tokens, op.tokens - begin);
    const HeadProducts products = head_products(op, rows, begin == 0);
    const std::byte* all_x = call[HeadLoss::kX].data;
    const std::byte* x = all_x + begin * op.dim * size_of(op.x_format ? op.x_format->type : op.dtype);
    // The scales of a chunk's rows follow all of them.
    const RowScales of_x{all_x + op.tokens * op.dim + begin * size_of(DType::F32)};
    SLUICE_TRY(products_.run(products.logits, x, w, nullptr, logits, scratch, call.stream, nullptr,
                             op.x_format ? of_x : RowScales()));
    TopOfRows top{.count = int(op.top)};
    if (op.top > 0) {
      top.tokens = call.as<int32_t>(op.top_tokens_operand()) + begin * op.top;
      if (op.weighted) top.weights = call.as<float>(op.top_weights_operand()) + begin * op.top;
      if (op.log_probs) top.log_probs = call.as<float>(op.top_log_probs_operand()) + begin * op.top;
    }
    SLUICE_TRY(with_float(op.dtype, [&]<class T>(T) {
      return softmax_loss<T>(logits, call.as<int32_t>(HeadLoss::kTargets) + begin,
                             weights != nullptr ? weights + begin : nullptr, top,
                             call.as<StepArgs>(HeadLoss::kArgs), row_loss + begin, rows, op.vocab,
                             logits_stride(op.vocab), op.softcap, !op.forward_only, call.stream);
    }));
    if (op.forward_only) continue;
    // The logits' memory now holds their gradients.
    std::byte* dx = call[HeadLoss::kDx].data + begin * op.dim * size_of(op.dtype);
    if (op.x_format) {
      auto* const by_row = reinterpret_cast<uint8_t*>(call.workspace.data + at.by_row);
      auto* const turned = reinterpret_cast<uint8_t*>(call.workspace.data + at.turned);
      SLUICE_CUDA_TRY(quantize(true, reinterpret_cast<const bf16*>(logits), 2 * logits_stride(op.vocab),
                               by_row, turned, call.workspace.data + at.largest, rows, op.vocab,
                               call.stream));
      SLUICE_TRY(products_.run(products.dx, by_row, call[op.turned_w_operand()].data, nullptr, dx, scratch,
                               call.stream));
      if (op.frozen) continue;
      const std::byte* turned_x = call[op.turned_x_operand()].data;
      void* dw = call[HeadLoss::kDw].data;
      SLUICE_TRY(products_.run(products.dw, turned, turned_x + begin, dw, dw, scratch, call.stream, nullptr,
                               {nullptr, turned_x + op.dim * op.tokens}));
      continue;
    }
    SLUICE_TRY(products_.run(products.dx, logits, w, nullptr, dx, scratch, call.stream));
    if (op.frozen) continue;
    void* dw = call[HeadLoss::kDw].data;
    SLUICE_TRY(products_.run(products.dw, logits, x, dw, dw, scratch, call.stream));
  }
  auto* loss = call.as<double>(HeadLoss::kLoss);
  SLUICE_CUDA_TRY(op.forward_only
                      ? token_losses(row_loss, weights, loss, op.tokens, call.stream)
                      : sum_loss(row_loss, weights, loss, op.tokens, op.accumulate_loss, call.stream));
  if (op.log_probs) {
    SLUICE_CUDA_TRY(log_probs(row_loss, call.as<float>(op.log_probs_operand()), op.tokens, call.stream));
  }
  return {};
}

Status Runner::run(const GatherWeights& op, const Call& call) {
  auto* const all = call.as<float>(GatherWeights::kAll);
  const auto bytes = size_t(op.tokens * size_of(DType::F32));
  if (op.first == 0 && op.tokens < op.round)
    SLUICE_CUDA_TRY(cudaMemsetAsync(all, 0, size_t(call[GatherWeights::kAll].bytes), call.stream));
  const auto put = [&](float* to, int from) {
    return cudaMemcpyAsync(to + op.first, call[from].data, bytes, cudaMemcpyDeviceToDevice, call.stream);
  };
  SLUICE_CUDA_TRY(put(all, GatherWeights::kWeights));
  SLUICE_CUDA_TRY(put(all + op.round, GatherWeights::kLogProbs));
  return {};
}

Status Runner::run(const CopyRows& op, const Call& call) {
  SLUICE_CUDA_TRY(copy_rows(call.as<int32_t>(CopyRows::kWhich), call[CopyRows::kX].data, op.rows,
                            op.elements * size_of(op.dtype), call.stream));
  return {};
}

Status Runner::run(const DrawTokens& op, const Call& call) {
  SLUICE_CUDA_TRY(draw_tokens(call.as<float>(DrawTokens::kLogits), call.as<TokenDraw>(DrawTokens::kDraws),
                              call.as<DrawnToken>(DrawTokens::kDrawn), op.rows, op.vocab, call.stream));
  return {};
}

Status Runner::run_exactly(const LastLogits& op, const Call& call) {
  const bf16* x = call.as<bf16>(LastLogits::kX);
  if (op.q_len > 1) {
    auto* const last = reinterpret_cast<bf16*>(call.workspace.data + kProductWorkspaceBytes);
    SLUICE_CUDA_TRY(
        last_rows(x, call.as<int32_t>(LastLogits::kSpans), last, op.rows, op.q_len, op.dim, call.stream));
    x = last;
  }
  auto* const logits = call.as<float>(LastLogits::kLogits);
  SLUICE_TRY(products_.run(product_of(op), x, call[LastLogits::kW].data, nullptr, logits,
                           {call.workspace.data, kProductWorkspaceBytes}, call.stream));
  if (op.softcap > 0) SLUICE_CUDA_TRY(cap_logits(logits, op.rows * op.vocab, op.softcap, call.stream));
  return {};
}

Status Runner::run(const LastLogits& op, const Call& call) {
  if (products_.exact()) return run_exactly(op, call);
  if (op.is_product())
    return products_.run(product_of(op), call[LastLogits::kX].data, call[LastLogits::kW].data, nullptr,
                         call[LastLogits::kLogits].data, call.scratch(), call.stream);
  const FewRows product{.x = call.as<bf16>(LastLogits::kX),
                        .w = call.as<bf16>(LastLogits::kW),
                        .rows = op.rows,
                        .out = op.vocab,
                        .in = op.dim,
                        .bias = nullptr,
                        .residual = nullptr,
                        .rotary = {},
                        .rope_heads = 0,
                        .head_dim = 0,
                        .spans = call.as<int32_t>(LastLogits::kSpans),
                        .q_len = op.q_len,
                        .softcap = op.softcap};
  SLUICE_CUDA_TRY(last_logits(product, call.as<float>(LastLogits::kLogits), call.queue()));
  return {};
}

Status Runner::run(const CachedAttention& op, const Call& call) {
  // Where there are key heads enough for the whole GPU, splits are partial results to be written and merged.
  constexpr int64_t kManyHeads = 1024;
  const bool exact = products_.exact(), few = op.rows * op.kv_heads < kManyHeads;
  const bool splits = op.q_len <= kSplitTokens && few && !exact;
  const CachedBlock block{
      .q = call.as<bf16>(CachedAttention::kQ),
      .kv = call.as<bf16>(CachedAttention::kKv),
      .spans = call.as<int32_t>(CachedAttention::kSpans),
      .slots = op.cache_rows > 0 ? call.as<int32_t>(int(op.slots_operand())) : nullptr,
      .cache = call.as<bf16>(CachedAttention::kCache),
      .o = call.as<bf16>(CachedAttention::kO),
      .partial = splits ? reinterpret_cast<float*>(call.workspace.data) : nullptr,
      .splits = splits ? cache_splits(op.capacity) : 0,
      .rows = op.rows,
      .q_len = op.q_len,
      .capacity = op.capacity,
      .q_heads = op.q_heads,
      .kv_heads = op.kv_heads,
      .head_dim = op.head_dim,
      .window = op.window,
      // Training's rounding of it is another one for heads of 24, 96 or 112.
      .scale = exact ? float(1 / std::sqrt(double(op.head_dim))) : 1.0f / std::sqrt(float(op.head_dim)),
      .softcap = op.softcap,
      .sinks = op.has_sinks ? call.as<bf16>(CachedAttention::kSinks) : nullptr,
      .exact = exact,
  };
  SLUICE_CUDA_TRY(cached_attention(block, call.queue()));
  return {};
}

Status Runner::run(const SumSq& op, const Call& call) {
  return with_float(op.dtype, [&](auto grad) {
    return sum_sq(call.as<decltype(grad)>(SumSq::kG), call.as<double>(SumSq::kSums), call.workspace.data,
                  op.elements, op.slot, op.slots, op.first, call.stream);
  });
}

Status Runner::run(const AddGradients& op, const Call& call) {
  return with_float(op.left, [&]<class Left>(Left) {
    return with_device_type(op.right, [&]<class Right>(Right) {
      return with_device_type(op.dtype, [&]<class Sum>(Sum) {
        return add_gradients(call.as<Left>(AddGradients::kLeft), call.as<Right>(AddGradients::kRight),
                             call.as<Sum>(AddGradients::kSum), op.elements, call.stream);
      });
    });
  });
}

Status Runner::run(const SumOverProcesses& op, const Call& call) {
  SLUICE_TRY(exchange_->check_processes(op.processes));
  const Buffer& own = call[op.apart ? SumOverProcesses::kOwn : SumOverProcesses::kG];
  if (op.processes > 1)
    SLUICE_TRY(exchange_->sum(own.data, own.bytes, op.apart ? DType::F32 : op.dtype, call.stream));
  SLUICE_ASSIGN(std::byte* const partials, exchange_->partials());
  return with_float(op.dtype, [&]<class Grad>(Grad) -> cudaError_t {
    Grad* const g = call.as<Grad>(SumOverProcesses::kG);
    if (op.apart) {
      const cudaError_t status = cast(own.as<float>(), g, op.elements, call.stream);
      if (status != cudaSuccess) return status;
    }
    return sum_sq(g, call.as<double>(SumOverProcesses::kSums), partials, op.elements, op.slot, op.slots,
                  op.first, call.stream);
  });
}

Status Runner::run(const ShareWeight& op, const Call& call) {
  SLUICE_TRY(exchange_->check_processes(op.processes));
  const Buffer& p = call[ShareWeight::kP];
  return op.processes == 1 ? Status() : exchange_->broadcast(p.data, p.bytes, int(op.owner), call.stream);
}

Status Runner::run(const ClipScale& op, const Call& call) {
  SLUICE_CUDA_TRY(clip_scale(call.as<double>(ClipScale::kSums), call.as<float>(ClipScale::kClip), op.slots,
                             op.max_norm, call.stream));
  return {};
}

}  // namespace sluice::core::cuda
