// SPDX-License-Identifier: Apache-2.0
// Gates of gated delta rules (ops/delta.h), elementwise. Gradients of a_log and dt_bias are sums over tokens:
// a fixed number of blocks sums parts of them, and a second kernel adds the parts in order.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256, kHeads = 32, kRows = kThreads / kHeads;

__device__ float sigmoid_of(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}
__device__ float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x)));
}

__global__ void gates_kernel(const float* ba, const float* a_log, const float* dt_bias, float* gates,
                             int64_t tokens, int64_t heads) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= tokens * heads) return;
  const int64_t head = i % heads, at = i / heads * 2 * heads + head;
  gates[at] = sigmoid_of(ba[at]);
  gates[at + heads] = __expf(a_log[head]) * softplus(ba[at + heads] + dt_bias[head]);
}

// Partial sums: [parts, heads] of a_log, and behind them those of dt_bias.
template <class T>
__global__ void gates_bwd_kernel(const float* ba, const float* a_log, const float* dt_bias,
                                 const float* dgates, T* dba, float* partials, int64_t tokens, int64_t heads,
                                 int64_t tokens_of_part) {
  __shared__ float sums[2][kRows][kHeads];
  const int x = threadIdx.x % kHeads, y = threadIdx.x / kHeads;
  const int64_t head = int64_t{blockIdx.y} * kHeads + x;
  const int64_t first = int64_t{blockIdx.x} * tokens_of_part, end = min(first + tokens_of_part, tokens);
  float of_log = 0, of_bias = 0;
  if (head < heads) {
    const float rate = __expf(a_log[head]), bias = dt_bias[head];
    for (int64_t t = first + y; t < end; t += kRows) {
      const int64_t at = t * 2 * heads + head;
      const float beta = sigmoid_of(ba[at]), a = ba[at + heads] + bias;
      const float d = dgates[at + heads] * rate, da = d * sigmoid_of(a);
      store_float(dba + at, dgates[at] * beta * (1.0f - beta));
      store_float(dba + at + heads, da);
      of_log += d * softplus(a), of_bias += da;
    }
  }
  sums[0][y][x] = of_log, sums[1][y][x] = of_bias;
  __syncthreads();
  if (y >= 2 || head >= heads) return;
  float total = 0;
  for (int i = 0; i < kRows; ++i) total += sums[y][i][x];
  partials[(int64_t{y} * gridDim.x + blockIdx.x) * heads + head] = total;
}

}  // namespace

cudaError_t delta_gates(const float* ba, const float* a_log, const float* dt_bias, float* gates,
                        int64_t tokens, int64_t heads, cudaStream_t stream) {
  return launch(gates_kernel, dim3(blocks_for(tokens * heads, kThreads)), kThreads, 0, stream, ba, a_log,
                dt_bias, gates, tokens, heads);
}

template <class T, class G>
cudaError_t delta_gates_bwd(const float* ba, const float* a_log, const float* dt_bias, const float* dgates,
                            T* dba, G* da_log, G* ddt_bias, void* workspace, int64_t tokens, int64_t heads,
                            bool accumulate_a, bool accumulate_dt, cudaStream_t stream) {
  const int64_t parts = delta_gate_partials(tokens), each = (tokens + parts - 1) / parts;
  auto* partials = static_cast<float*>(workspace);
  const auto status = launch(gates_bwd_kernel<T>, dim3(unsigned(parts), blocks_for(heads, kHeads)), kThreads,
                             0, stream, ba, a_log, dt_bias, dgates, dba, partials, tokens, heads, each);
  if (status != cudaSuccess) return status;
  const auto summed = sum_partials(partials, da_log, parts, heads, accumulate_a, stream);
  if (summed != cudaSuccess) return summed;
  return sum_partials(partials + parts * heads, ddt_bias, parts, heads, accumulate_dt, stream);
}

template cudaError_t delta_gates_bwd(const float*, const float*, const float*, const float*, bf16*, bf16*,
                                     bf16*, void*, int64_t, int64_t, bool, bool, cudaStream_t);
template cudaError_t delta_gates_bwd(const float*, const float*, const float*, const float*, bf16*, float*,
                                     float*, void*, int64_t, int64_t, bool, bool, cudaStream_t);
template cudaError_t delta_gates_bwd(const float*, const float*, const float*, const float*, float*, float*,
                                     float*, void*, int64_t, int64_t, bool, bool, cudaStream_t);

}  // namespace sluice::core::cuda
