// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding and its inverse. Element i of a head pairs with element i + head_dim / 2:
//   (a, b) -> (a cos - b sin, b cos + a sin), angle = pos * inv_freq[i].
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/rotation.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// Rotates W pairs starting at pair i of one head. `in` and `out` may be the same.
template <int W, class In, class Out>
__device__ void rotate(const Rotation& rotation, const In* in, Out* out, int i, int pairs) {
  float a[W], b[W], low[W], high[W];
  if constexpr (W == kVec) {
    load8(in + i, a);
    load8(in + i + pairs, b);
  } else {
    a[0] = to_float(in[i]);
    b[0] = to_float(in[i + pairs]);
  }
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float cos = rotation.cos[i + j], sin = rotation.sin[i + j];
    low[j] = a[j] * cos - b[j] * sin;
    high[j] = b[j] * cos + a[j] * sin;
  }
  if constexpr (W == kVec) {
    store8(out + i, low);
    store8(out + i + pairs, high);
  } else {
    store_float(out + i, low[0]);
    store_float(out + i + pairs, high[0]);
  }
}

// Rotates `heads` heads of one row by all threads of the block.
template <int W, class In, class Out>
__device__ void rotate_heads(const Rotation& rotation, const In* in, Out* out, int heads, int pairs) {
  const int per_head = pairs / W;
  for (int item = threadIdx.x; item < heads * per_head; item += blockDim.x) {
    const int head = item / per_head, i = item % per_head * W;
    rotate<W>(rotation, in + head * 2 * pairs, out + head * 2 * pairs, i, pairs);
  }
}

template <int W, class T>
__global__ void rope_kernel(T* y, Rotary rotary, int64_t stride, int heads, int pairs) {
  __shared__ Rotation rotation;
  const int64_t token = blockIdx.x;
  let_next_begin();
  fill_rotation(rotation, rotary, token, pairs, 1.0f);  // of positions, which no kernel writes
  await_previous();
  rotate_heads<W>(rotation, y + token * stride, y + token * stride, heads, pairs);
}

template <int W, class In, class T>
__global__ void rope_bwd_kernel(const In* dq_rotated, const In* dkv_rotated, Rotary rotary, T* dq, T* dkv,
                                int q_heads, int kv_heads, int pairs) {
  __shared__ Rotation rotation;
  const int64_t token = blockIdx.x;
  fill_rotation(rotation, rotary, token, pairs, -1.0f);
  const int64_t q_row = token * q_heads * 2 * pairs, kv_row = token * 2 * kv_heads * 2 * pairs;
  rotate_heads<W>(rotation, dq_rotated + q_row, dq + q_row, q_heads, pairs);
  if (rotary.beta != 0) {  // which K has not
    __syncthreads();
    rotary.beta = 0;
    fill_rotation(rotation, rotary, token, pairs, -1.0f);
  }
  rotate_heads<W>(rotation, dkv_rotated + kv_row, dkv + kv_row, kv_heads, pairs);
  const int v_elements = kv_heads * 2 * pairs;
  const In* v_in = dkv_rotated + kv_row + v_elements;
  T* v_out = dkv + kv_row + v_elements;
  for (int i = threadIdx.x * kVec; i < v_elements; i += blockDim.x * kVec) {
    float x[kVec];
    load8(v_in + i, x);
    store8(v_out + i, x);
  }
}

}  // namespace

template <class T>
cudaError_t rope(T* y, const Rotary& rotary, int64_t tokens, int64_t stride, int64_t heads, int64_t head_dim,
                 Queue queue) {
  const int pairs = int(head_dim / 2);
  const auto kernel = pairs % kVec == 0 ? rope_kernel<kVec, T> : rope_kernel<1, T>;
  return launch(kernel, dim3(unsigned(tokens)), threads_for(heads * pairs / kVec, 256), 0, queue, y, rotary,
                stride, int(heads), pairs);
}

template cudaError_t rope(bf16*, const Rotary&, int64_t, int64_t, int64_t, int64_t, Queue);
template cudaError_t rope(float*, const Rotary&, int64_t, int64_t, int64_t, int64_t, Queue);

template <class In, class T>
cudaError_t rope_bwd(const In* dq_rotated, const In* dkv_rotated, const Rotary& rotary, T* dq, T* dkv,
                     int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t head_dim,
                     cudaStream_t stream) {
  const int pairs = int(head_dim / 2);
  const auto kernel = pairs % kVec == 0 ? rope_bwd_kernel<kVec, In, T> : rope_bwd_kernel<1, In, T>;
  return launch(kernel, dim3(unsigned(tokens)), threads_for(q_heads * pairs / kVec, 256), 0, stream,
                dq_rotated, dkv_rotated, rotary, dq, dkv, int(q_heads), int(kv_heads), pairs);
}

template cudaError_t rope_bwd(const float*, const float*, const Rotary&, float*, float*, int64_t, int64_t,
                              int64_t, int64_t, cudaStream_t);
template cudaError_t rope_bwd(const float*, const float*, const Rotary&, bf16*, bf16*, int64_t, int64_t,
                              int64_t, int64_t, cudaStream_t);
template cudaError_t rope_bwd(const bf16*, const bf16*, const Rotary&, bf16*, bf16*, int64_t, int64_t,
                              int64_t, int64_t, cudaStream_t);

}  // namespace sluice::core::cuda
