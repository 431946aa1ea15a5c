// SPDX-License-Identifier: Apache-2.0
// Gated delta rules over new tokens of texts (CachedDelta of ops/delta.h), one token after the other in f32.
// A block of threads has 32 columns of a head of a text; each of its warps some rows of their state, in
// registers, a column a lane.
#include "backend/cuda/kernels/delta_blocks.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;

// The sum over a block's warps of what they have of a column.
__device__ float column_sum(float x, float (&parts)[kWarps][kWarp]) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  parts[warp][lane] = x;
  __syncthreads();
  return (parts[0][lane] + parts[1][lane]) + (parts[2][lane] + parts[3][lane]);
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads) cached_delta_kernel(CachedDeltaBlock<T> b) {
  constexpr int kRows = D / kWarps;
  __shared__ float keys[2][D], reads[kWarps][kWarp], outs[kWarps][kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, slices = b.slices;
  const int column = int(blockIdx.x) % slices * kDeltaSlice + lane;
  const int head = int(blockIdx.x) / slices % b.value_heads, key_head = head / (b.value_heads / b.key_heads);
  const int64_t text = int64_t{blockIdx.x} / slices / b.value_heads;
  const int held = b.spans[2 * text];
  const int64_t count = min(max(int64_t{b.spans[2 * text + 1]}, int64_t{0}), b.q_len);
  const int64_t values = int64_t{b.value_heads} * b.value_dim;
  const int64_t columns = int64_t{2} * b.key_heads * b.key_dim + values;
  const bool inside = column < b.value_dim;
  const int64_t slot = b.slots != nullptr ? b.slots[text] : text;
  float* const cache = b.cache + (slot * b.value_heads + head) * b.key_dim * b.value_dim + column;
  float state[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = warp * kRows + i;
    state[i] = held > 0 && inside && row < b.key_dim ? cache[int64_t{row} * b.value_dim] : 0.0f;
  }
  T* const out = b.o + text * b.q_len * values + int64_t{head} * b.value_dim + column;
  for (int64_t t = 0; t < count; ++t) {
    const T* const row = b.qkv + (text * b.q_len + t) * columns;
    const float* const gates = b.gates + (text * b.q_len + t) * 2 * b.value_heads + head;
    if (warp < 2) {  // q, and k
      const T* const from = row + (warp * b.key_heads + key_head) * b.key_dim;
      float x[D / kWarp], squares = 0;
#pragma unroll
      for (int i = 0; i < D / kWarp; ++i) {
        const int at = i * kWarp + lane;
        x[i] = at < b.key_dim ? to_float(from[at]) : 0.0f;
        squares += x[i] * x[i];
      }
      const float scale = (warp == 0 ? rsqrtf(float(b.key_dim)) : 1.0f) / sqrtf(warp_sum(squares) + b.eps);
#pragma unroll
      for (int i = 0; i < D / kWarp; ++i) keys[warp][i * kWarp + lane] = x[i] * scale;
    }
    const float beta = gates[0], keep = __expf(-gates[b.value_heads]);
    const float value =
        inside ? to_float(row[int64_t{2} * b.key_heads * b.key_dim + head * b.value_dim + column]) : 0.0f;
    __syncthreads();
    float read = 0, made = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      state[i] *= keep;
      read += state[i] * keys[1][warp * kRows + i];
    }
    const float change = beta * (value - column_sum(read, reads));
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      state[i] += keys[1][warp * kRows + i] * change;
      made += state[i] * keys[0][warp * kRows + i];
    }
    made = column_sum(made, outs);
    if (warp == 0 && inside) store_float(out + t * values, made);
  }
  if (warp == 0 && inside) {
    for (int64_t t = count; t < b.q_len; ++t) store_float(out + t * values, 0.0f);
  }
  if (count == 0 || !inside) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = warp * kRows + i;
    if (row < b.key_dim) cache[int64_t{row} * b.value_dim] = state[i];
  }
}

}  // namespace

template <class T>
cudaError_t cached_delta(const CachedDeltaBlock<T>& b, cudaStream_t stream) {
  const dim3 grid(unsigned(b.rows * b.value_heads * b.slices));
  return launch(b.key_dim <= 64 ? cached_delta_kernel<T, 64> : cached_delta_kernel<T, 128>, grid, kThreads, 0,
                stream, b);
}

template cudaError_t cached_delta(const CachedDeltaBlock<bf16>&, cudaStream_t);
template cudaError_t cached_delta(const CachedDeltaBlock<float>&, cudaStream_t);

}  // namespace sluice::core::cuda
