// SPDX-License-Identifier: Apache-2.0
// Adafactor's update of a matrix. Sums are formed in an order that the matrix alone gives. One block sums a
// row, rows in parts a column, and one block the tensor over the sums of rows. Parts of a weight begin where
// a tensor does, so that nothing is aligned but to its elements. Whether to update at all is data on the
// device, as in update.cuh.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/adafactor_rate.h"
#include "ops/gpu_partials.h"
#include "ops/master.h"
#include "ops/rounding.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256, kAllThreads = 1024;

struct Scalars {
  float rate, decay;
};

__device__ bool skips(const float* clip, const StepArgs* args) {
  return args->update == 0 || clip[1] == 0.0f;
}

__device__ float weight_at(const bf16* p, const Masters& masters, int64_t i) {
  if (masters.f32 != nullptr) return masters.f32[i];
  if (masters.residual != nullptr)
    return __uint_as_float(join_master(reinterpret_cast<const uint16_t*>(p)[i], masters.residual[i]));
  return to_float(p[i]);
}

// Sums of squares of a row's gradients and weights. One block per row.
template <class G>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(AdafactorMatrix m, const G* g, const bf16* p, Masters masters, bool scaled, float* sums,
                    float* weight_sums, const float* clip, const StepArgs* args) {
  if (skips(clip, args)) return;
  __shared__ float scratch[2][kMaxWarps];
  const int64_t begin = int64_t{blockIdx.x} * m.cols;
  float squares = 0, weights = 0;
  for (int64_t j = threadIdx.x; j < m.cols; j += kThreads) {
    const float x = __fmul_rn(to_float(g[begin + j]), clip[1]);
    squares = __fmaf_rn(x, x, squares);
    if (!scaled) continue;
    const float w = weight_at(p, masters, begin + j);
    weights = __fmaf_rn(w, w, weights);
  }
  squares = block_sum(squares, scratch[0]);
  weights = block_sum(weights, scratch[1]);
  if (threadIdx.x == 0) sums[blockIdx.x] = squares, weight_sums[blockIdx.x] = weights;
}

// Sums of squares of columns over the rows of a part: a thread per column, a row of blocks per part.
template <class G>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(AdafactorMatrix m, const G* g, float* sums, int64_t rows_of_part, const float* clip,
                       const StepArgs* args) {
  if (skips(clip, args)) return;
  const int64_t j = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (j >= m.cols) return;
  const int64_t first = int64_t{blockIdx.y} * rows_of_part, end = min(first + rows_of_part, m.rows);
  float squares = 0;
  for (int64_t i = first; i < end; ++i) {
    const float x = __fmul_rn(to_float(g[i * m.cols + j]), clip[1]);
    squares = __fmaf_rn(x, x, squares);
  }
  sums[int64_t{blockIdx.y} * m.cols + j] = squares;
}

__device__ float mean(float decay, float old, float sum, int64_t count, float eps) {
  const float now = __fadd_rn(__fdiv_rn(sum, float(count)), eps);
  return __fmaf_rn(decay, old, __fmul_rn(1.0f - decay, now));
}

__global__ void __launch_bounds__(kThreads)
    columns_kernel(AdafactorMatrix m, AdafactorRule rule, const float* sums, int64_t parts, float* col,
                   float* factors, const float* clip, const StepArgs* args) {
  if (skips(clip, args)) return;
  const int64_t j = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (j >= m.cols) return;
  const auto decay = float(adafactor_decay(rule.decay_rate, args->updates));
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += sums[part * m.cols + j];
  const float now = mean(decay, col[j], sum, m.rows, rule.eps);
  col[j] = now;
  factors[j] = __fdiv_rn(1.0f, __fsqrt_rn(now));
}

// One block.
__global__ void __launch_bounds__(kAllThreads)
    rows_kernel(AdafactorMatrix m, AdafactorRule rule, const float* sums, float* row, float* factors,
                const float* clip, const StepArgs* args) {
  if (skips(clip, args)) return;
  __shared__ double scratch[kMaxWarps];
  const auto decay = float(adafactor_decay(rule.decay_rate, args->updates));
  double total = 0;
  for (int64_t i = threadIdx.x; i < m.rows; i += kAllThreads) {
    row[i] = mean(decay, row[i], sums[i], m.cols, rule.eps);
    total += double(row[i]);
  }
  const auto row_mean = float(block_sum(total, scratch) / double(m.rows));
  for (int64_t i = threadIdx.x; i < m.rows; i += kAllThreads)
    factors[i] = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(row[i], row_mean)));
}

template <class G>
__device__ float update_at(const G* g, float clip, float row_factor, const float* column_factors,
                           int64_t begin, int64_t j) {
  return __fmul_rn(__fmul_rn(__fmul_rn(to_float(g[begin + j]), clip), row_factor), column_factors[j]);
}

