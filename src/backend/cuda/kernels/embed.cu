// SPDX-License-Identifier: Apache-2.0
// Embedding: gather rows, and sum their gradients back.
//
// The gradient of a table row is the sum over the tokens that used it, in token order. A stable sort of the
// tokens by id comes first. Each token finds its place by counting, which is quadratic, but needs no atomics
// and disappears beside the rest of a step.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kRankThreads = 128;
constexpr int kRankTile = 1024;
constexpr int32_t kNone = INT32_MAX;  // larger than any id
constexpr int kBatch = 8;             // rows in flight per thread

// `residual` may be null.
template <class T>
__global__ void embed_kernel(const int32_t* ids, const T* table, const T* residual, T* y, int64_t dim,
                             float scale) {
  const int64_t token = blockIdx.x;
  const T* from = table + int64_t{ids[token]} * dim;
  T* to = y + token * dim;
  for (int64_t i = threadIdx.x * kVec; i < dim; i += int64_t{blockDim.x} * kVec) {
    float x[kVec];
    load8(from + i, x);
    for (int j = 0; j < kVec; ++j) x[j] *= scale;
    if (residual != nullptr) {
      float r[kVec];
      load8(residual + token * dim + i, r);
      for (int j = 0; j < kVec; ++j) x[j] += r[j];
    }
    store8(to + i, x);
  }
}

// How many ids of the tile come before (id, token): all smaller ones, and equal ones at the first `ties`
// places. Places past the tile's end hold kNone.
__device__ int32_t count_before(const int32_t* tile, int32_t id, int ties) {
  const auto* quads = reinterpret_cast<const int4*>(tile);
  const int32_t limit = ties == kRankTile ? id + 1 : id;
  int32_t count = 0;
#pragma unroll 4
  for (int i = 0; i < kRankTile; i += 4) {
    const int4 quad = quads[i / 4];
    count += (quad.x < limit) + (quad.y < limit) + (quad.z < limit) + (quad.w < limit);
  }
  if (ties == kRankTile) return count;
#pragma unroll 4
  for (int i = 0; i < ties; ++i) count += tile[i] == id;
  return count;
}

// sorted_ids and order: the tokens in ascending order of (id, token).
__global__ void rank_kernel(const int32_t* ids, int32_t* sorted_ids, int32_t* order, int64_t tokens) {
  __shared__ __align__(16) int32_t tile[kRankTile];
  const int64_t token = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int32_t id = token < tokens ? ids[token] : 0;
  int32_t rank = 0;
  for (int64_t base = 0; base < tokens; base += kRankTile) {
    for (int i = threadIdx.x; i < kRankTile; i += blockDim.x)
      tile[i] = base + i < tokens ? ids[base + i] : kNone;
    __syncthreads();
    rank += count_before(tile, id, int(min(max(token - base, int64_t{0}), int64_t{kRankTile})));
    __syncthreads();
  }
  if (token < tokens) {
    sorted_ids[rank] = id;
    order[rank] = static_cast<int32_t>(token);
  }
}

// First place after `begin` that holds another id.
__device__ int64_t run_end(const int32_t* sorted_ids, int64_t begin, int64_t tokens) {
  const int32_t id = sorted_ids[begin];
  if (begin + 1 == tokens || sorted_ids[begin + 1] != id) return begin + 1;
  int64_t low = begin + 1, high = tokens;  // sorted_ids[low] == id; high is past the run
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (sorted_ids[middle] == id ? low : high) = middle;
  }
  return high;
}

// One block per sorted place; the first place of each id does the work.
template <class T, class G>
__global__ void embed_bwd_kernel(const int32_t* sorted_ids, const int32_t* order, const T* dy, G* dtable,
                                 int64_t tokens, int64_t dim, float scale, bool accumulate) {
  const int64_t begin = blockIdx.x;
  const int32_t id = sorted_ids[begin];
  if (begin > 0 && sorted_ids[begin - 1] == id) return;
  const int64_t end = run_end(sorted_ids, begin, tokens);
  G* row = dtable + int64_t{id} * dim;

  for (int64_t column = threadIdx.x * kVec; column < dim; column += int64_t{blockDim.x} * kVec) {
    float sum[kVec] = {};
    for (int64_t place = begin; place < end; place += kBatch) {
      Vec8<T> batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (place + i < end) batch[i] = Vec8<T>::load(dy + int64_t{order[place + i]} * dim + column);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (place + i >= end) continue;
        float x[kVec];
        batch[i].unpack(x);
        for (int j = 0; j < kVec; ++j) sum[j] += x[j];
      }
    }
    for (int j = 0; j < kVec; ++j) sum[j] *= scale;
    if (accumulate) {
      float old[kVec];
      load8(row + column, old);
      for (int j = 0; j < kVec; ++j) sum[j] += old[j];
    }
    store8(row + column, sum);
  }
}

}  // namespace

template <class T>
cudaError_t embed(const int32_t* ids, const T* table, const T* residual, T* y, int64_t tokens, int64_t dim,
                  float scale, cudaStream_t stream) {
  return launch(embed_kernel<T>, dim3(unsigned(tokens)), threads_for(dim / kVec, 256), 0, stream, ids, table,
                residual, y, dim, scale);
}

template cudaError_t embed(const int32_t*, const bf16*, const bf16*, bf16*, int64_t, int64_t, float,
                           cudaStream_t);
template cudaError_t embed(const int32_t*, const float*, const float*, float*, int64_t, int64_t, float,
                           cudaStream_t);

template <class T, class G>
cudaError_t embed_bwd(const int32_t* ids, const T* dy, G* dtable, void* workspace, int64_t tokens,
                      int64_t vocab, int64_t dim, float scale, bool accumulate, cudaStream_t stream) {
  auto* sorted_ids = static_cast<int32_t*>(workspace);
  int32_t* order = sorted_ids + tokens;
  if (!accumulate) {
    const auto status = cudaMemsetAsync(dtable, 0, size_t(vocab * dim) * sizeof(G), stream);
    if (status != cudaSuccess) return status;
  }
  const auto status = launch(rank_kernel, dim3(blocks_for(tokens, kRankThreads)), kRankThreads, 0, stream,
                             ids, sorted_ids, order, tokens);
  if (status != cudaSuccess) return status;
  return launch(embed_bwd_kernel<T, G>, dim3(unsigned(tokens)), threads_for(dim / kVec, 512), 0, stream,
                sorted_ids, order, dy, dtable, tokens, dim, scale, accumulate);
}

template cudaError_t embed_bwd(const int32_t*, const float*, float*, void*, int64_t, int64_t, int64_t, float,
                               bool, cudaStream_t);
template cudaError_t embed_bwd(const int32_t*, const bf16*, float*, void*, int64_t, int64_t, int64_t, float,
                               bool, cudaStream_t);
template cudaError_t embed_bwd(const int32_t*, const bf16*, bf16*, void*, int64_t, int64_t, int64_t, float,
                               bool, cudaStream_t);

}  // namespace sluice::core::cuda
