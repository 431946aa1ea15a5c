// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/device_type.h"
#include "base/bytes.h"

namespace sluice::core::cuda {
namespace {

template <class T>
AttentionBlock<T> block_of(const AttnShape& s, const Buffer& q, const Buffer& kv, const Buffer& pos) {
  return {{pos.as<int32_t>(), s.rows, s.q_len, s.kv_len, s.q_heads, s.kv_heads, s.head_dim, s.distance,
           float(1 / std::sqrt(double(s.head_dim))), s.packed, s.window, s.softcap},
          q.as<T>(),
          kv.as<T>()};
}

// Adds `from` to a gradient operand, or converts it; the gradients of f32 are f32.
Status add_to(const Buffer& to, const bf16* from, int64_t elements, DType dtype, bool accumulate,
              cudaStream_t stream) {
  return with_device_type(dtype, [&]<class G>(G) -> Status {
    SLUICE_CUDA_TRY(add_gradient(from, to.as<G>(), elements, accumulate, stream));
    return {};
  });
}
Status add_to(const Buffer& to, const float* from, int64_t elements, DType, bool accumulate,
              cudaStream_t stream) {
  SLUICE_CUDA_TRY(add_gradient(from, to.as<float>(), elements, accumulate, stream));
  return {};
}

}  // namespace

Result<Attention> Attention::create(const GpuLibraries& libraries, bool exact,
                                    std::shared_ptr<LibraryCache> cache) {
  Attention attention;
  attention.exact_ = exact;
  attention.libraries_ = libraries;
  attention.cache_ = std::move(cache);
  SLUICE_CUDA_TRY(cudnnCreate(attention.handle_.receive()));
  int least = 0, greatest = 0;
  SLUICE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  SLUICE_CUDA_TRY(cudaStreamCreateWithPriority(attention.side_.receive(), cudaStreamNonBlocking, greatest));
  SLUICE_CUDA_TRY(cudaEventCreateWithFlags(attention.fork_.receive(), cudaEventDisableTiming));
  SLUICE_CUDA_TRY(cudaEventCreateWithFlags(attention.join_.receive(), cudaEventDisableTiming));
  return attention;
}

Result<Attention::Built> Attention::build(const AttnShape& s, bool backward) const {
  const AttnCalls call = calls_of(s, backward, libraries_);
  const CudnnAttentionShape shape{
      call.rows,       s.q_len,    s.kv_len,  call.kv_heads * (s.q_heads / s.kv_heads),
      call.kv_heads,   s.head_dim, s.q_heads, s.kv_heads,
      s.distance == 0, s.window,   s.softcap};
  const auto kind = !backward                  ? CudnnAttentionKind::Forward
                    : libraries_.deterministic ? CudnnAttentionKind::BackwardDeterministic
                                               : CudnnAttentionKind::Backward;
  const int64_t bound = graph_bytes(s, backward, libraries_);
  const std::string key = fmt::format(
      "attention {} rows {} q {} kv {} heads {} {} of {} {} dim {}{}{}{}", int(kind), shape.rows, shape.q_len,
      shape.kv_len, shape.q_heads, shape.kv_heads, shape.all_q_heads, shape.all_kv_heads, shape.head_dim,
      shape.causal ? " causal" : "", shape.window > 0 ? fmt::format(" window {}", shape.window) : "",
      shape.softcap > 0 ? fmt::format(" softcap {}", shape.softcap) : "");
  if (const std::optional<std::string> known = cache_->find(key)) {
    auto restored = CudnnAttention::restore({.handle = handle_.get()}, kind, shape, *known);
    if (restored.ok() && restored->workspace_bytes() <= bound) return Built{std::move(*restored), true};
  }
  SLUICE_ASSIGN(CudnnAttention graph, CudnnAttention::build({.handle = handle_.get()}, kind, shape));
  if (graph.workspace_bytes() > bound) {
    return error(ErrorKind::Device, "its workspace of {} is more than {}",
                 format_bytes(graph.workspace_bytes()), format_bytes(bound));
  }
  // Not every engine can be written down; it is built again then.
  if (auto text = graph.serialized(); text.ok()) cache_->put(key, std::move(*text));
  return Built{std::move(graph), false};
}

const Attention::Plan& Attention::plan(const AttnShape& s, bool backward) {
  static const Plan kOwn{std::nullopt, "own kernels"};
  if (!suits_cudnn(s, backward, libraries_) || (exact_ && !backward)) return kOwn;
  const Key key{s.rows,     s.q_len,         s.kv_len, s.q_heads, s.kv_heads,
                s.head_dim, s.distance == 0, s.window, s.softcap, backward};
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  Plan plan;
  auto built = build(s, backward);
  if (built.ok()) {
    const AttnCalls call = calls_of(s, backward, libraries_);
    const int64_t count = s.rows / call.rows * (s.kv_heads / call.kv_heads);
    plan.about =
        fmt::format("cuDNN{}, {} call{}{}, workspace {} each{}",
                    backward && libraries_.deterministic ? " deterministic" : "", count,
                    count == 1 ? "" : "s", call.lanes > 1 ? " two at a time" : "",
                    format_bytes(built->graph.workspace_bytes()), built->before ? ", built before" : "");
    plan.graph = std::move(built->graph);
  } else {
    plan.about = fmt::format("own kernels, because cuDNN declined: {}", built.message());
  }
  return plans_.emplace(key, std::move(plan)).first->second;
}

std::string Attention::prepare(const AttnFwd& op) {
  return fmt::format("{}: {}", to_text(Op(op)), plan(op.shape, false).about);
}
std::string Attention::prepare(const AttnBwd& op) {
  return fmt::format("{}: {}", to_text(Op(op)), plan(op.shape, true).about);
}

template <class T>
Status Attention::block_forward(const AttnShape& shape, const AttentionBlock<T>& block, T* o, float* lse,
                                std::byte* workspace, cudaStream_t stream) {
  const Plan& chosen = plan(shape, false);
  if constexpr (std::is_same_v<T, bf16>) {
    if (exact_ && shape.distance == 0) {
      SLUICE_CUDA_TRY(exact_attention_fwd(block, o, lse, stream));
      return {};
    }
  }
  if (!chosen.graph) {
    SLUICE_CUDA_TRY(attention_fwd(block, o, lse, stream));
    return {};
  }
  SLUICE_CUDA_TRY(cudnnSetStream(handle_.get(), stream));
  const CudnnAttentionTensors tensors{
      .q = block.q, .k = block.kv, .v = block.kv + shape.kv_heads * shape.head_dim, .o = o, .lse = lse};
  return chosen.graph->run(handle_.get(), tensors, workspace);
}

Status Attention::run(const AttnFwd& op, std::span<const Buffer> operands, Buffer workspace,
                      cudaStream_t stream) {
  return with_device_type(op.shape.dtype,
                          [&]<class T>(T) { return forward<T>(op, operands, workspace, stream); });
}

template <class T>
Status Attention::forward(const AttnFwd& op, std::span<const Buffer> operands, Buffer workspace,
                          cudaStream_t stream) {
  const AttnShape& s = op.shape;
  const auto block = block_of<T>(s, operands[AttnFwd::kQ], operands[AttnFwd::kKv], operands[AttnFwd::kPos]);
  auto* o = operands[AttnFwd::kO].as<T>();
  auto* lse = operands[AttnFwd::kLse].as<float>();
  const AttnFwdParts at = workspace_parts(op, libraries_);
  std::byte* graph_workspace = workspace.data + at.graph;
  const auto with_sinks = [&](T* to) -> Status {
    if constexpr (std::is_same_v<T, bf16>) {  // in f32 there are none
      if (!op.has_sinks) return {};
      SLUICE_CUDA_TRY(add_sinks(operands[AttnFwd::kSinks].as<bf16>(), to, lse, s.rows, s.q_len, s.q_heads,
                                s.head_dim, stream));
    }
    return {};
  };
  if (op.out_dtype == s.dtype && !op.merge) {
    SLUICE_TRY(block_forward(s, block, o, lse, graph_workspace, stream));
    return with_sinks(o);
  }

  auto* block_o = reinterpret_cast<T*>(workspace.data + at.o);
  auto* block_lse = op.merge ? reinterpret_cast<float*>(workspace.data + at.lse) : lse;
  SLUICE_TRY(block_forward(s, block, block_o, block_lse, graph_workspace, stream));
  SLUICE_TRY(with_sinks(block_o));
  auto* sum = operands[AttnFwd::kO].as<float>();
  if (op.merge) {
    SLUICE_CUDA_TRY(
        attention_merge(block_o, block_lse, sum, lse, s.rows, s.q_len, s.q_heads, s.head_dim, stream));
  } else {
    SLUICE_CUDA_TRY(cast(block_o, sum, s.q_elements(), stream));
  }
  return {};
}

template <class T>
Status Attention::block_backward(const AttnBwd& op, const AttentionBlock<T>& block,
                                 const BackwardBuffers<T>& b, cudaStream_t stream) {
  const AttnShape& s = op.shape;
  const AttnBwdParts at = workspace_parts(op, libraries_);
  auto* row_sum = reinterpret_cast<float*>(b.workspace + at.row_sum);
  if constexpr (std::is_same_v<T, bf16>) {
    if (const Plan& chosen = plan(s, true); chosen.graph)
      return graph_backward(*chosen.graph, op, block, b, stream);
  }
  SLUICE_CUDA_TRY(attention_delta(block, b.o, b.d_o, row_sum, stream));
  SLUICE_CUDA_TRY(attention_bwd(block, b.d_o, b.lse, row_sum, b.dq, b.dkv, stream));
  return {};
}

Status Attention::graph_backward(const CudnnAttention& graph, const AttnBwd& op,
                                 const AttentionBlock<bf16>& block, const BackwardBuffers<bf16>& b,
                                 cudaStream_t stream) {
  const AttnShape& s = op.shape;
  const AttnBwdParts at = workspace_parts(op, libraries_);
  const AttnCalls call = calls_of(s, true, libraries_);
  const std::array<cudaStream_t, 2> streams{stream, side_.get()};
  const int64_t workspace = graph_bytes(s, true, libraries_);
  auto* row_sum = reinterpret_cast<float*>(b.workspace + at.row_sum);
  if (call.lanes > 1) {
    SLUICE_CUDA_TRY(cudaEventRecord(fork_.get(), stream));
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(side_.get(), fork_.get(), 0));
  }
  const int64_t values = s.kv_heads * s.head_dim, group = s.q_heads / s.kv_heads;
  int64_t lane = 0;
  for (int64_t row = 0; row < s.rows; row += call.rows) {
    for (int64_t head = 0; head < s.kv_heads; head += call.kv_heads) {
      const int64_t q = (row * s.q_len * s.q_heads + head * group) * s.head_dim;
      const int64_t k = (row * s.kv_len * 2 * s.kv_heads + head) * s.head_dim;
      const int64_t sums = (row * s.q_heads + head * group) * s.q_len;
      const CudnnAttentionTensors tensors{
          .q = block.q + q,
          .k = block.kv + k,
          .v = block.kv + k + values,
          .o = const_cast<bf16*>(b.o + q),
          .lse = const_cast<float*>(b.lse + sums),
          .d_o = b.d_o + q,
          .dq = b.dq + q,
          .dk = b.dkv + k,
          .dv = b.dkv + k + values,
          .row_sum = row_sum + sums,
          .dq_sum = b.workspace + at.dq_sum,
      };
      SLUICE_CUDA_TRY(cudnnSetStream(handle_.get(), streams[size_t(lane)]));
      SLUICE_TRY(graph.run(handle_.get(), tensors, b.workspace + at.graph + lane * workspace));
      lane = (lane + 1) % call.lanes;
    }
  }
  if (call.lanes > 1) {
    SLUICE_CUDA_TRY(cudaEventRecord(join_.get(), side_.get()));
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream, join_.get(), 0));
  }
  return {};
}

