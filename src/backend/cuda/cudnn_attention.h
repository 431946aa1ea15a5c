// SPDX-License-Identifier: Apache-2.0
// One attention block as a cuDNN operation graph, forward or backward, built with the backend C API.
//
// Queries, outputs and their gradients are [rows, q_len, all_q_heads, head_dim] in bf16; keys and values are
// the halves of [rows, kv_len, 2, all_kv_heads, head_dim]. A graph covers q_heads and kv_heads of them, from
// where its pointers say. Log-sum-exps (natural) and row sums are f32 [rows, all_q_heads, q_len].
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>

#include "backend/cuda/handle.h"
#include "base/status.h"

namespace sluice::core::cuda {

struct CudnnAttentionShape {
  int64_t rows, q_len, kv_len, q_heads, kv_heads, head_dim;
  int64_t all_q_heads, all_kv_heads;  // row lengths in memory, in heads
  bool causal;                        // query i sees keys 0 to i; otherwise it sees all
  int64_t window;  // the newest keys that a query sees, its own among them; 0: all. With causal
  float softcap;   // scores become softcap tanh(score / softcap); 0: they stay
};

enum class CudnnAttentionKind {
  Forward,
  Backward,
  BackwardDeterministic,  // its workspace grows with q_len * kv_len, on Hopper before cuDNN 9.25
};

struct CudnnAttentionTensors {
  const void *q, *k, *v;
  void *o, *lse;  // written by Forward, read by the others
  // Backward only.
  const void* d_o = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void* row_sum = nullptr;  // scratch like lse
  void* dq_sum = nullptr;   // scratch, f32 [rows, q_heads, q_len, head_dim]; not for BackwardDeterministic
};

// Where the graph will run: a handle, or the description of a device that this machine need not have.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device = nullptr;
};

class CudnnAttention {
 public:
  // Fails when cuDNN has no engine for the shape. Takes 30 to 600 ms: kernels are compiled at run time.
  static Result<CudnnAttention> build(const CudnnTarget& target, CudnnAttentionKind kind,
                                      const CudnnAttentionShape& shape);
  // A graph that serialized() described before, of the same kind and shape, for the same GPU and cuDNN:
  // quick.
  static Result<CudnnAttention> restore(const CudnnTarget& target, CudnnAttentionKind kind,
                                        const CudnnAttentionShape& shape, const std::string& serialized);
  Result<std::string> serialized() const;

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Queues the graph on the handle's stream.
  Status run(cudnnHandle_t handle, const CudnnAttentionTensors& tensors, void* workspace) const;

 private:
  static Result<CudnnAttention> around(CudnnDescriptor plan, CudnnAttentionKind kind,
                                       const CudnnAttentionShape& shape);

  CudnnAttentionKind kind_ = CudnnAttentionKind::Forward;
  bool causal_ = false;
  float scale_ = 0, window_ = 0, softcap_ = 0;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace sluice::core::cuda
