// SPDX-License-Identifier: Apache-2.0
// Attention: which kernels run an op, with how much workspace, and running it.
//
// cuDNN takes blocks whose lengths are multiples of 128, without document boundaries or a window's edge; own
// kernels take the rest, and f32. Either computes one block; merging with other blocks, conversion to f32 and
// accumulation follow in own kernels, through workspace. The workspace of an op depends on its shape only,
// never on what was prepared.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cudnn_attention.h"
#include "backend/cuda/handle.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/library_cache.h"
#include "ops/gpu_workspace.h"
#include "ops/op.h"

namespace sluice::core::cuda {

class Attention {
 public:
  // Graphs that are built are kept in `cache`. With `exact`, own kernels run forward, by documents.
  static Result<Attention> create(const GpuLibraries& libraries, bool exact,
                                  std::shared_ptr<LibraryCache> cache);

  const GpuLibraries& libraries() const { return libraries_; }

  // Builds what the op needs; returns one line about it.
  std::string prepare(const AttnFwd& op);
  std::string prepare(const AttnBwd& op);

  // Queues the op. An op that was not prepared is prepared first.
  Status run(const AttnFwd& op, std::span<const Buffer> operands, Buffer workspace, cudaStream_t stream);
  Status run(const AttnBwd& op, std::span<const Buffer> operands, Buffer workspace, cudaStream_t stream);

 private:
  // The key of a graph.
  struct Key {
    int64_t rows, q_len, kv_len, q_heads, kv_heads, head_dim;
    bool causal;
    int64_t window;
    float softcap;
    bool backward;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    std::optional<CudnnAttention> graph;  // empty: own kernels
    std::string about;
  };
  const Plan& plan(const AttnShape& shape, bool backward);
  // A graph, from the cache if possible.
  struct Built {
    CudnnAttention graph;
    bool before;  // it was in the cache
  };
  Result<Built> build(const AttnShape& shape, bool backward) const;

  // T is the type of shape.dtype.
  template <class T>
  Status forward(const AttnFwd& op, std::span<const Buffer> operands, Buffer workspace, cudaStream_t stream);
  template <class T>
  Status backward(const AttnBwd& op, std::span<const Buffer> operands, Buffer workspace, cudaStream_t stream);
  template <class T>
  Status block_forward(const AttnShape& shape, const AttentionBlock<T>& block, T* o, float* lse,
                       std::byte* workspace, cudaStream_t stream);
  template <class T>
  struct BackwardBuffers {
    const T *o, *d_o;
    const float* lse;
    T *dq, *dkv;
    std::byte* workspace;
  };
  template <class T>
  Status block_backward(const AttnBwd& op, const AttentionBlock<T>& block, const BackwardBuffers<T>& buffers,
                        cudaStream_t stream);
  Status graph_backward(const CudnnAttention& graph, const AttnBwd& op, const AttentionBlock<bf16>& block,
                        const BackwardBuffers<bf16>& buffers, cudaStream_t stream);

  GpuLibraries libraries_;
  bool exact_ = false;
  std::shared_ptr<LibraryCache> cache_;
  Cudnn handle_;
  Stream side_;        // of every other call of a backward cut up
  Event fork_, join_;  // between it and the op's own stream
  std::map<Key, Plan> plans_;
};

}  // namespace sluice::core::cuda
