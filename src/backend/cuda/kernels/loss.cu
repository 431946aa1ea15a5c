// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over rows of f32 logits, and its gradient, in bf16 or f32, in the same memory.
//
// A row of 128,256 logits is 513 KB, more than a block's shared memory. One pass finds maximum and sum
// online. A second one, which mostly hits the L2 cache, writes the gradient.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kLossThreads = 512;
constexpr int kBatch = 4;                       // vectors in flight per thread
constexpr int64_t kTrip = kLossThreads * kVec;  // columns that a block reads at a time
constexpr int kSumThreads = 1024;
constexpr float kMinusInfinity = -__builtin_huge_valf();

// sum of exp(x - max) over what has been seen.
struct Softmax {
  float max = kMinusInfinity, sum = 0;

  __device__ void add(float other_max, float other_sum) {
    const float top = fmaxf(max, other_max);
    if (top == kMinusInfinity) return;
    sum = sum * __expf(max - top) + other_sum * __expf(other_max - top);
    max = top;
  }
};

__device__ float capped(float x, float cap) {
  return cap > 0 ? cap * tanh_of(x / cap) : x;
}

// Capped, unless `cap` is 0. Columns past `vocab` read as -inf.
__device__ void load_logits(const float* row, int64_t column, int64_t vocab, float cap, float (&x)[kVec],
                            bool aligned = true) {
  if (aligned && column + kVec <= vocab) {
    load8(row + column, x);
    if (cap > 0) {
      for (int j = 0; j < kVec; ++j) x[j] = capped(x[j], cap);
    }
    return;
  }
  for (int j = 0; j < kVec; ++j) x[j] = column + j < vocab ? capped(row[column + j], cap) : kMinusInfinity;
}

struct RowSum {
  float log_sum_exp, max;
};

// Sums of the row; every thread receives them.
__device__ RowSum sum_up(const float* row, int64_t vocab, float cap, Softmax* scratch, bool aligned = true) {
  Softmax mine;
  for (int64_t trip = 0; trip < vocab; trip += kBatch * kTrip) {
    float x[kBatch][kVec];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      load_logits(row, trip + b * kTrip + threadIdx.x * kVec, vocab, cap, x[b], aligned);
    float top = mine.max;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      for (int j = 0; j < kVec; ++j) top = fmaxf(top, x[b][j]);
    }
    if (top == kMinusInfinity) continue;
    mine.sum *= __expf(mine.max - top);
    mine.max = top;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      for (int j = 0; j < kVec; ++j) mine.sum += __expf(x[b][j] - top);
    }
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float max = __shfl_xor_sync(kFullWarp, mine.max, offset);
    const float sum = __shfl_xor_sync(kFullWarp, mine.sum, offset);
    mine.add(max, sum);
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Softmax all;
  for (int i = 0; i < kLossThreads / kWarp; ++i) all.add(scratch[i].max, scratch[i].sum);
  return {all.max + logf(all.sum), all.max};
}

// The weight of one of a row's other tokens.
__device__ float weight_of(const TopOfRows& top, int64_t i) {
  return top.tokens[i] < 0 ? 0.0f : top.weights != nullptr ? top.weights[i] : 1.0f;
}

