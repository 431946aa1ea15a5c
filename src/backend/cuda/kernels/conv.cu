// SPDX-License-Identifier: Apache-2.0
// Short convolutions (ops/conv.h). A thread has eight channels of a run of tokens, and their weights in
// registers. What a token's neighbours give is computed again for each: they are in the cache.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {
namespace {

constexpr int kConvThreads = 128;
constexpr int kRun = 16;  // tokens of a thread
constexpr int kTaps = 8;  // the widest

struct Channels {
  float taps[kTaps][kVec];  // by how many tokens back they are for

  template <class T>
  __device__ Channels(const T* w, int width, int64_t channel) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      for (int i = 0; i < kVec; ++i)
        taps[j][i] = j < width ? to_float(w[(channel + i) * width + width - 1 - j]) : 0.0f;
    }
  }
};

// The convolved input of eight channels of a row: as it is, or B X, rounded as it is stored.
template <bool kSilu, class T>
__device__ void convolved_input(const T* row, int64_t dim, float (&u)[kVec]) {
  load8(row, u);
  if constexpr (!kSilu) {
    float x[kVec];
    load8(row + 2 * dim, x);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      T stored;
      store_float(&stored, u[i] * x[i]);
      u[i] = to_float(stored);
    }
  }
}

template <bool kSilu>
__device__ int64_t columns_of(int64_t dim) {
  return kSilu ? dim : 3 * dim;
}

template <bool kSilu, class T>
__device__ void input_at(const ConvBlock<T>& b, int64_t t, int64_t channel, float (&u)[kVec]) {
  if (t < 0) {
    load8(b.before + (t + b.width - 1) * b.dim + channel, u);
  } else {
    convolved_input<kSilu>(b.bcx + t * columns_of<kSilu>(b.dim) + channel, b.dim, u);
  }
}

// How many tokens before t count for it.
template <class T>
__device__ int seen(const ConvBlock<T>& b, int64_t t) {
  const int most = min(int(b.width) - 1, b.pos[t]);
  return b.before == nullptr ? int(min(int64_t{most}, t)) : most;
}

// sum = what the taps make of token t and those before it.
template <bool kSilu, class T>
__device__ void convolved(const ConvBlock<T>& b, const Channels& channels, int64_t t, int64_t channel,
                          float (&sum)[kVec]) {
  const int count = seen(b, t);
#pragma unroll
  for (int i = 0; i < kVec; ++i) sum[i] = 0;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    if (j > count) continue;
    float u[kVec];
    input_at<kSilu>(b, t - j, channel, u);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] += channels.taps[j][i] * u[i];
  }
}

__device__ float sigmoid_of(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

// What the sum is multiplied with: C, or its own sigmoid.
template <bool kSilu, class T>
__device__ void gate_at(const T* row, int64_t dim, const float (&sum)[kVec], float (&gate)[kVec]) {
  if constexpr (kSilu) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) gate[i] = sigmoid_of(sum[i]);
  } else {
    load8(row + dim, gate);
  }
}

template <bool kSilu, class T>
__global__ void conv_kernel(ConvBlock<T> b, T* y, T* tail) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Channels channels(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * kRun, end = min(first + kRun, b.tokens);
  const int64_t tail_begin = b.tokens - (b.width - 1);
  for (int64_t t = first; t < end; ++t) {
    float sum[kVec], gate[kVec];
    convolved<kSilu>(b, channels, t, channel, sum);
    gate_at<kSilu>(b.bcx + t * columns_of<kSilu>(b.dim) + channel, b.dim, sum, gate);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] *= gate[i];
    store8(y + t * b.dim + channel, sum);
    if (tail == nullptr || t < tail_begin) continue;
    input_at<kSilu>(b, t, channel, sum);
    store8(tail + (t - tail_begin) * b.dim + channel, sum);
  }
}

// The gradient of token t's sum: dy C, or dy times the slope of SiLU.
template <bool kSilu, class T>
__device__ void sum_gradient(const ConvBlock<T>& b, const Channels& channels, const T* dy, int64_t t,
                             int64_t channel, float (&dsum)[kVec]) {
  float sum[kVec], gate[kVec];
  load8(dy + t * b.dim + channel, dsum);
  if (kSilu) convolved<kSilu>(b, channels, t, channel, sum);
  gate_at<kSilu>(b.bcx + t * columns_of<kSilu>(b.dim) + channel, b.dim, sum, gate);
#pragma unroll
  for (int i = 0; i < kVec; ++i) dsum[i] *= kSilu ? gate[i] * (1.0f + sum[i] * (1.0f - gate[i])) : gate[i];
}

