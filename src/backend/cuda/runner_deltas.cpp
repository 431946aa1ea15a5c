// SPDX-License-Identifier: Apache-2.0
// Queues the ops of layers that have a convolution or a gated delta rule in place of attention, and gates.
#include "backend/cuda/runner_call.h"
#include "ops/gpu_workspace.h"

namespace sluice::core::cuda {
namespace {

template <class T>
ConvBlock<T> conv_block(const auto& op, const auto& call) {
  using O = std::remove_cvref_t<decltype(op)>;
  return {call.template as<T>(O::kBcx),
          call.template as<T>(O::kW),
          op.has_before ? call.template as<T>(op.before_operand()) : nullptr,
          call.template as<int32_t>(O::kPos),
          op.tokens,
          op.dim,
          op.width};
}
template <class T>
CachedConvBlock<T> cached_conv_block(const CachedConv& op, const auto& call) {
  return {call.template as<T>(CachedConv::kBcx),
          call.template as<T>(CachedConv::kW),
          call.template as<int32_t>(CachedConv::kSpans),
          op.cache_rows > 0 ? call.template as<int32_t>(CachedConv::kSlots) : nullptr,
          call.template as<T>(CachedConv::kCache),
          call.template as<T>(CachedConv::kY),
          op.rows,
          op.q_len,
          op.dim,
          op.width};
}

// The operands that both directions read, and where the workspace has what they share.
template <class T>
DeltaBlocks<T> delta_blocks(const auto& op, const auto& call) {
  using O = std::remove_cvref_t<decltype(op)>;
  const DeltaParts at = workspace_parts(op);
  std::byte* const workspace = call.workspace.data;
  const auto part = [&](int64_t offset) { return reinterpret_cast<T*>(workspace + offset); };
  const DeltaSizes& s = op.sizes;
  DeltaBlocks<T> b{};
  b.key_heads = int(s.key_heads), b.value_heads = int(s.value_heads);
  b.key_dim = int(s.key_dim), b.value_dim = int(s.value_dim);
  b.slices = int(delta_slices(s.value_dim));
  b.eps = kDeltaEps;
  b.tokens = op.tokens;
  b.qkv = call.template as<T>(O::kQkv);
  b.gates = call.template as<float>(O::kGates);
  b.pos = call.template as<int32_t>(O::kPos);
  if (op.has_before) b.before = call.template as<float>(op.before_operand());
  b.table = reinterpret_cast<int32_t*>(workspace + at.table);
  b.scales = reinterpret_cast<float*>(workspace + at.scales);
  b.sums = reinterpret_cast<float*>(workspace + at.sums);
  b.keys = part(at.keys), b.solved = part(at.solved), b.scores = part(at.scores);
  b.changes = part(at.changes), b.d_changes = part(at.d_changes);
  b.states = part(at.states), b.d_states = part(at.d_states);
  return b;
}

template <class T>
HeadGates<T> gated_heads(const auto& op, const auto& call) {
  using O = std::remove_cvref_t<decltype(op)>;
  return {.x = call.template as<T>(O::kX),
          .z = call.template as<T>(O::kZ),
          .w = op.normed ? call.template as<float>(O::kW) : nullptr,
          .heads = op.tokens * op.heads,
          .head_dim = int(op.head_dim),
          .eps = op.eps};
}

}  // namespace

Status Runner::run(const ShortConv& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    T* const y = call.as<T>(ShortConv::kY);
    T* const tail = op.has_tail ? call.as<T>(op.tail_operand()) : nullptr;
    if constexpr (std::is_same_v<T, bf16>) {
      if (!op.silu) return short_conv(conv_block<T>(op, call), y, tail, call.stream);
    }
    return silu_conv(conv_block<T>(op, call), y, tail, call.stream);
  });
}

Status Runner::run(const ShortConvBwd& op, const Call& call) {
  using C = ShortConvBwd;
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    const T *const dy = call.as<T>(C::kDy), *const d_tail =
                                                op.has_tail ? call.as<T>(op.d_tail_operand()) : nullptr;
    T *const dx = call.as<T>(C::kDbcx), *const d_before =
                                            op.has_before ? call.as<T>(op.d_before_operand()) : nullptr;
    G* const dw = call.as<G>(C::kDw);
    if constexpr (std::is_same_v<T, bf16>) {
      if (!op.silu)
        return short_conv_bwd(conv_block<T>(op, call), dy, dx, dw, d_before, d_tail, call.workspace.data,
                              op.accumulate, call.stream);
    }
    return silu_conv_bwd(conv_block<T>(op, call), dy, dx, dw, d_before, d_tail, call.workspace.data,
                         op.accumulate, call.stream);
  });
}

