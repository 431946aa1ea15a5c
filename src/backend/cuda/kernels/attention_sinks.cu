// SPDX-License-Identifier: Apache-2.0
// Attention's sinks (ops/attention.h): what they leave of a block's result, whichever kernels made it, and
// their gradient.
#include "backend/cuda/kernels/attention_rows.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// One block per token, one warp per head at a time.
__global__ void __launch_bounds__(kThreads)
    add_sinks_kernel(const bf16* sinks, bf16* o, float* lse, int64_t q_len, int heads, int head_dim) {
  const int64_t token = blockIdx.x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int head = warp; head < heads; head += kWarps) {
    float* const own = lse + lse_index(token, head, heads, q_len);
    const float sink = to_float(sinks[head]), before = *own, top = fmaxf(sink, before);
    const float sum = expf(before - top) + expf(sink - top), share = expf(before - top) / sum;
    __syncwarp();  // every lane has read it
    if (lane == 0) *own = top + logf(sum);
    bf16* row = o + (token * heads + head) * head_dim;
    for (int i = lane * kVec; i < head_dim; i += kWarp * kVec) {
      float x[kVec];
      load8(row + i, x);
      for (int j = 0; j < kVec; ++j) x[j] *= share;
      store8(row + i, x);
    }
  }
}

// One block per head and range of tokens: a warp per token at a time, then the warps in order.
__global__ void __launch_bounds__(kThreads)
    sink_grad_kernel(const bf16* sinks, const float* lse, const bf16* o, const bf16* d_o, float* partials,
                     int64_t tokens, int64_t q_len, int heads, int head_dim, int64_t range) {
  __shared__ float scratch[kWarps];
  const int head = blockIdx.x, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t first = blockIdx.y * range, end = min(first + range, tokens);
  const float sink = to_float(sinks[head]);
  float sum = 0;
  for (int64_t token = first + warp; token < end; token += kWarps) {
    const int64_t base = (token * heads + head) * head_dim;
    const float dot = dot_of_lane(lane, o, d_o, base, head_dim);
    sum -= expf(sink - lse[lse_index(token, head, heads, q_len)]) * warp_sum(dot);
  }
  if (lane == 0) scratch[warp] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kWarps; ++w) sum += scratch[w];
  partials[int64_t{blockIdx.y} * heads + head] = sum;
}

}  // namespace

cudaError_t add_sinks(const bf16* sinks, bf16* o, float* lse, int64_t rows, int64_t q_len, int64_t heads,
                      int64_t head_dim, cudaStream_t stream) {
  return launch(add_sinks_kernel, dim3(unsigned(rows * q_len)), kThreads, 0, stream, sinks, o, lse, q_len,
                int(heads), int(head_dim));
}

template <class G>
cudaError_t sink_grad(const bf16* sinks, const float* lse, const bf16* o, const bf16* d_o, G* d_sinks,
                      void* workspace, int64_t tokens, int64_t q_len, int64_t heads, int64_t head_dim,
                      bool accumulate, cudaStream_t stream) {
  auto* partials = static_cast<float*>(workspace);
  const int64_t blocks = bias_partials(tokens), range = (tokens + blocks - 1) / blocks;
  const auto status = launch(sink_grad_kernel, dim3(unsigned(heads), unsigned(blocks)), kThreads, 0, stream,
                             sinks, lse, o, d_o, partials, tokens, q_len, int(heads), int(head_dim), range);
  if (status != cudaSuccess) return status;
  return sum_partials(partials, d_sinks, blocks, heads, accumulate, stream);
}
template cudaError_t sink_grad(const bf16*, const float*, const bf16*, const bf16*, float*, void*, int64_t,
                               int64_t, int64_t, int64_t, bool, cudaStream_t);
template cudaError_t sink_grad(const bf16*, const float*, const bf16*, const bf16*, bf16*, void*, int64_t,
                               int64_t, int64_t, int64_t, bool, cudaStream_t);

}  // namespace sluice::core::cuda
