// SPDX-License-Identifier: Apache-2.0
// The global gradient norm: sums of squares per gradient, and the clipping factor from all of them.
//
// Squares are summed in f32 eight at a time where f32 can hold them, then in f64, over a fixed number of
// blocks in a fixed order.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/clip_norm.h"

namespace sluice::core::cuda {
namespace {

constexpr int kBlocks = kSumSqPartials;
constexpr int kThreads = 256;
constexpr int kClipThreads = 256;

// Conversions to f64 are slow, so they are kept for sums that over- or underflow f32.
__device__ double sum_squares(const float (&x)[kVec]) {
  float squares = 0;
  for (int j = 0; j < kVec; ++j) squares += x[j] * x[j];
  if (squares > 1e-25f && squares < 1e30f) return double(squares);
  double wide = 0;
  for (int j = 0; j < kVec; ++j) wide += double(x[j]) * double(x[j]);
  return wide;
}

template <class G>
__global__ void __launch_bounds__(kThreads) sum_sq_kernel(const G* g, double* blocks, int64_t elements) {
  __shared__ double scratch[kMaxWarps];
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t vectors = elements / kVec;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = thread; i < vectors; i += int64_t{kBlocks} * kThreads) {
    float x[kVec];
    load8(g + i * kVec, x);
    sum += sum_squares(x);
  }
  const int64_t tail = vectors * kVec + thread;
  if (tail < elements) sum += double(to_float(g[tail])) * double(to_float(g[tail]));
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) blocks[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlocks)
    sum_blocks_kernel(const double* blocks, double* sums, int64_t slot, int64_t slots, bool first) {
  __shared__ double scratch[kMaxWarps];
  const double sum = block_sum(blocks[threadIdx.x], scratch);
  if (first) {
    for (int64_t i = threadIdx.x; i < slots; i += kBlocks) {
      if (i != slot) sums[i] = 0;
    }
  }
  if (threadIdx.x == 0) sums[slot] = sum;
}

__global__ void clip_scale_kernel(const double* sums, float* clip, int64_t slots, float max_norm) {
  __shared__ double tile[kClipThreads];
  double total = 0;
  for (int64_t base = 0; base < slots; base += kClipThreads) {
    if (base + threadIdx.x < slots) tile[threadIdx.x] = sums[base + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int64_t i = 0; i < min(int64_t{kClipThreads}, slots - base); ++i) total += tile[i];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  float norm = float(sqrt(total));
  float scale = 1;
  if (!isfinite(norm)) {
    norm = norm_that_blames(slot_to_blame(sums, slots));
    scale = 0;
  } else if (max_norm > 0) {
    scale = fminf(1.0f, max_norm / (norm + 1e-6f));
  }
  clip[0] = norm;
  clip[1] = scale;
}

}  // namespace

template <class G>
cudaError_t sum_sq(const G* g, double* sums, void* workspace, int64_t elements, int64_t slot, int64_t slots,
                   bool first, cudaStream_t stream) {
  auto* blocks = static_cast<double*>(workspace);
  const auto status = launch(sum_sq_kernel<G>, dim3(kBlocks), kThreads, 0, stream, g, blocks, elements);
  if (status != cudaSuccess) return status;
  return launch(sum_blocks_kernel, dim3(1), kBlocks, 0, stream, blocks, sums, slot, slots, first);
}
template cudaError_t sum_sq(const float*, double*, void*, int64_t, int64_t, int64_t, bool, cudaStream_t);
template cudaError_t sum_sq(const bf16*, double*, void*, int64_t, int64_t, int64_t, bool, cudaStream_t);

cudaError_t clip_scale(const double* sums, float* clip, int64_t slots, float max_norm, cudaStream_t stream) {
  return launch(clip_scale_kernel, dim3(1), kClipThreads, 0, stream, sums, clip, slots, max_norm);
}

}  // namespace sluice::core::cuda