Status Runner::run(const CachedConv& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (!op.silu) return cached_conv(cached_conv_block<T>(op, call), call.stream);
    }
    return cached_silu_conv(cached_conv_block<T>(op, call), call.stream);
  });
}

Status Runner::run(const DeltaGates& op, const Call& call) {
  using D = DeltaGates;
  SLUICE_CUDA_TRY(delta_gates(call.as<float>(D::kBa), call.as<float>(D::kALog), call.as<float>(D::kDtBias),
                              call.as<float>(D::kGates), op.tokens, op.heads, call.stream));
  return {};
}

Status Runner::run(const DeltaGatesBwd& op, const Call& call) {
  using D = DeltaGatesBwd;
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    return delta_gates_bwd(call.as<float>(D::kBa), call.as<float>(D::kALog), call.as<float>(D::kDtBias),
                           call.as<float>(D::kDgates), call.as<T>(D::kDba), call.as<G>(D::kDaLog),
                           call.as<G>(D::kDdtBias), call.workspace.data, op.tokens, op.heads, op.accumulate_a,
                           op.accumulate_dt, call.stream);
  });
}

Status Runner::run(const DeltaRule& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    DeltaBlocks<T> block = delta_blocks<T>(op, call);
    block.o = call.as<T>(DeltaRule::kO);
    if (op.has_after) block.after = call.as<float>(op.after_operand());
    return delta_rule(block, call.stream);
  });
}

Status Runner::run(const DeltaRuleBwd& op, const Call& call) {
  using D = DeltaRuleBwd;
  return with_float(op.dtype, [&]<class T>(T) {
    DeltaBlocks<T> block = delta_blocks<T>(op, call);
    block.d_o = call.as<T>(D::kDo);
    block.dqkv = call.as<T>(D::kDqkv);
    block.dgates = call.as<float>(D::kDgates);
    if (op.has_before) block.d_before = call.as<float>(op.d_before_operand());
    if (op.has_after) block.d_after = call.as<float>(op.d_after_operand());
    return delta_rule_bwd(block, call.stream);
  });
}

Status Runner::run(const CachedDelta& op, const Call& call) {
  using C = CachedDelta;
  return with_float(op.dtype, [&]<class T>(T) {
    const CachedDeltaBlock<T> block{.key_heads = int(op.sizes.key_heads),
                                    .value_heads = int(op.sizes.value_heads),
                                    .key_dim = int(op.sizes.key_dim),
                                    .value_dim = int(op.sizes.value_dim),
                                    .slices = int(delta_slices(op.sizes.value_dim)),
                                    .eps = kDeltaEps,
                                    .qkv = call.as<T>(C::kQkv),
                                    .gates = call.as<float>(C::kGates),
                                    .spans = call.as<int32_t>(C::kSpans),
                                    .slots = op.cache_rows > 0 ? call.as<int32_t>(C::kSlots) : nullptr,
                                    .cache = call.as<float>(C::kCache),
                                    .o = call.as<T>(C::kO),
                                    .rows = op.rows,
                                    .q_len = op.q_len};
    return cached_delta(block, call.stream);
  });
}

Status Runner::run(const HeadGate& op, const Call& call) {
  return with_float(op.dtype, [&]<class T>(T) {
    return head_gate(gated_heads<T>(op, call), call.as<T>(HeadGate::kY), call.stream);
  });
}

Status Runner::run(const HeadGateBwd& op, const Call& call) {
  using H = HeadGateBwd;
  return with_floats(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    return head_gate_bwd(gated_heads<T>(op, call), call.as<T>(H::kDy), call.as<T>(H::kDx), call.as<T>(H::kDz),
                         op.normed ? call.as<G>(H::kDw) : nullptr, call.workspace.data, op.tokens,
                         op.accumulate, call.stream);
  });
}

}  // namespace sluice::core::cuda
