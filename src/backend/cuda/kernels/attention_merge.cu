// SPDX-License-Identifier: Apache-2.0
// Attention's small companions: merging the results of two blocks, and the row sums of o * do.
#include "backend/cuda/kernels/attention_rows.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxHeads = 1024;

// One block per token: with a, b the two log-sum-exps and c their union's, o = o e^(a-c) + block_o e^(b-c).
template <class T>
__global__ void __launch_bounds__(kThreads) merge_kernel(const T* block_o, const float* block_lse, float* o,
                                                         float* lse, int64_t q_len, int heads, int head_dim) {
  __shared__ float old_weight[kMaxHeads], new_weight[kMaxHeads];
  const int64_t token = blockIdx.x;
  for (int head = threadIdx.x; head < heads; head += kThreads) {
    const int64_t at = lse_index(token, head, heads, q_len);
    const float a = lse[at], b = block_lse[at], top = fmaxf(a, b);
    float c = top;
    if (top != -INFINITY) c = top + logf(expf(a - top) + expf(b - top));
    old_weight[head] = top == -INFINITY ? 0.0f : expf(a - c);
    new_weight[head] = top == -INFINITY ? 0.0f : expf(b - c);
    lse[at] = c;
  }
  __syncthreads();
  const int elements = heads * head_dim;
  const int64_t base = token * elements;
  for (int i = threadIdx.x * kVec; i < elements; i += kThreads * kVec) {
    const int head = i / head_dim;
    float x[kVec], add[kVec];
    load8(o + base + i, x);
    load8(block_o + base + i, add);
    for (int j = 0; j < kVec; ++j) x[j] = x[j] * old_weight[head] + add[j] * new_weight[head];
    store8(o + base + i, x);
  }
}

// One block per token, one warp per head at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(const T* o, const T* d_o, float* delta, int64_t q_len, int heads, int head_dim) {
  const int64_t token = blockIdx.x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int head = warp; head < heads; head += kThreads / kWarp) {
    const int64_t base = (token * heads + head) * head_dim;
    const float sum = warp_sum(dot_of_lane(lane, o, d_o, base, head_dim));
    if (lane == 0) delta[lse_index(token, head, heads, q_len)] = sum;
  }
}

}  // namespace

template <class T>
cudaError_t attention_merge(const T* block_o, const float* block_lse, float* o, float* lse, int64_t rows,
                            int64_t q_len, int64_t heads, int64_t head_dim, cudaStream_t stream) {
  return launch(merge_kernel<T>, dim3(unsigned(rows * q_len)), kThreads, 0, stream, block_o, block_lse, o,
                lse, q_len, int(heads), int(head_dim));
}

template <class T>
cudaError_t attention_delta(const AttentionSizes& block, const T* o, const T* d_o, float* delta,
                            cudaStream_t stream) {
  return launch(delta_kernel<T>, dim3(unsigned(block.rows * block.q_len)), kThreads, 0, stream, o, d_o, delta,
                block.q_len, int(block.q_heads), int(block.head_dim));
}

template cudaError_t attention_merge(const bf16*, const float*, float*, float*, int64_t, int64_t, int64_t,
                                     int64_t, cudaStream_t);
template cudaError_t attention_merge(const float*, const float*, float*, float*, int64_t, int64_t, int64_t,
                                     int64_t, cudaStream_t);
template cudaError_t attention_delta(const AttentionSizes&, const bf16*, const bf16*, float*, cudaStream_t);
template cudaError_t attention_delta(const AttentionSizes&, const float*, const float*, float*, cudaStream_t);

}  // namespace sluice::core::cuda
