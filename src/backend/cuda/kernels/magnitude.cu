// SPDX-License-Identifier: Apache-2.0
// Products whose rows have a magnitude that is learnt (DoRA): the norms of a weight's rows with its adapter,
// and what scales columns by magnitudes over norms.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

// A block has kNormRows rows of a weight, and each thread sums kNormColumns columns of each at a time. So
// what it loads of A serves all rows, and what it loads of B all columns.
constexpr int kNormThreads = 256, kNormRows = 8, kNormColumns = 4;

template <class T>
__global__ void __launch_bounds__(kNormThreads)
    row_norms_kernel(const T* w, const T* a, const T* b, float* norms, int64_t rows, int64_t in, int rank,
                     float scale) {
  extern __shared__ float left[];  // [rank][kNormRows]: scale * b
  __shared__ float scratch[kNormRows][kMaxWarps];
  const int64_t first = int64_t{blockIdx.x} * kNormRows;
  for (int k = threadIdx.x; k < rank * kNormRows; k += kNormThreads) {
    const int64_t row = first + k % kNormRows;
    left[k] = row < rows ? scale * to_float(b[row * rank + k / kNormRows]) : 0.0f;
  }
  __syncthreads();
  float squares[kNormRows] = {};
  for (int64_t i = threadIdx.x; i < in; i += kNormThreads * kNormColumns) {
    float v[kNormRows][kNormColumns];
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
#pragma unroll
      for (int c = 0; c < kNormColumns; ++c) {
        const int64_t column = i + c * kNormThreads;
        v[r][c] = first + r < rows && column < in ? to_float(w[(first + r) * in + column]) : 0.0f;
      }
    }
    for (int j = 0; j < rank; ++j) {
      float x[kNormColumns];
#pragma unroll
      for (int c = 0; c < kNormColumns; ++c) {
        const int64_t column = i + c * kNormThreads;
        x[c] = column < in ? to_float(a[j * in + column]) : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < kNormRows; ++r) {
        const float by = left[j * kNormRows + r];
#pragma unroll
        for (int c = 0; c < kNormColumns; ++c) v[r][c] += by * x[c];
      }
    }
#pragma unroll
    for (int r = 0; r < kNormRows; ++r) {
#pragma unroll
      for (int c = 0; c < kNormColumns; ++c) squares[r] += v[r][c] * v[r][c];
    }
  }
#pragma unroll
  for (int r = 0; r < kNormRows; ++r) {
    const float sum = block_sum(squares[r], scratch[r]);
    if (threadIdx.x == 0 && first + r < rows) norms[first + r] = sqrtf(sum);
  }
}

// Threads of a block: kVec columns each, and tokens side by side.
constexpr int kColumns = 32, kRows = 8;
constexpr int kTokens = 64;  // of a block

// Eight columns are multiplied with `factor`; `inverse` is that of their norms. Columns that are not scaled
// have 1 and 0.
__device__ inline void factors_of(const MagnitudeForm& form, int64_t column, float (&factor)[kVec],
                                  float (&inverse)[kVec]) {
  const int64_t at = column - form.first;
  if (at < 0 || at >= form.adapted) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) factor[j] = 1.0f, inverse[j] = 0.0f;
    return;
  }
  float m[kVec], norms[kVec];
  load8(form.m + at, m);
  load8(form.norms + at, norms);
#pragma unroll
  for (int j = 0; j < kVec; ++j) factor[j] = m[j] / norms[j], inverse[j] = 1.0f / norms[j];
}

template <class T>
__global__ void __launch_bounds__(kColumns* kRows)
    magnitude_kernel(const T* z, const T* bias, const T* residual, T* y, int64_t tokens, MagnitudeForm form) {
  const int x = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int64_t column = (int64_t{blockIdx.x} * kColumns + x) * kVec;
  if (column >= form.columns) return;
  float factor[kVec], inverse[kVec], added[kVec] = {};
  factors_of(form, column, factor, inverse);
  if (bias != nullptr) load8(bias + column, added);
  const int64_t first = int64_t{blockIdx.y} * kTokens, end = min(first + kTokens, tokens);
  for (int64_t t = first + row; t < end; t += kRows) {
    const int64_t at = t * form.columns + column;
    float v[kVec];
    load8(z + at, v);
#pragma unroll
    for (int j = 0; j < kVec; ++j) v[j] = v[j] * factor[j] + added[j];
    if (residual != nullptr) {
      float before[kVec];
      load8(residual + at, before);
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] += before[j];
    }
    store8(y + at, v);
  }
}

