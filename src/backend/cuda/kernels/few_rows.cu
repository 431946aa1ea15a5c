// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights, y = x w^T. Reading w is what takes time: a block sums up four rows of w,
// its threads side by side along them, with all loads of a trip under way at once. The order of the sums does
// not depend on how many rows x has.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kColumns = 4;  // rows of w per block, columns of y
constexpr int kTrip = 4;     // vectors of a row of w that a thread has under way

// Weights are read once: they need not stay in L1, where x is.
__device__ uint4 load_once(const bf16* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(p)));
  return v;
}

// Which columns a block makes: where heads are rotated two pairs of one of them, else four in a row.
struct Columns {
  int64_t at[kColumns];
  int pair = -1;  // of the rotation: the first of the two
};
__device__ Columns columns_of(const FewRows& p, int64_t block) {
  Columns c;
  const int64_t per_head = p.rope_heads > 0 ? p.head_dim / kColumns : 1, rotated = p.rope_heads * per_head;
  if (block < rotated) {
    c.pair = int(block % per_head * 2);
    const int64_t first = block / per_head * p.head_dim + c.pair;
    c.at[0] = first, c.at[1] = first + 1;
    c.at[2] = first + p.head_dim / 2, c.at[3] = c.at[2] + 1;
  } else {
    for (int j = 0; j < kColumns; ++j) {
      c.at[j] = p.rope_heads * p.head_dim + (block - rotated) * kColumns + j;
    }
  }
  return c;
}

__device__ const bf16* row_of(const FewRows& p, int row) {
  if (row >= p.rows) row = int(p.rows) - 1;  // computed, not stored
  if (p.spans == nullptr) return p.x + row * p.in;
  const int64_t count = p.spans[2 * row + 1];
  const int64_t last = count < 1 ? 0 : count > p.q_len ? p.q_len - 1 : count - 1;
  return p.x + (row * p.q_len + last) * p.in;
}

// acc[j][m] = what this thread has of column j of row m.
template <int M>
__device__ void sum_up(const FewRows& p, const Columns& columns, float (&acc)[kColumns][M]) {
  const bf16* x[M];
  const bf16* w[kColumns];
  for (int m = 0; m < M; ++m) x[m] = row_of(p, m);
  for (int j = 0; j < kColumns; ++j) {
    w[j] = p.w + (columns.at[j] < p.out ? columns.at[j] : p.out - 1) * p.in;
  }
  for (int64_t trip = threadIdx.x * kVec; trip < p.in; trip += kThreads * kTrip * kVec) {
    Vec8<bf16> weights[kTrip][kColumns];
#pragma unroll
    for (int u = 0; u < kTrip; ++u) {
      const int64_t k = trip + u * kThreads * kVec;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        weights[u][j].raw = k < p.in ? load_once(w[j] + k) : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int u = 0; u < kTrip; ++u) {
      const int64_t k = trip + u * kThreads * kVec;
      if (k >= p.in) break;
#pragma unroll
      for (int m = 0; m < M; ++m) {
        float a[kVec];
        load8(x[m] + k, a);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float b[kVec];
          weights[u][j].unpack(b);
#pragma unroll
          for (int i = 0; i < kVec; ++i) acc[j][m] = fmaf(a[i], b[i], acc[j][m]);
        }
      }
    }
  }
}

// cos and sin of a token's pair, its angle reduced to one turn in double precision.
__device__ void rotation(const FewRows& p, int row, int pair, float& cos, float& sin) {
  constexpr double kInverseTurn = 0.15915494309189535;  // 1 / (2 pi)
  const double turns = double(p.rotary.pos[row]) * double(p.rotary.inv_freq[pair]) * kInverseTurn;
  sincospif(float(2.0 * (turns - rint(turns))), &sin, &cos);
  cos *= p.rotary.scale;
  sin *= p.rotary.scale;
}

template <int M, class T>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(FewRows p, T* y) {
  __shared__ float partial[kWarps][kColumns * M], total[kColumns * M];
  const Columns columns = columns_of(p, blockIdx.x);
  float acc[kColumns][M] = {};
  sum_up<M>(p, columns, acc);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const float sum = warp_sum(acc[j][m]);
      if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp][j * M + m] = sum;
    }
  }
  __syncthreads();
  const int item = threadIdx.x, j = item / M, row = item % M;
  const bool makes = item < kColumns * M && row < p.rows && columns.at[j < kColumns ? j : 0] < p.out;
  if (makes) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][item];
    if (p.bias != nullptr) sum += to_float(p.bias[columns.at[j]]);
    if (p.residual != nullptr) sum += to_float(p.residual[row * p.out + columns.at[j]]);
    total[item] = sum;
  }
  __syncthreads();
  if (!makes) return;
  float value = total[item];
  if (columns.pair >= 0) {
    // Columns 0 and 1 are the first elements of two pairs, 2 and 3 the second ones.
    float cos, sin;
    rotation(p, row, columns.pair + j % 2, cos, sin);
    value = j < 2 ? value * cos - total[item + 2 * M] * sin : value * cos + total[item - 2 * M] * sin;
  }
  store_float(y + row * p.out + columns.at[j], value);
}

template <class T>
cudaError_t run(const FewRows& p, T* y, cudaStream_t stream) {
  const auto kernel = p.rows <= 1   ? few_rows_kernel<1, T>
                      : p.rows <= 2 ? few_rows_kernel<2, T>
                      : p.rows <= 4 ? few_rows_kernel<4, T>
                                    : few_rows_kernel<8, T>;
  return launch(kernel, dim3(blocks_for(p.out, kColumns)), kThreads, 0, stream, p, y);
}

}  // namespace

cudaError_t few_rows(const FewRows& product, bf16* y, cudaStream_t stream) {
  return run(product, y, stream);
}

cudaError_t last_logits(FewRows product, float* logits, cudaStream_t stream) {
  const int64_t rows = product.rows;
  for (int64_t first = 0; first < rows; first += kFewRows) {
    product.rows = rows - first < kFewRows ? rows - first : kFewRows;
    const cudaError_t status = run(product, logits + first * product.out, stream);
    if (status != cudaSuccess) return status;
    product.x += kFewRows * product.q_len * product.in;
    product.spans += 2 * kFewRows;
  }
  return cudaSuccess;
}

}  // namespace sluice::core::cuda