Status Attention::run(const AttnBwd& op, std::span<const Buffer> operands, Buffer workspace,
                      cudaStream_t stream) {
  return with_device_type(op.shape.dtype,
                          [&]<class T>(T) { return backward<T>(op, operands, workspace, stream); });
}

template <class T>
Status Attention::backward(const AttnBwd& op, std::span<const Buffer> operands, Buffer workspace,
                           cudaStream_t stream) {
  const AttnShape& s = op.shape;
  const auto block = block_of<T>(s, operands[AttnBwd::kQ], operands[AttnBwd::kKv], operands[AttnBwd::kPos]);
  const AttnBwdParts at = workspace_parts(op, libraries_);
  const Buffer &dq = operands[AttnBwd::kDq], &dkv = operands[AttnBwd::kDkv];
  const bool wide = op.grad_dtype != s.dtype;
  const bool through_dq = wide || op.accumulate_dq, through_dkv = wide || op.accumulate_dkv;
  const BackwardBuffers<T> buffers{
      .o = operands[AttnBwd::kO].as<T>(),
      .d_o = operands[AttnBwd::kDo].as<T>(),
      .lse = operands[AttnBwd::kLse].as<float>(),
      .dq = through_dq ? reinterpret_cast<T*>(workspace.data + at.dq) : dq.as<T>(),
      .dkv = through_dkv ? reinterpret_cast<T*>(workspace.data + at.dkv) : dkv.as<T>(),
      .workspace = workspace.data,
  };
  SLUICE_TRY(block_backward(op, block, buffers, stream));
  if (through_dq) SLUICE_TRY(add_to(dq, buffers.dq, s.q_elements(), op.grad_dtype, op.accumulate_dq, stream));
  if (through_dkv)
    SLUICE_TRY(add_to(dkv, buffers.dkv, s.kv_elements(), op.grad_dtype, op.accumulate_dkv, stream));
  return {};
}

}  // namespace sluice::core::cuda