// Sums of squares of a row's updates. One block per row.
template <class G>
__global__ void __launch_bounds__(kThreads)
    update_sums_kernel(AdafactorMatrix m, const G* g, const float* row_factors, const float* column_factors,
                       float* sums, const float* clip, const StepArgs* args) {
  if (skips(clip, args)) return;
  __shared__ float scratch[kMaxWarps];
  const int64_t begin = int64_t{blockIdx.x} * m.cols;
  const float factor = row_factors[blockIdx.x];
  float squares = 0;
  for (int64_t j = threadIdx.x; j < m.cols; j += kThreads) {
    const float u = update_at(g, clip[1], factor, column_factors, begin, j);
    squares = __fmaf_rn(u, u, squares);
  }
  squares = block_sum(squares, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = squares;
}

// One block.
__global__ void __launch_bounds__(kAllThreads)
    scalars_kernel(AdafactorMatrix m, AdafactorRule rule, const float* update_sums, const float* weight_sums,
                   Scalars* scalars, const float* clip, const StepArgs* args) {
  if (skips(clip, args)) return;
  __shared__ double scratch[2][kMaxWarps];
  double updates = 0, weights = 0;
  for (int64_t i = threadIdx.x; i < m.rows; i += kAllThreads)
    updates += double(update_sums[i]), weights += double(weight_sums[i]);
  updates = block_sum(updates, scratch[0]);
  weights = block_sum(weights, scratch[1]);
  if (threadIdx.x != 0) return;
  const double elements = double(m.rows) * double(m.cols);
  double rate =
      double(args->learning_rate) * adafactor_step(rule.relative_step, rule.warmup_init, args->updates);
  if (rule.scale_parameter) rate *= fmax(double(rule.eps_scale), sqrt(weights / elements));
  const double size = fmax(1.0, sqrt(updates / elements) / double(rule.clip_threshold));
  *scalars = {float(rate / size), float(rate * double(rule.weight_decay))};
}

// A thread per pair of elements that share their random numbers.
template <class G>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(AdafactorMatrix m, const G* g, bf16* p, Masters masters, const float* row_factors,
                 const float* column_factors, const Scalars* scalars, bool stochastic, const float* clip,
                 const StepArgs* args) {
  if (skips(clip, args)) return;
  const int64_t pair = int64_t{blockIdx.x} * kThreads + threadIdx.x, odd = m.first % 2;
  const Scalars s = *scalars;
  const bool draws = stochastic && masters.f32 == nullptr && masters.residual == nullptr;
  const Philox4 bits =
      draws ? rounding_pair(rounding_key(args->seed, m.object), args->step, m.first / 2 + pair) : Philox4{};
  for (int half = 0; half < 2; ++half) {
    const int64_t at = 2 * pair + half - odd;
    if (at < 0 || at >= m.rows * m.cols) continue;
    const int64_t row = at / m.cols, begin = row * m.cols;
    const float u = update_at(g, clip[1], row_factors[row], column_factors, begin, at - begin);
    const float old = weight_at(p, masters, at);
    const float w = __fsub_rn(old, __fmaf_rn(u, s.rate, __fmul_rn(old, s.decay)));
    if (masters.residual != nullptr) {
      const SplitMaster split = split_master(__float_as_uint(w));
      reinterpret_cast<uint16_t*>(p)[at] = split.parameter;
      masters.residual[at] = split.residual;
      continue;
    }
    if (masters.f32 != nullptr) masters.f32[at] = w;
    if (draws) {
      reinterpret_cast<uint16_t*>(p)[at] =
          uint16_t(round_stochastic(__float_as_uint(w), rounding_bits(bits, half == 1).p));
    } else {
      store_float(p + at, w);
    }
  }
}

}  // namespace

template <class G>
cudaError_t adafactor(const AdafactorMatrix& m, const AdafactorRule& rule, bf16* p, const G* g, float* row,
                      float* col, const Masters& masters, const AdafactorSpace& space, const float* clip,
                      const StepArgs* args, bool stochastic, cudaStream_t stream) {
  const int64_t parts = column_partials(m.rows), rows_of_part = (m.rows + parts - 1) / parts;
  const dim3 rows(unsigned(m.rows)), columns(blocks_for(m.cols, kThreads));
  auto* scalars = reinterpret_cast<Scalars*>(space.scalars);
  cudaError_t status = launch(row_sums_kernel<G>, rows, kThreads, 0, stream, m, g, p, masters,
                              rule.scale_parameter, space.row_sums, space.weight_sums, clip, args);
  if (status == cudaSuccess)
    status = launch(column_sums_kernel<G>, dim3(columns.x, unsigned(parts)), kThreads, 0, stream, m, g,
                    space.column_sums, rows_of_part, clip, args);
  if (status == cudaSuccess)
    status = launch(columns_kernel, columns, kThreads, 0, stream, m, rule, space.column_sums, parts, col,
                    space.column_factors, clip, args);
  if (status == cudaSuccess)
    status = launch(rows_kernel, dim3(1), kAllThreads, 0, stream, m, rule, space.row_sums, row,
                    space.row_factors, clip, args);
  if (status == cudaSuccess)
    status = launch(update_sums_kernel<G>, rows, kThreads, 0, stream, m, g, space.row_factors,
                    space.column_factors, space.row_sums, clip, args);
  if (status == cudaSuccess)
    status = launch(scalars_kernel, dim3(1), kAllThreads, 0, stream, m, rule, space.row_sums,
                    space.weight_sums, scalars, clip, args);
  if (status != cudaSuccess) return status;
  const int64_t pairs = (m.rows * m.cols + m.first % 2 + 1) / 2;
  return launch(apply_kernel<G>, dim3(blocks_for(pairs, kThreads)), kThreads, 0, stream, m, g, p, masters,
                space.row_factors, space.column_factors, scalars, stochastic, clip, args);
}
template cudaError_t adafactor(const AdafactorMatrix&, const AdafactorRule&, bf16*, const float*, float*,
                               float*, const Masters&, const AdafactorSpace&, const float*, const StepArgs*,
                               bool, cudaStream_t);
template cudaError_t adafactor(const AdafactorMatrix&, const AdafactorRule&, bf16*, const bf16*, float*,
                               float*, const Masters&, const AdafactorSpace&, const float*, const StepArgs*,
                               bool, cudaStream_t);

}  // namespace sluice::core::cuda
