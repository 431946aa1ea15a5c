// SPDX-License-Identifier: Apache-2.0
// Sums over processes, in the order of comm/sum_in_order.h.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLevels = 20;  // of the tree: for up to 2^20 parts

template <class T>
__device__ void load(const T* p, float (&x)[kVec]) {
  load8(p, x);
}
template <class T>
__device__ void load(const T* p, float (&x)[1]) {
  x[0] = to_float(*p);
}
template <class T>
__device__ void store(T* p, const float (&x)[kVec]) {
  store8(p, x);
}
template <class T>
__device__ void store(T* p, const float (&x)[1]) {
  store_float(p, x[0]);
}

template <int kWidth>
__device__ void add(float (&to)[kWidth], const float (&left)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = left[j] + to[j];
}

// Parts come one after the other, as a binary number counts: where a digit carries, two branches of one size
// become one. What is left at the end are branches of falling size, and the smallest go up first. kRanks:
// known when it is compiled, so that sums lie in registers and loads go ahead of additions; 0: it is not.
template <class T, int kRanks, int kWidth>
__device__ void add_parts(T* own, const T* received, const TreeParts& parts, int64_t i) {
  constexpr int kMost = kRanks == 0 ? kLevels : 4;
  const int ranks = kRanks == 0 ? parts.ranks : kRanks;
  float sums[kMost][kWidth];
#pragma unroll
  for (int r = 0; r < ranks; ++r) {
    const T* part = r == parts.rank ? own : received + (r < parts.rank ? r : r - 1) * parts.stride;
    float sum[kWidth];
    load(part + i, sum);
    int level = 0;
#pragma unroll
    for (; level < kMost && (r >> level & 1) != 0; ++level) add(sum, sums[level]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[level][j] = sum[j];
  }
  float all[kWidth];
  bool any = false;
#pragma unroll
  for (int level = 0; level < kMost; ++level) {
    if ((ranks >> level & 1) == 0) continue;
    if (any) {
      add(all, sums[level]);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) all[j] = sums[level][j];
    }
    any = true;
  }
  store(own + i, all);
}

template <class T, int kRanks>
__global__ void add_by_tree_kernel(T* own, const T* received, TreeParts parts, int64_t elements) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (i + kVec <= elements) {
    add_parts<T, kRanks, kVec>(own, received, parts, i);
    return;
  }
  for (int64_t k = i; k < elements; ++k) add_parts<T, kRanks, 1>(own, received, parts, k);
}

}  // namespace

template <class T>
cudaError_t add_by_tree(T* own, const T* received, const TreeParts& parts, int64_t elements,
                        cudaStream_t stream) {
  const auto run = [&](void (*kernel)(T*, const T*, TreeParts, int64_t)) {
    return launch(kernel, dim3(blocks_for(elements, kThreads * kVec)), kThreads, 0, stream, own, received,
                  parts, elements);
  };
  switch (parts.ranks) {
    case 2:
      return run(add_by_tree_kernel<T, 2>);
    case 3:
      return run(add_by_tree_kernel<T, 3>);
    case 4:
      return run(add_by_tree_kernel<T, 4>);
    case 8:
      return run(add_by_tree_kernel<T, 8>);
    default:
      return run(add_by_tree_kernel<T, 0>);
  }
}
template cudaError_t add_by_tree(float*, const float*, const TreeParts&, int64_t, cudaStream_t);
template cudaError_t add_by_tree(bf16*, const bf16*, const TreeParts&, int64_t, cudaStream_t);

}  // namespace sluice::core::cuda
