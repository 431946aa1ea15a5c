// SPDX-License-Identifier: Apache-2.0
// Products of rows with weights whose bits do not depend on how many rows there are, and what goes with them
// at the head of passes that generate text. A library's algorithm may take the place of the product where it
// has its bits (products.h): then this is the reference.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_product.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// Where large tiles would be too few for the GPU, small ones are taken.
using Large = Tiling<128, 128, 32, 4>;
using Middle = Tiling<64, 64, 64, 6>;
using Small = Tiling<64, 32, 64, 8>;
constexpr unsigned kEnoughBlocks = 120;  // for most of a GPU

// Starts copying a piece of the rows from `first` on; what is not there becomes zero.
template <int ROWS, int DEPTH>
__device__ void copy_piece(unsigned char* to, const bf16* from, int64_t first, int64_t rows, int64_t k,
                           int64_t begin) {
  constexpr int kChunks = DEPTH / kChunk, kAtOnce = kThreads / kChunks;
  static_assert(ROWS % kAtOnce == 0);
  const int chunk = int(threadIdx.x) % kChunks;
  const int64_t at = begin + chunk * kChunk;
#pragma unroll
  for (int i = 0; i < ROWS; i += kAtOnce) {
    const int r = i + int(threadIdx.x) / kChunks;
    const bool there = first + r < rows && at < k;
    copy_async(to + along_k<DEPTH>(r, chunk), there ? from + (first + r) * k + at : from, there);
  }
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
template <class T, class D>
__global__ void __launch_bounds__(kThreads, 2) row_product_kernel(RowProduct<D> p) {
  constexpr int kRowTiles = T::kCornerRows / 16, kColumnTiles = T::kCornerColumns / 8;
  unsigned char* const shared = dynamic_shared();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = int64_t{blockIdx.x} * T::kColumns, row = int64_t{blockIdx.y} * T::kRows;
  const auto load = [&](int64_t piece, int stage) {
    unsigned char* const as = shared + stage * T::kStageBytes;
    copy_piece<T::kRows, T::kDepth>(as, p.x, row, p.m, p.k, piece * T::kDepth);
    copy_piece<T::kColumns, T::kDepth>(as + T::kRows * T::kRowBytes, p.w, column, p.n, p.k,
                                       piece * T::kDepth);
  };

  float sums[kRowTiles][kColumnTiles][4] = {};
  const int m0 = warp / 2 * T::kCornerRows, n0 = warp % 2 * T::kCornerColumns;
  const int64_t pieces = (p.k + T::kDepth - 1) / T::kDepth;
  multiply_pieces<T>(
      sums, pieces, shared, m0, n0, load,
      [&](uint32_t(&a)[4], const unsigned char* as, int m, int k) {
        load_matrices(a, as + along_k<T::kDepth>(m + lane % 16, k / kChunk + lane / 16));
      },
      [&](uint32_t(&b)[4], const unsigned char* bs, int n, int k) {
        load_matrices(b, bs + along_k<T::kDepth>(n + lane % 8 + lane / 16 * 8, k / kChunk + lane / 8 % 2));
      });

#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + m0 + 16 * i + 8 * half + lane / 4;
      if (r >= p.m) continue;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
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

namespace {

template <class T>
dim3 grid_of(int64_t rows, int64_t columns) {
  return dim3(blocks_for(columns, T::kColumns), blocks_for(rows, T::kRows));
}
template <class T, class D>
cudaError_t run(const RowProduct<D>& product, cudaStream_t stream) {
  return launch(row_product_kernel<T, D>, grid_of<T>(product.m, product.n), kThreads, T::kSharedBytes, stream,
                product);
}
template <class T, class D>
bool fills_most(const RowProduct<D>& product) {
  const dim3 grid = grid_of<T>(product.m, product.n);
  return grid.x * grid.y >= kEnoughBlocks;
}

}  // namespace

template <class D>
cudaError_t row_product(const RowProduct<D>& product, cudaStream_t stream) {
  if (product.m > Middle::kRows && fills_most<Large>(product)) return run<Large>(product, stream);
  return fills_most<Middle>(product) ? run<Middle>(product, stream) : run<Small>(product, stream);
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
