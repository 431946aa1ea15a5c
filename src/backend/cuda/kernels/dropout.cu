// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/dropout_draws.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

// Eight values per thread, by two draws.
template <class T>
__global__ void dropout_kernel(const T* x, const DropoutArgs* args, T* y, int64_t items, DropoutForm form) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items) return;
  const DropoutDraws draws(*args, form.seq_len, form.first, form.width, form.target, form.rate);
  float values[kVec], sums[kVec] = {};
  load8(x + item * kVec, values);
  if (form.accumulate) load8(y + item * kVec, sums);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Philox4 drawn = philox(draws.key, draws.counter + uint64_t(2 * item + half), draws.step);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float factor = drawn.v[j] < draws.dropped ? 0.0f : draws.scale;
      sums[4 * half + j] += values[4 * half + j] * factor;
    }
  }
  store8(y + item * kVec, sums);
}

}  // namespace

template <class T>
cudaError_t dropout(const T* x, const DropoutArgs* args, T* y, int64_t tokens, const DropoutForm& form,
                    cudaStream_t stream) {
  const int64_t items = tokens * form.width / kVec;
  return launch(dropout_kernel<T>, dim3(blocks_for(items, kThreads)), kThreads, 0, stream, x, args, y, items,
                form);
}
template cudaError_t dropout(const float*, const DropoutArgs*, float*, int64_t, const DropoutForm&,
                             cudaStream_t);
template cudaError_t dropout(const bf16*, const DropoutArgs*, bf16*, int64_t, const DropoutForm&,
                             cudaStream_t);

}  // namespace sluice::core::cuda