// Tokens [blockIdx.y * rows, ...): their dz, and the sums of dy * z / norms.
template <class T>
__global__ void __launch_bounds__(kColumns* kRows)
    magnitude_bwd_kernel(const T* dy, const T* z, T* dz, float* partials, int64_t tokens, int64_t rows,
                         MagnitudeForm form) {
  __shared__ float scratch[kRows][kColumns][kVec + 1];
  const int x = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int64_t column = (int64_t{blockIdx.x} * kColumns + x) * kVec;
  const bool there = column < form.columns;
  const int64_t first = blockIdx.y * rows, end = min(first + rows, tokens);
  float factor[kVec], inverse[kVec], sums[kVec] = {};
  if (there) {
    factors_of(form, column, factor, inverse);
#pragma unroll 2
    for (int64_t t = first + row; t < end; t += kRows) {
      const int64_t at = t * form.columns + column;
      float d[kVec], v[kVec];
      load8(dy + at, d);
      load8(z + at, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        sums[j] += d[j] * v[j];
        d[j] *= factor[j];
      }
      store8(dz + at, d);
    }
  }
#pragma unroll
  for (int j = 0; j < kVec; ++j) scratch[row][x][j] = sums[j];
  __syncthreads();
  const int64_t at = column - form.first;
  if (row > 0 || !there || at < 0 || at >= form.adapted) return;
  for (int i = 1; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) sums[j] += scratch[i][x][j];
  }
#pragma unroll
  for (int j = 0; j < kVec; ++j) sums[j] *= inverse[j];
  store8(partials + blockIdx.y * form.adapted + at, sums);
}

}  // namespace

template <class T>
cudaError_t row_norms(const T* w, const T* a, const T* b, float* norms, int64_t rows, int64_t in,
                      int64_t rank, float scale, cudaStream_t stream) {
  const size_t shared = size_t(rank) * kNormRows * sizeof(float);
  return launch(row_norms_kernel<T>, dim3(blocks_for(rows, kNormRows)), kNormThreads, shared, stream, w, a, b,
                norms, rows, in, int(rank), scale);
}
template cudaError_t row_norms(const bf16*, const bf16*, const bf16*, float*, int64_t, int64_t, int64_t,
                               float, cudaStream_t);
template cudaError_t row_norms(const float*, const float*, const float*, float*, int64_t, int64_t, int64_t,
                               float, cudaStream_t);

template <class T>
cudaError_t magnitude(const T* z, const T* bias, const T* residual, T* y, int64_t tokens,
                      const MagnitudeForm& form, cudaStream_t stream) {
  const dim3 grid(blocks_for(form.columns, kColumns * kVec), blocks_for(tokens, kTokens));
  return launch(magnitude_kernel<T>, grid, kColumns * kRows, 0, stream, z, bias, residual, y, tokens, form);
}
template cudaError_t magnitude(const bf16*, const bf16*, const bf16*, bf16*, int64_t, const MagnitudeForm&,
                               cudaStream_t);
template cudaError_t magnitude(const float*, const float*, const float*, float*, int64_t,
                               const MagnitudeForm&, cudaStream_t);

template <class T, class G>
cudaError_t magnitude_bwd(const T* dy, const T* z, T* dz, G* dm, void* workspace, int64_t tokens,
                          const MagnitudeForm& form, bool accumulate, cudaStream_t stream) {
  auto* partials = static_cast<float*>(workspace);
  const int64_t blocks = bias_partials(tokens), rows = blocks > 0 ? (tokens + blocks - 1) / blocks : 0;
  const dim3 grid(blocks_for(form.columns, kColumns * kVec), unsigned(blocks));
  const auto status = launch(magnitude_bwd_kernel<T>, grid, kColumns * kRows, 0, stream, dy, z, dz, partials,
                             tokens, rows, form);
  if (status != cudaSuccess) return status;
  return sum_partials(partials, dm, blocks, form.adapted, accumulate, stream);
}
template cudaError_t magnitude_bwd(const bf16*, const bf16*, bf16*, float*, void*, int64_t,
                                   const MagnitudeForm&, bool, cudaStream_t);
template cudaError_t magnitude_bwd(const bf16*, const bf16*, bf16*, bf16*, void*, int64_t,
                                   const MagnitudeForm&, bool, cudaStream_t);
template cudaError_t magnitude_bwd(const float*, const float*, float*, float*, void*, int64_t,
                                   const MagnitudeForm&, bool, cudaStream_t);

}  // namespace sluice::core::cuda
