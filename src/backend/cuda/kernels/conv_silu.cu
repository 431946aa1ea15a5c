// SPDX-License-Identifier: Apache-2.0
// Convolutions with SiLU (ops/conv.h). A thread goes over a run of tokens with eight channels. Its registers
// hold their weights, the inputs that the next tokens need and, backwards, what their sums give. So every row
// is read once. Rows are loaded some tokens before they are needed. Of dw each run makes a partial
// sum.
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/vec.cuh"
#include "ops/gpu_partials.h"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRun = 64;   // tokens of a thread, forward
constexpr int kAhead = 4;  // tokens whose rows are on their way

// Rows of eight channels by how many tokens back they are; W: the width, or more.
template <int W>
struct Rows {
  float x[W][kVec];

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < W; ++j) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[j][i] = 0;
    }
  }
  // To the next token, whose row is to be set.
  __device__ void shift() {
#pragma unroll
    for (int j = W - 1; j > 0; --j) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[j][i] = x[j - 1][i];
    }
  }
};

template <int W, class T>
__device__ Rows<W> load_taps(const T* w, int width, int64_t channel) {
  Rows<W> taps;
#pragma unroll
  for (int j = 0; j < W; ++j) {
#pragma unroll
    for (int i = 0; i < kVec; ++i)
      taps.x[j][i] = j < width ? to_float(w[(channel + i) * width + width - 1 - j]) : 0.0f;
  }
  return taps;
}

__device__ float sigmoid_of(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

// How many tokens before t count for it.
template <class T>
__device__ int seen(const ConvBlock<T>& b, int64_t t) {
  const int most = min(int(b.width) - 1, b.pos[t]);
  return b.before == nullptr ? int(min(int64_t{most}, t)) : most;
}

// Rows of a tensor of the tokens from t on, as they lie in memory.
template <class T>
class RowsAhead {
 public:
  __device__ RowsAhead(const T* from, int64_t stride, int64_t tokens)
      : from_(from), stride_(stride), tokens_(tokens) {}
  // The row of token t comes to `slot`; 0 behind the last.
  __device__ void load(int slot, int64_t t) {
    rows_[slot] = t < tokens_ ? Vec8<T>::load(from_ + t * stride_) : Vec8<T>{};
  }
  __device__ void take(int slot, float (&x)[kVec]) const { rows_[slot].unpack(x); }

 private:
  const T* from_;
  int64_t stride_, tokens_;
  Vec8<T> rows_[kAhead];
};

// The input of a token, which may lie before the first; 0 where there is none.
template <class T>
__device__ void input_at(const ConvBlock<T>& b, int64_t t, int64_t channel, float (&u)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) u[i] = 0;
  if (t >= 0) {
    if (t < b.tokens) load8(b.x + t * b.dim + channel, u);
  } else if (b.before != nullptr && t + b.width > 0) {
    load8(b.before + (t + b.width - 1) * b.dim + channel, u);
  }
}

template <int W>
__device__ void convolve(const Rows<W>& taps, const Rows<W>& inputs, int count, float (&sum)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) sum[i] = 0;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    if (j > count) continue;
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] += taps.x[j][i] * inputs.x[j][i];
  }
}

// The inputs before token `first`, each where that of the token before it has them.
template <int W, class T>
__device__ void load_before(const ConvBlock<T>& b, int64_t first, int64_t channel, Rows<W>& inputs) {
#pragma unroll
  for (int j = 0; j < W; ++j) input_at(b, first - 1 - j, channel, inputs.x[j]);
}

template <int W, class T>
__global__ void __launch_bounds__(kThreads) silu_conv_kernel(ConvBlock<T> b, T* y, T* tail) {
  const int64_t channel = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Rows<W> taps = load_taps<W>(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * kRun, end = min(first + kRun, b.tokens);
  const int64_t tail_begin = b.tokens - (b.width - 1);
  Rows<W> inputs;
  load_before(b, first, channel, inputs);
  RowsAhead<T> ahead(b.x + channel, b.dim, end);
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) ahead.load(slot, first + slot);
  for (int64_t step = first; step < end; step += kAhead) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      const int64_t t = step + slot;
      if (t >= end) break;
      inputs.shift();
      ahead.take(slot, inputs.x[0]);
      ahead.load(slot, t + kAhead);
      float sum[kVec];
      convolve(taps, inputs, seen(b, t), sum);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum[i] *= sigmoid_of(sum[i]);
      store8(y + t * b.dim + channel, sum);
      if (tail != nullptr && t >= tail_begin) store8(tail + (t - tail_begin) * b.dim + channel, inputs.x[0]);
    }
  }
}

