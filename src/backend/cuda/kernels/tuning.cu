// SPDX-License-Identifier: Apache-2.0
// Inputs and comparison for timing library algorithms.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "base/philox.h"
#include "ops/float8.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHashBlocks = 1024;

// The sum of four uniform numbers stands in for a normal one.
__device__ float normal(uint64_t seed, int64_t i) {
  const Philox4 bits = philox(seed, uint64_t(i), 0);
  float sum = -2.0f;
  for (const uint32_t v : bits.v) sum += uniform_open(v);
  constexpr float kInverseDeviation = 1.7320508f;  // of a sum of four uniforms: sqrt(4 / 12)
  return sum * kInverseDeviation;
}

__global__ void fill_random_kernel(bf16* x, int64_t elements, float scale, uint64_t seed) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) x[i] = __float2bfloat16_rn(normal(seed, i) * scale);
}

// So small that the codes are numbers of f8e5m2, too.
__global__ void fill_random_e4m3_kernel(uint8_t* x, int64_t elements, uint64_t seed) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) x[i] = E4m3::code(normal(seed, i) * E4m3::kMost / 8);
}

__global__ void hash_words_kernel(const uint32_t* words, int64_t count, unsigned long long* hash) {
  __shared__ unsigned long long scratch[kMaxWarps];
  unsigned long long sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    unsigned long long z = (uint64_t(i) << 32 | words[i]) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    sum += z ^ (z >> 27);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) atomicAdd(hash, sum);  // integers: the order does not matter
}

}  // namespace

cudaError_t fill_random(bf16* x, int64_t elements, float scale, uint64_t seed, cudaStream_t stream) {
  return launch(fill_random_kernel, dim3(blocks_for(elements, kThreads)), kThreads, 0, stream, x, elements,
                scale, seed);
}

cudaError_t fill_random_e4m3(uint8_t* x, int64_t elements, uint64_t seed, cudaStream_t stream) {
  return launch(fill_random_e4m3_kernel, dim3(blocks_for(elements, kThreads)), kThreads, 0, stream, x,
                elements, seed);
}

cudaError_t hash_words(const uint32_t* words, int64_t count, uint64_t* hash, cudaStream_t stream) {
  return launch(hash_words_kernel, dim3(kHashBlocks), kThreads, 0, stream, words, count,
                reinterpret_cast<unsigned long long*>(hash));
}

}  // namespace sluice::core::cuda