template <class G>
__global__ void __launch_bounds__(kLossThreads)
    softmax_loss_kernel(float* logits, const int32_t* targets, const float* weights, TopOfRows top,
                        const StepArgs* args, float* row_loss, int64_t vocab, int64_t stride, float cap,
                        bool gradients) {
  __shared__ __align__(16) unsigned char scratch[kLossThreads / kWarp * sizeof(Softmax)];
  const float* row = logits + blockIdx.x * stride;
  const int64_t target = targets[blockIdx.x];
  const bool counts = target >= 0;
  float* const top_logits = reinterpret_cast<float*>(dynamic_shared());
  const int64_t first_top = int64_t{blockIdx.x} * top.count;
  float lse = 0, scale = 0, chosen = 0;
  float all = 1;        // weights of the target and of the others
  bool is_top = false;  // no logit is larger than the target's
  if (counts) {
    const RowSum sum = sum_up(row, vocab, cap, reinterpret_cast<Softmax*>(scratch));
    lse = sum.log_sum_exp;
    chosen = capped(row[target], cap);
    is_top = chosen >= sum.max;
    scale = weights != nullptr ? args->loss_scale * weights[blockIdx.x] : args->loss_scale;
  }
  if (top.count > 0) {
    all = weights != nullptr ? weights[blockIdx.x] : 1.0f;
    for (int j = 0; j < top.count; ++j) all += weight_of(top, first_top + j);
    scale = counts ? args->loss_scale * all : 0.0f;
    for (int j = threadIdx.x; j < top.count; j += kLossThreads) {
      const int64_t token = top.tokens[first_top + j];
      const bool is = counts && token >= 0;
      top_logits[j] = is ? capped(row[token], cap) : 0.0f;
      if (top.log_probs != nullptr) top.log_probs[first_top + j] = is ? top_logits[j] - lse : 0.0f;
    }
  }
  if (threadIdx.x == 0) {
    // A loss is never below 0, as the largest term of the sum is exactly 1: its sign is free to say `is_top`.
    const float loss = counts ? lse - chosen : 0.0f;
    row_loss[blockIdx.x] = is_top ? copysignf(loss, -1.0f) : loss;
  }
  if (!gradients) return;

  // Gradients in bf16 are half as wide as logits: those of trip k land where logits of trip k / 2 were. A
  // barrier during trip b lets the gradients of trips up to 2 b + 1 go ahead, so barriers at 0, 2, 6, 14, ...
  // are enough. In f32 the one at 0 is: before it all read the target's logit, then each thread its own.
  G* gradient = reinterpret_cast<G*>(logits + blockIdx.x * stride);
  const int64_t trips = (vocab + kTrip - 1) / kTrip;
  for (int64_t trip = 0; trip < trips; ++trip) {
    const int64_t column = trip * kTrip + threadIdx.x * kVec;
    float x[kVec] = {};
    if (counts && column < vocab) {
      load_logits(row, column, vocab, cap, x);
      for (int j = 0; j < kVec; ++j) {
        const float t = cap > 0 && column + j < vocab ? x[j] / cap : 0.0f;
        x[j] = (__expf(x[j] - lse) - (column + j == target ? 1.0f : 0.0f)) * scale * (1.0f - t * t);
      }
    }
    if (((trip + 1) & (trip + 2)) == 0) __syncthreads();
    if (column < vocab) store8(gradient + column, x);
  }
  if (top.count == 0 || !counts) return;
  __syncthreads();
  // Tokens that have a weight of their own; equal ones are written alike.
  for (int j = threadIdx.x; j <= top.count; j += kLossThreads) {
    const int64_t token = j < top.count ? top.tokens[first_top + j] : target;
    if (token < 0) continue;
    float own = token != target ? 0.0f : weights != nullptr ? weights[blockIdx.x] : 1.0f;
    for (int i = 0; i < top.count; ++i)
      own += top.tokens[first_top + i] == token ? weight_of(top, first_top + i) : 0.0f;
    const float x = j < top.count ? top_logits[j] : chosen, t = cap > 0 ? x / cap : 0.0f;
    store_float(gradient + token, (__expf(x - lse) * all - own) * args->loss_scale * (1.0f - t * t));
  }
}

// The weighted loss of a row, whose sign says nothing.
__device__ double weighted_loss(const float* row_loss, const float* weights, int64_t row) {
  const double loss = double(fabsf(row_loss[row]));
  return weights != nullptr ? loss * double(weights[row]) : loss;
}

// From losses with signs to what HeadLoss makes with gradients.
__global__ void sum_loss_kernel(const float* row_loss, const float* weights, double* loss, int64_t rows,
                                bool accumulate) {
  __shared__ double scratch[kMaxWarps], hit_scratch[kMaxWarps];
  double sum = 0, hits = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    sum += weighted_loss(row_loss, weights, i);
    hits += signbit(row_loss[i]) ? 1.0 : 0.0;
  }
  sum = block_sum(sum, scratch);
  hits = block_sum(hits, hit_scratch);
  if (threadIdx.x > 0) return;
  loss[0] = (accumulate ? loss[0] : 0.0) + sum;
  loss[1] = (accumulate ? loss[1] : 0.0) + hits;
}

// The same without.
__global__ void token_losses_kernel(const float* row_loss, const float* weights, double* loss, int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  loss[row] = weighted_loss(row_loss, weights, row);
  loss[rows + row] = signbit(row_loss[row]) ? 1.0 : 0.0;
}

__global__ void log_probs_kernel(const float* row_loss, float* log_probs, int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < rows) log_probs[row] = 0.0f - fabsf(row_loss[row]);
}

constexpr int kDrawWarps = kLossThreads / kWarp;
constexpr int kDrawLane = kDrawBlock / kWarp;  // neighbours of a block that a lane has

// exp((x - top) * scale) of a logit, 0 past the last one.
__device__ float power(const float* row, int64_t i, int64_t vocab, float top, float scale) {
  return i < vocab ? __expf((row[i] - top) * scale) : 0.0f;
}