// A run makes dx of its tokens, for which it goes over those behind it that count them, and dw of its
// tokens' sums, [runs, dim, width]. The first also makes the gradient of what came before.
template <int W, class T>
__global__ void __launch_bounds__(kThreads)
    silu_conv_bwd_kernel(ConvBlock<T> b, const T* dy, T* dx, float* partials, T* d_before, const T* d_tail,
                         int64_t tokens_of_run) {
  const int64_t channel = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const int width = int(b.width);
  const Rows<W> taps = load_taps<W>(b.w, width, channel);
  const int64_t first = int64_t{blockIdx.x} * tokens_of_run, end = min(first + tokens_of_run, b.tokens);
  Rows<W> inputs, dsums, dw;
  int counts[W];
  load_before(b, first, channel, inputs);
  dsums.clear(), dw.clear();
#pragma unroll
  for (int j = 0; j < W; ++j) counts[j] = -1;
  const int64_t last = min(end + W - 1, b.tokens);
  RowsAhead<T> x_ahead(b.x + channel, b.dim, last), dy_ahead(dy + channel, b.dim, last);
  // The gradient of the input of token s; the newest sum is that of the last token that may count it.
  const auto finish = [&](int64_t s) {
    if (s < first && (first > 0 || d_before == nullptr || s + width <= 0)) return;
    float du[kVec] = {};
#pragma unroll
    for (int j = 0; j < W; ++j) {
      if (j > counts[W - 1 - j]) continue;
#pragma unroll
      for (int i = 0; i < kVec; ++i) du[i] += taps.x[j][i] * dsums.x[W - 1 - j][i];
    }
    if (s < 0) return store8(d_before + (s + width - 1) * b.dim + channel, du);
    const int64_t in_tail = s - (b.tokens - (width - 1));
    if (d_tail != nullptr && in_tail >= 0) {
      float x[kVec];
      load8(d_tail + in_tail * b.dim + channel, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) du[i] += x[i];
    }
    store8(dx + s * b.dim + channel, du);
  };
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot)
    x_ahead.load(slot, first + slot), dy_ahead.load(slot, first + slot);
  for (int64_t step = first; step < end + W - 1; step += kAhead) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      const int64_t t = step + slot;
      if (t >= end + W - 1) break;
      inputs.shift(), dsums.shift();
#pragma unroll
      for (int j = W - 1; j > 0; --j) counts[j] = counts[j - 1];
      counts[0] = t < b.tokens ? seen(b, t) : -1;
      float given[kVec], sum[kVec];
      x_ahead.take(slot, inputs.x[0]);
      dy_ahead.take(slot, given);
      x_ahead.load(slot, t + kAhead), dy_ahead.load(slot, t + kAhead);
      convolve(taps, inputs, counts[0], sum);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const float gate = sigmoid_of(sum[i]);
        dsums.x[0][i] = given[i] * gate * (1.0f + sum[i] * (1.0f - gate));
      }
      if (t < end) {
#pragma unroll
        for (int j = 0; j < W; ++j) {
          if (j > counts[0]) continue;
#pragma unroll
          for (int i = 0; i < kVec; ++i) dw.x[j][i] += dsums.x[0][i] * inputs.x[j][i];
        }
      }
      finish(t - (W - 1));
    }
  }
  float* const to = partials + (int64_t{blockIdx.x} * b.dim + channel) * width;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    if (j >= width) continue;
#pragma unroll
    for (int i = 0; i < kVec; ++i) to[i * width + width - 1 - j] = dw.x[j][i];
  }
}

