// SPDX-License-Identifier: Apache-2.0
// Double-gated short convolution (ops/conv.h). A thread has eight channels of a run of tokens, and their
// weights in registers. What a token's neighbours give is computed again for each: they are in the cache.
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

  __device__ Channels(const bf16* w, int width, int64_t channel) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      for (int i = 0; i < kVec; ++i)
        taps[j][i] = j < width ? to_float(w[(channel + i) * width + width - 1 - j]) : 0.0f;
    }
  }
};

// B X of eight channels of a row, rounded as it is stored.
__device__ void gated_input(const bf16* row, int64_t dim, float (&u)[kVec]) {
  float x[kVec];
  load8(row, u);
  load8(row + 2 * dim, x);
#pragma unroll
  for (int i = 0; i < kVec; ++i) u[i] = __bfloat162float(__float2bfloat16(u[i] * x[i]));
}

__device__ void input_at(const ConvBlock<bf16>& b, int64_t t, int64_t channel, float (&u)[kVec]) {
  if (t < 0) {
    load8(b.before + (t + b.width - 1) * b.dim + channel, u);
  } else {
    gated_input(b.x + t * 3 * b.dim + channel, b.dim, u);
  }
}

// How many tokens before t count for it.
__device__ int seen(const ConvBlock<bf16>& b, int64_t t) {
  const int most = min(int(b.width) - 1, b.pos[t]);
  return b.before == nullptr ? int(min(int64_t{most}, t)) : most;
}

// Calls tap(j, u) for every tap that counts for token t, with the input that it is for.
template <class F>
__device__ void for_each_tap(const ConvBlock<bf16>& b, int64_t t, int64_t channel, F&& tap) {
  const int count = seen(b, t);
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    if (j > count) continue;
    float u[kVec];
    input_at(b, t - j, channel, u);
    tap(j, u);
  }
}

// sum = what the taps make of token t and those before it.
__device__ void convolved(const ConvBlock<bf16>& b, const Channels& channels, int64_t t, int64_t channel,
                          float (&sum)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) sum[i] = 0;
  for_each_tap(b, t, channel, [&](int j, const float(&u)[kVec]) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] += channels.taps[j][i] * u[i];
  });
}

__global__ void conv_kernel(ConvBlock<bf16> b, bf16* y, bf16* tail) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Channels channels(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * kRun, end = min(first + kRun, b.tokens);
  const int64_t tail_begin = b.tokens - (b.width - 1);
  for (int64_t t = first; t < end; ++t) {
    float sum[kVec], c[kVec];
    convolved(b, channels, t, channel, sum);
    load8(b.x + (t * 3 + 1) * b.dim + channel, c);
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] *= c[i];
    store8(y + t * b.dim + channel, sum);
    if (tail == nullptr || t < tail_begin) continue;
    input_at(b, t, channel, sum);
    store8(tail + (t - tail_begin) * b.dim + channel, sum);
  }
}

// The gradient of token t's sum.
__device__ void sum_gradient(const ConvBlock<bf16>& b, const bf16* dy, int64_t t, int64_t channel,
                             float (&dsum)[kVec]) {
  float c[kVec];
  load8(dy + t * b.dim + channel, dsum);
  load8(b.x + (t * 3 + 1) * b.dim + channel, c);
#pragma unroll
  for (int i = 0; i < kVec; ++i) dsum[i] *= c[i];
}

// du = that of the input of token s, which may lie before the first.
__device__ void input_gradient(const ConvBlock<bf16>& b, const Channels& channels, const bf16* dy, int64_t s,
                               int64_t channel, float (&du)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) du[i] = 0;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    const int64_t t = s + j;
    if (j >= b.width || t < 0 || t >= b.tokens || j > seen(b, t)) continue;
    float dsum[kVec];
    sum_gradient(b, dy, t, channel, dsum);
#pragma unroll
    for (int i = 0; i < kVec; ++i) du[i] += channels.taps[j][i] * dsum[i];
  }
}

// One column of blocks per run of tokens; the first also makes the gradient of what came before.
__global__ void conv_bwd_kernel(ConvBlock<bf16> b, const bf16* dy, bf16* dbcx, bf16* d_before,
                                const bf16* d_tail) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const Channels channels(b.w, int(b.width), channel);
  const int64_t first = int64_t{blockIdx.x} * kRun, end = min(first + kRun, b.tokens);
  float du[kVec];
  if (first == 0 && d_before != nullptr) {
    for (int64_t s = 1 - b.width; s < 0; ++s) {
      input_gradient(b, channels, dy, s, channel, du);
      store8(d_before + (s + b.width - 1) * b.dim + channel, du);
    }
  }
  for (int64_t t = first; t < end; ++t) {
    float sum[kVec], dc[kVec], x[kVec];
    convolved(b, channels, t, channel, sum);
    load8(dy + t * b.dim + channel, dc);
#pragma unroll
    for (int i = 0; i < kVec; ++i) dc[i] *= sum[i];
    const bf16* row = b.x + t * 3 * b.dim + channel;
    bf16* to = dbcx + t * 3 * b.dim + channel;
    store8(to + b.dim, dc);
    input_gradient(b, channels, dy, t, channel, du);
    const int64_t in_tail = t - (b.tokens - (b.width - 1));
    if (d_tail != nullptr && in_tail >= 0) {
      load8(d_tail + in_tail * b.dim + channel, x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) du[i] += x[i];
    }
    float db[kVec];
    load8(row + 2 * b.dim, x);
#pragma unroll
    for (int i = 0; i < kVec; ++i) db[i] = du[i] * x[i];
    store8(to, db);
    load8(row, x);
#pragma unroll
    for (int i = 0; i < kVec; ++i) db[i] = du[i] * x[i];
    store8(to + 2 * b.dim, db);
  }
}