// From a run's last token to its first, and to those before the chunk. What the sums of tokens behind one
// give is kept in registers.
template <bool kSilu, class T>
__global__ void conv_bwd_kernel(ConvBlock<T> b, const T* dy, T* dbcx, T* d_before, const T* d_tail) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Channels channels(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * kRun, end = min(first + kRun, b.tokens);
  const int64_t last = min(end + b.width - 1, b.tokens) - 1, columns = columns_of<kSilu>(b.dim);
  float dsums[kTaps][kVec] = {};  // of token t + j
  int counts[kTaps];              // and how many before it count
#pragma unroll
  for (int j = 0; j < kTaps; ++j) counts[j] = -1;
  for (int64_t t = last; t >= (first == 0 && d_before != nullptr ? 1 - b.width : first); --t) {
#pragma unroll
    for (int j = kTaps - 1; j > 0; --j) {
      counts[j] = counts[j - 1];
#pragma unroll
      for (int i = 0; i < kVec; ++i) dsums[j][i] = dsums[j - 1][i];
    }
    counts[0] = -1;
    if (t >= 0) {
      counts[0] = seen(b, t);
      sum_gradient<kSilu>(b, channels, dy, t, channel, dsums[0]);
    }
    if (t >= end) continue;
    float du[kVec] = {};
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j >= b.width || j > counts[j]) continue;
#pragma unroll
      for (int i = 0; i < kVec; ++i) du[i] += channels.taps[j][i] * dsums[j][i];
    }
    if (t < 0) {
      store8(d_before + (t + b.width - 1) * b.dim + channel, du);
      continue;
    }
    float x[kVec];
    const int64_t in_tail = t - (b.tokens - (b.width - 1));
    if (d_tail != nullptr && in_tail >= 0) {
      load8(d_tail + in_tail * b.dim + channel, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) du[i] += x[i];
    }
    T* to = dbcx + t * columns + channel;
    if constexpr (kSilu) {
      store8(to, du);
    } else {
      float sum[kVec], dc[kVec];
      convolved<kSilu>(b, channels, t, channel, sum);
      load8(dy + t * b.dim + channel, dc);
#pragma unroll
      for (int i = 0; i < kVec; ++i) dc[i] *= sum[i];
      store8(to + b.dim, dc);
      const T* row = b.bcx + t * columns + channel;
      load8(row + 2 * b.dim, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[i] *= du[i];
      store8(to, x);
      load8(row, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[i] *= du[i];
      store8(to + 2 * b.dim, x);
    }
  }
}

// Partial sums of dw, [parts, dim, width]: one column of blocks per part of the tokens.
template <bool kSilu, class T>
__global__ void conv_dw_kernel(ConvBlock<T> b, const T* dy, float* partials, int64_t tokens_of_part) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Channels channels(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * tokens_of_part, end = min(first + tokens_of_part, b.tokens);
  float dw[kTaps][kVec] = {};
  for (int64_t t = first; t < end; ++t) {
    float dsum[kVec];
    sum_gradient<kSilu>(b, channels, dy, t, channel, dsum);
    const int count = seen(b, t);
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j > count) continue;
      float u[kVec];
      input_at<kSilu>(b, t - j, channel, u);
#pragma unroll
      for (int i = 0; i < kVec; ++i) dw[j][i] += dsum[i] * u[i];
    }
  }
  float* to = partials + (int64_t{blockIdx.x} * b.dim + channel) * b.width;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    if (j >= b.width) continue;
    for (int i = 0; i < kVec; ++i) to[i * b.width + b.width - 1 - j] = dw[j][i];
  }
}