// One block per row; see DrawTokens. A warp sums the powers of a block of tokens.
__global__ void __launch_bounds__(kLossThreads)
    draw_kernel(const float* logits, const TokenDraw* draws, DrawnToken* drawn, int64_t vocab) {
  __shared__ __align__(16) unsigned char scratch[kDrawWarps * sizeof(Softmax)];
  __shared__ int64_t token;
  __shared__ double log_total;
  double* const sums = reinterpret_cast<double*>(dynamic_shared());
  const TokenDraw draw = draws[blockIdx.x];
  DrawnToken& out = drawn[blockIdx.x];
  if (draw.text < 0) {
    if (threadIdx.x == 0) out = {-1, 0, 0};
    return;
  }
  const float* row = logits + int64_t(draw.text) * vocab;
  const double per_temperature = draw.per_temperature;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) token = vocab, log_total = 0;
  const RowSum all = sum_up(row, vocab, 0, reinterpret_cast<Softmax*>(scratch), vocab % 4 == 0);
  if (per_temperature == 0) {
    int64_t first = vocab;
    for (int64_t i = threadIdx.x; i < vocab; i += kLossThreads) {
      if (row[i] == all.max) first = min(first, i);
    }
    if (first < vocab) atomicMin(reinterpret_cast<long long*>(&token), static_cast<long long>(first));
  } else {
    const float scale = float(per_temperature);
    const int blocks = int((vocab + kDrawBlock - 1) / kDrawBlock);
    for (int b = warp; b < blocks; b += kDrawWarps) {
      double sum = 0;
      for (int i = lane; i < kDrawBlock; i += kWarp)
        sum += double(power(row, int64_t{b} * kDrawBlock + i, vocab, all.max, scale));
      sum = warp_sum(sum);
      if (lane == 0) sums[b] = sum;
    }
    __syncthreads();
    if (warp == 0) {
      double total = 0, sum = 0, before = 0;
      for (int b = 0; b < blocks; ++b) total += sums[b];
      // The block of the token; the last with a token that can come, where rounding leaves none.
      const double aim = draw.u * total;
      int block = 0;
      for (int b = 0; b < blocks && sum <= aim; ++b) {
        if (sums[b] > 0) block = b, before = sum;
        sum += sums[b];
      }
      // The lane of the token, likewise, and then the token.
      const int64_t own = int64_t{block} * kDrawBlock + lane * kDrawLane;
      double mine = 0;
      for (int i = 0; i < kDrawLane; ++i) mine += double(power(row, own + i, vocab, all.max, scale));
      sum = before;
      int chosen = 0;
      for (int l = 0; l < kWarp && sum <= aim; ++l) {
        const double part = __shfl_sync(kFullWarp, mine, l);
        if (part > 0) chosen = l, before = sum;
        sum += part;
      }
      if (lane == chosen) {
        for (int i = 0; i < kDrawLane && before <= aim; ++i) {
          const float p = power(row, own + i, vocab, all.max, scale);
          before += double(p);
          if (p > 0) token = own + i;
        }
        log_total = log(total);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  const bool found = token < vocab && isfinite(all.log_sum_exp);
  const float x = found ? row[token] : 0.0f;
  if (found) {
    out = {double(token), double(-fabsf(all.log_sum_exp - x)),
           double(x - all.max) * per_temperature - log_total};
  } else {
    out = {-1, 0, 0};
  }
}

}  // namespace

cudaError_t draw_tokens(const float* logits, const TokenDraw* draws, DrawnToken* drawn, int64_t rows,
                        int64_t vocab, cudaStream_t stream) {
  const size_t shared = size_t((vocab + kDrawBlock - 1) / kDrawBlock) * sizeof(double);
  return launch(draw_kernel, dim3(unsigned(rows)), kLossThreads, shared, stream, logits, draws, drawn, vocab);
}

template <class G>
cudaError_t softmax_loss(float* logits, const int32_t* targets, const float* weights, const TopOfRows& top,
                         const StepArgs* args, float* row_loss, int64_t rows, int64_t vocab, int64_t stride,
                         float softcap, bool gradients, cudaStream_t stream) {
  return launch(softmax_loss_kernel<G>, dim3(unsigned(rows)), kLossThreads, size_t(top.count) * sizeof(float),
                stream, logits, targets, weights, top, args, row_loss, vocab, stride, softcap, gradients);
}

template cudaError_t softmax_loss<bf16>(float*, const int32_t*, const float*, const TopOfRows&,
                                        const StepArgs*, float*, int64_t, int64_t, int64_t, float, bool,
                                        cudaStream_t);
template cudaError_t softmax_loss<float>(float*, const int32_t*, const float*, const TopOfRows&,
                                         const StepArgs*, float*, int64_t, int64_t, int64_t, float, bool,
                                         cudaStream_t);

cudaError_t sum_loss(const float* row_loss, const float* weights, double* loss, int64_t rows, bool accumulate,
                     cudaStream_t stream) {
  return launch(sum_loss_kernel, dim3(1), kSumThreads, 0, stream, row_loss, weights, loss, rows, accumulate);
}

cudaError_t token_losses(const float* row_loss, const float* weights, double* loss, int64_t rows,
                         cudaStream_t stream) {
  return launch(token_losses_kernel, dim3(blocks_for(rows, kLossThreads)), kLossThreads, 0, stream, row_loss,
                weights, loss, rows);
}

cudaError_t log_probs(const float* row_loss, float* out, int64_t rows, cudaStream_t stream) {
  return launch(log_probs_kernel, dim3(blocks_for(rows, kLossThreads)), kLossThreads, 0, stream, row_loss,
                out, rows);
}

}  // namespace sluice::core::cuda
