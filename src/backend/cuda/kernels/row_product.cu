// SPDX-License-Identifier: Apache-2.0
// Products of rows with weights whose bits do not depend on how many rows there are, and what goes with them
// at the head of passes that generate text. A library's algorithm may take the place of the product where it
// has its bits (products.h): then this is the reference.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// A block has four warps, each of a 64 x 64 corner of its tile; k comes in pieces, of which some are on their
// way.
constexpr int kTile = 128, kDepth = 32, kStages = 4, kThreads = 128, kCorner = 64;
constexpr int kChunk = 8;  // elements of 16 bytes
constexpr int kMatrixBytes = kTile * kDepth * 2, kStageBytes = 2 * kMatrixBytes;
constexpr size_t kSharedBytes = size_t{kStages} * kStageBytes;

// Where a chunk of a tile lies in shared memory. Rows lie along k, four chunks each, which are exchanged so
// that eight rows of a column of chunks share no bank.
__device__ int place(int row, int chunk) {
  return row * 64 + ((chunk ^ ((row >> 1) & 3)) * 16);
}

__device__ float2 load_pair(const float* x) {
  return *reinterpret_cast<const float2*>(x);
}
__device__ float2 load_pair(const bf16* x) {
  return make_float2(to_float(x[0]), to_float(x[1]));
}
__device__ void store_pair(float* x, float2 v) {
  *reinterpret_cast<float2*>(x) = v;
}
__device__ void store_pair(bf16* x, float2 v) {
  *reinterpret_cast<uint32_t*>(x) = pack_bf16(v.x, v.y);
}

// One block per (tile of columns, tile of rows).
template <class D>
__global__ void __launch_bounds__(kThreads, 2) row_product_kernel(RowProduct<D> p) {
  unsigned char* const shared = dynamic_shared();
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kTile, row = int64_t{blockIdx.y} * kTile;
  const auto load = [&](int64_t piece, int stage) {
    unsigned char* const as = shared + stage * kStageBytes;
    unsigned char* const bs = as + kMatrixBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = thread / 4 + 32 * i, chunk = thread % 4;
      const int64_t at = piece * kDepth + chunk * kChunk;
      const bool a_there = row + r < p.m && at < p.k, b_there = column + r < p.n && at < p.k;
      copy_async(as + place(r, chunk), a_there ? p.x + (row + r) * p.k + at : p.x, a_there);
      copy_async(bs + place(r, chunk), b_there ? p.w + (column + r) * p.k + at : p.w, b_there);
    }
  };

  float sums[4][8][4] = {};
  const int m0 = warp / 2 * kCorner, n0 = warp % 2 * kCorner;
  const int64_t pieces = (p.k + kDepth - 1) / kDepth;
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < pieces) load(stage, stage);
    close_copies();
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    await_copies<kStages - 2>();
    __syncthreads();
    const int64_t next = piece + kStages - 1;
    if (next < pieces) load(next, int(next % kStages));
    close_copies();
    const unsigned char* const as = shared + piece % kStages * kStageBytes;
    const unsigned char* const bs = as + kMatrixBytes;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[4][4], b[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        load_matrices(a[i], as + place(m0 + 16 * i + lane % 16, k / kChunk + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        load_matrices(b[j], bs + place(n0 + 16 * j + lane % 8 + lane / 16 * 8, k / kChunk + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j)
          multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + m0 + 16 * i + 8 * half + lane / 4;
      if (r >= p.m) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int64_t at = column + n0 + 8 * j + lane % 4 * 2;
        if (at >= p.n) continue;
        float2 v = make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        if (p.c != nullptr) {
          const float2 c = load_pair(p.c + r * p.stride + at);
          v.x += c.x, v.y += c.y;
        }
        if (p.bias != nullptr) {
          const float2 bias = load_pair(p.bias + at);
          v.x += bias.x, v.y += bias.y;
        }
        store_pair(p.d + r * p.stride + at, v);
      }
    }
  }
}

// One block per row.
__global__ void last_rows_kernel(const bf16* x, const int32_t* spans, bf16* to, int64_t q_len,
                                 int64_t columns) {
  const int64_t row = blockIdx.x, count = spans[2 * row + 1];
  const int64_t last = count < 1 ? 0 : count > q_len ? q_len - 1 : count - 1;
  const bf16* const from = x + (row * q_len + last) * columns;
  for (int64_t i = int64_t{threadIdx.x} * kVec; i < columns; i += int64_t{blockDim.x} * kVec)
    *reinterpret_cast<uint4*>(to + row * columns + i) = *reinterpret_cast<const uint4*>(from + i);
}

constexpr int kCapThreads = 256;

__global__ void __launch_bounds__(kCapThreads) cap_logits_kernel(float* logits, int64_t count, float cap) {
  const int64_t i = int64_t{blockIdx.x} * kCapThreads + threadIdx.x;
  if (i < count) logits[i] = cap * tanh_of(logits[i] / cap);
}

}  // namespace

template <class D>
cudaError_t row_product(const RowProduct<D>& product, cudaStream_t stream) {
  const dim3 grid(blocks_for(product.n, kTile), blocks_for(product.m, kTile));
  return launch(row_product_kernel<D>, grid, kThreads, kSharedBytes, stream, product);
}
template cudaError_t row_product(const RowProduct<bf16>&, cudaStream_t);
template cudaError_t row_product(const RowProduct<float>&, cudaStream_t);

cudaError_t last_rows(const bf16* x, const int32_t* spans, bf16* to, int64_t rows, int64_t q_len,
                      int64_t columns, cudaStream_t stream) {
  return launch(last_rows_kernel, dim3(unsigned(rows)), threads_for(columns / kVec, 256), 0, stream, x, spans,
                to, q_len, columns);
}

cudaError_t cap_logits(float* logits, int64_t count, float cap, cudaStream_t stream) {
  return launch(cap_logits_kernel, dim3(blocks_for(count, kCapThreads)), kCapThreads, 0, stream, logits,
                count, cap);
}

}  // namespace sluice::core::cuda