// One thread per eight channels of a text.
template <bool kSilu, class T>
__global__ void cached_conv_kernel(CachedConvBlock<T> b) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const int64_t row = blockIdx.x, slots = b.width - 1, held = b.spans[2 * row];
  const int64_t columns = columns_of<kSilu>(b.dim);
  const int64_t asked = b.spans[2 * row + 1], count = asked < 0 ? 0 : asked > b.q_len ? b.q_len : asked;
  const Channels channels(b.w, int(b.width), channel);
  const T* bcx = b.bcx + row * b.q_len * columns + channel;
  T* cache = b.cache + row * slots * b.dim + channel;
  // The input of new token i, or, if i is negative, of one before it.
  const auto input = [&](int64_t i, float(&u)[kVec]) {
    if (i < 0) {
      load8(cache + (i + slots) * b.dim, u);
    } else {
      convolved_input<kSilu>(bcx + i * columns, b.dim, u);
    }
  };
  for (int64_t i = 0; i < b.q_len; ++i) {
    float sum[kVec] = {}, u[kVec];
    if (i < count) {
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (j >= b.width || j > held + i) continue;
        input(i - j, u);
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum[k] += channels.taps[j][k] * u[k];
      }
      gate_at<kSilu>(bcx + i * columns, b.dim, sum, u);
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum[k] *= u[k];
    }
    store8(b.y + (row * b.q_len + i) * b.dim + channel, sum);
  }
  // Those that stay move towards the first slot, which is read before it is written.
  for (int64_t slot = 0; slot < slots; ++slot) {
    float u[kVec];
    input(count - slots + slot, u);
    store8(cache + slot * b.dim, u);
  }
}

// Runs of tokens come first: of these there may be more than a grid has rows.
dim3 grid_of(int64_t dim, int64_t runs) {
  return dim3(unsigned(runs), blocks_for(dim / kVec, kConvThreads));
}

template <class... Args>
cudaError_t launch_conv(void (*silu)(Args...), void (*gated)(Args...), bool is_silu, dim3 grid,
                        cudaStream_t stream, Args... args) {
  return launch(is_silu ? silu : gated, grid, kConvThreads, 0, stream, args...);
}

}  // namespace

template <class T>
cudaError_t short_conv(const ConvBlock<T>& b, T* y, T* tail, cudaStream_t stream) {
  return launch_conv(conv_kernel<true, T>, conv_kernel<false, T>, b.silu,
                     grid_of(b.dim, blocks_for(b.tokens, kRun)), stream, b, y, tail);
}

template <class T, class G>
cudaError_t short_conv_bwd(const ConvBlock<T>& b, const T* dy, T* dbcx, G* dw, T* d_before, const T* d_tail,
                           void* workspace, bool accumulate, cudaStream_t stream) {
  const auto status =
      launch_conv(conv_bwd_kernel<true, T>, conv_bwd_kernel<false, T>, b.silu,
                  grid_of(b.dim, blocks_for(b.tokens, kRun)), stream, b, dy, dbcx, d_before, d_tail);
  if (status != cudaSuccess) return status;
  const int64_t parts = conv_partials(b.tokens), tokens = (b.tokens + parts - 1) / parts;
  auto* partials = static_cast<float*>(workspace);
  const auto summed = launch_conv(conv_dw_kernel<true, T>, conv_dw_kernel<false, T>, b.silu,
                                  grid_of(b.dim, parts), stream, b, dy, partials, tokens);
  if (summed != cudaSuccess) return summed;
  return sum_partials(partials, dw, parts, b.dim * b.width, accumulate, stream);
}

template <class T>
cudaError_t cached_conv(const CachedConvBlock<T>& b, cudaStream_t stream) {
  return launch_conv(cached_conv_kernel<true, T>, cached_conv_kernel<false, T>, b.silu,
                     grid_of(b.dim, b.rows), stream, b);
}

#define SLUICE_CONV(T)                                                                                      \
  template cudaError_t short_conv(const ConvBlock<T>&, T*, T*, cudaStream_t);                               \
  template cudaError_t short_conv_bwd(const ConvBlock<T>&, const T*, T*, float*, T*, const T*, void*, bool, \
                                      cudaStream_t);                                                        \
  template cudaError_t cached_conv(const CachedConvBlock<T>&, cudaStream_t)
SLUICE_CONV(bf16);
SLUICE_CONV(float);
#undef SLUICE_CONV
template cudaError_t short_conv_bwd(const ConvBlock<bf16>&, const bf16*, bf16*, bf16*, bf16*, const bf16*,
                                    void*, bool, cudaStream_t);

}  // namespace sluice::core::cuda