// One thread per eight channels of a text.
template <int W, class T>
__global__ void cached_silu_conv_kernel(CachedConvBlock<T> b) {
  const int64_t channel = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const int64_t row = blockIdx.x, slots = b.width - 1, held = b.spans[2 * row];
  const int64_t count = min(max(int64_t{b.spans[2 * row + 1]}, int64_t{0}), b.q_len);
  const Rows<W> taps = load_taps<W>(b.w, int(b.width), channel);
  const T* const x = b.x + row * b.q_len * b.dim + channel;
  T* const cache = b.cache + (b.slots != nullptr ? b.slots[row] : row) * slots * b.dim + channel;
  T* const y = b.y + row * b.q_len * b.dim + channel;
  Rows<W> inputs;
  inputs.clear();
#pragma unroll
  for (int j = 0; j < W; ++j) {
    if (j < slots) load8(cache + (slots - 1 - j) * b.dim, inputs.x[j]);
  }
  for (int64_t t = 0; t < count; ++t) {
    inputs.shift();
    load8(x + t * b.dim, inputs.x[0]);
    float sum[kVec];
    convolve(taps, inputs, int(min(slots, held + t)), sum);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] *= sigmoid_of(sum[i]);
    store8(y + t * b.dim, sum);
  }
#pragma unroll
  for (int j = 0; j < W; ++j) {
    if (j < slots && count > 0) store8(cache + (slots - 1 - j) * b.dim, inputs.x[j]);
  }
  const float none[kVec] = {};
  for (int64_t t = count; t < b.q_len; ++t) store8(y + t * b.dim, none);
}

// Runs of tokens come first: of these there may be more than a grid has rows.
dim3 grid_of(int64_t dim, int64_t runs) {
  return dim3(unsigned(runs), blocks_for(dim / kVec, kThreads));
}

template <class F>
cudaError_t with_width(int64_t width, F f) {
  return width <= 4 ? f(std::integral_constant<int, 4>{}) : f(std::integral_constant<int, 8>{});
}

}  // namespace

template <class T>
cudaError_t silu_conv(const ConvBlock<T>& b, T* y, T* tail, cudaStream_t stream) {
  return with_width(b.width, [&](auto width) {
    return launch(silu_conv_kernel<decltype(width)::value, T>, grid_of(b.dim, blocks_for(b.tokens, kRun)),
                  kThreads, 0, stream, b, y, tail);
  });
}

template <class T, class G>
cudaError_t silu_conv_bwd(const ConvBlock<T>& b, const T* dy, T* dx, G* dw, T* d_before, const T* d_tail,
                          void* workspace, bool accumulate, cudaStream_t stream) {
  const int64_t parts = silu_conv_partials(b.tokens), each = (b.tokens + parts - 1) / parts;
  auto* const partials = static_cast<float*>(workspace);
  const auto status = with_width(b.width, [&](auto width) {
    return launch(silu_conv_bwd_kernel<decltype(width)::value, T>, grid_of(b.dim, parts), kThreads, 0, stream,
                  b, dy, dx, partials, d_before, d_tail, each);
  });
  if (status != cudaSuccess) return status;
  return sum_partials(partials, dw, parts, b.dim * b.width, accumulate, stream);
}

template <class T>
cudaError_t cached_silu_conv(const CachedConvBlock<T>& b, cudaStream_t stream) {
  return with_width(b.width, [&](auto width) {
    return launch(cached_silu_conv_kernel<decltype(width)::value, T>, grid_of(b.dim, b.rows), kThreads, 0,
                  stream, b);
  });
}

template cudaError_t silu_conv(const ConvBlock<bf16>&, bf16*, bf16*, cudaStream_t);
template cudaError_t silu_conv(const ConvBlock<float>&, float*, float*, cudaStream_t);
template cudaError_t silu_conv_bwd(const ConvBlock<bf16>&, const bf16*, bf16*, bf16*, bf16*, const bf16*,
                                   void*, bool, cudaStream_t);
template cudaError_t silu_conv_bwd(const ConvBlock<bf16>&, const bf16*, bf16*, float*, bf16*, const bf16*,
                                   void*, bool, cudaStream_t);
template cudaError_t silu_conv_bwd(const ConvBlock<float>&, const float*, float*, float*, float*,
                                   const float*, void*, bool, cudaStream_t);
template cudaError_t cached_silu_conv(const CachedConvBlock<bf16>&, cudaStream_t);
template cudaError_t cached_silu_conv(const CachedConvBlock<float>&, cudaStream_t);

}  // namespace sluice::core::cuda