// Partial sums of dw, [parts, dim, width]: one column of blocks per part of the tokens.
__global__ void conv_dw_kernel(ConvBlock<bf16> b, const bf16* dy, float* partials, int64_t tokens_of_part) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const int64_t first = int64_t{blockIdx.x} * tokens_of_part, end = min(first + tokens_of_part, b.tokens);
  float dw[kTaps][kVec] = {};
  for (int64_t t = first; t < end; ++t) {
    float dsum[kVec];
    sum_gradient(b, dy, t, channel, dsum);
    for_each_tap(b, t, channel, [&](int j, const float(&u)[kVec]) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) dw[j][i] += dsum[i] * u[i];
    });
  }
  float* to = partials + (int64_t{blockIdx.x} * b.dim + channel) * b.width;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    if (j >= b.width) continue;
    for (int i = 0; i < kVec; ++i) to[i * b.width + b.width - 1 - j] = dw[j][i];
  }
}

// One thread per eight channels of a text.
__global__ void cached_conv_kernel(CachedConvBlock<bf16> b) {
  const int64_t channel = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVec;
  if (channel >= b.dim) return;
  const int64_t row = blockIdx.x, slots = b.width - 1, held = b.spans[2 * row];
  const int64_t asked = b.spans[2 * row + 1], count = asked < 0 ? 0 : asked > b.q_len ? b.q_len : asked;
  const Channels channels(b.w, int(b.width), channel);
  const bf16* bcx = b.x + row * b.q_len * 3 * b.dim + channel;
  bf16* cache = b.cache + (b.slots != nullptr ? b.slots[row] : row) * slots * b.dim + channel;
  // The input of new token i, or, if i is negative, of one before it.
  const auto input = [&](int64_t i, float(&u)[kVec]) {
    if (i < 0) {
      load8(cache + (i + slots) * b.dim, u);
    } else {
      gated_input(bcx + i * 3 * b.dim, b.dim, u);
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
      load8(bcx + (i * 3 + 1) * b.dim, u);
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum[k] *= u[k];
    }
    store8(b.y + (row * b.q_len + i) * b.dim + channel, sum);
  }
  // Those that stay move towards the first slot, which is read before it is written.
  for (int64_t slot = 0; slot < slots && count > 0; ++slot) {
    float u[kVec];
    input(count - slots + slot, u);
    store8(cache + slot * b.dim, u);
  }
}

// Runs of tokens come first: of these there may be more than a grid has rows.
dim3 grid_of(int64_t dim, int64_t runs) {
  return dim3(unsigned(runs), blocks_for(dim / kVec, kConvThreads));
}

}  // namespace

cudaError_t short_conv(const ConvBlock<bf16>& block, bf16* y, bf16* tail, cudaStream_t stream) {
  return launch(conv_kernel, grid_of(block.dim, blocks_for(block.tokens, kRun)), kConvThreads, 0, stream,
                block, y, tail);
}

template <class G>
cudaError_t short_conv_bwd(const ConvBlock<bf16>& block, const bf16* dy, bf16* dbcx, G* dw, bf16* d_before,
                           const bf16* d_tail, void* workspace, bool accumulate, cudaStream_t stream) {
  const auto status = launch(conv_bwd_kernel, grid_of(block.dim, blocks_for(block.tokens, kRun)),
                             kConvThreads, 0, stream, block, dy, dbcx, d_before, d_tail);
  if (status != cudaSuccess) return status;
  const int64_t parts = conv_partials(block.tokens), tokens = (block.tokens + parts - 1) / parts;
  auto* partials = static_cast<float*>(workspace);
  const auto summed =
      launch(conv_dw_kernel, grid_of(block.dim, parts), kConvThreads, 0, stream, block, dy, partials, tokens);
  if (summed != cudaSuccess) return summed;
  return sum_partials(partials, dw, parts, block.dim * block.width, accumulate, stream);
}

template cudaError_t short_conv_bwd(const ConvBlock<bf16>&, const bf16*, bf16*, float*, bf16*, const bf16*,
                                    void*, bool, cudaStream_t);
template cudaError_t short_conv_bwd(const ConvBlock<bf16>&, const bf16*, bf16*, bf16*, bf16*, const bf16*,
                                    void*, bool, cudaStream_t);

cudaError_t cached_conv(const CachedConvBlock<bf16>& block, cudaStream_t stream) {
  return launch(cached_conv_kernel, grid_of(block.dim, block.rows), kConvThreads, 0, stream, block);
}

}  // namespace sluice::core::cuda
