// SPDX-License-Identifier: Apache-2.0
// RMSNorm of every head and its rotation, forward and backward: one pass over memory each.
//
// A group of lanes of one warp takes a head; a lane holds W pairs of elements that are rotated together.
// Heads behind these may be normalised alone (HeadShape), each by a group of its own; backward a head that is
// read twice gathers both gradients in its group.
//
// Backward, with g the gradient rotated back and r = 1/sqrt(mean(x^2) + eps):
//   dx = r * (v * g) - x * r^3 / head_dim * sum(v * g * x), with v = offset + w
//   dw = sum over rows and heads of g * x * r
// Each of a fixed number of blocks sums dw over its rows, a second kernel adds the blocks in order. The
// number is the same on every GPU so that the bits are too.
//
// Where all heads are one row, a block goes over them twice: for the sums, and with them. Each thread meets
// the same heads in every row, so that it sums their dw in the block's memory by itself.
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/partial_sums.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/rotation.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void load4(const bf16* p, float* x) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p);
  x[0] = low_half(raw.x), x[1] = high_half(raw.x), x[2] = low_half(raw.y), x[3] = high_half(raw.y);
}
__device__ void load4(const float* p, float* x) {
  const float4 raw = *reinterpret_cast<const float4*>(p);
  x[0] = raw.x, x[1] = raw.y, x[2] = raw.z, x[3] = raw.w;
}

// W pairs of one head: elements i to i + W and those `half` further on.
template <int W>
struct Pairs {
  float low[W], high[W];

  template <class T>
  __device__ void load(const T* head, int i, int half) {
    if constexpr (W == kVec) {
      load8(head + i, low);
      load8(head + i + half, high);
    } else {
      load4(head + i, low);
      load4(head + i + half, high);
    }
  }
  __device__ void store(bf16* head, int i, int half) const {
    if constexpr (W == kVec) {
      store8(head + i, low);
      store8(head + i + half, high);
    } else {
      *reinterpret_cast<uint2*>(head + i) = make_uint2(pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]));
      *reinterpret_cast<uint2*>(head + i + half) =
          make_uint2(pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3]));
    }
  }
  __device__ void rotate(const Rotation& rotation, int i) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float a = low[j], b = high[j], cos = rotation.cos[i + j], sin = rotation.sin[i + j];
      low[j] = a * cos - b * sin;
      high[j] = b * cos + a * sin;
    }
  }
};

// Every lane of a group of kLanes receives the sum over the group.
template <int kLanes>
__device__ float group_sum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

// Calls body(head, whether there is such a head) for heads as they fall to the group of this thread; all
// threads of a warp call it equally often.
template <int kLanes, class Body>
__device__ void for_each_head(int heads, Body&& body) {
  const int groups = int(blockDim.x) / kLanes;
  for (int first = 0; first < heads; first += groups) {
    const int head = first + int(threadIdx.x) / kLanes;
    body(head, head < heads);
  }
}

__device__ float rounded(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

template <class T>
__device__ void copy_rest(const T* from, bf16* to, int64_t count) {
  for (int64_t i = int64_t{threadIdx.x} * kVec; i < count; i += int64_t{blockDim.x} * kVec) {
    float x[kVec];
    load8(from + i, x);
    store8(to + i, x);
  }
}

// Columns behind all heads.
template <class T>
__device__ void copy_rest(const T* x_row, bf16* y_row, const HeadShape& shape, bool back) {
  const int64_t x = shape.x_columns() - shape.copied, y = shape.y_columns() - shape.copied;
  copy_rest(x_row + (back ? y : x), y_row + (back ? x : y), shape.copied);
}

// Waits for what comes before, and goes to the row of this block's token.
__device__ void begin_token(Rotation& rotation, const Rotary& rotary, const HeadShape& shape, const bf16*& x,
                            bf16*& y) {
  const int64_t token = blockIdx.x;
  let_next_begin();
  await_previous();
  fill_rotation(rotation, rotary, token, shape.head_dim / 2, 1.0f);
  x += token * shape.x_columns();
  y += token * shape.y_columns();
}

template <int W, int kLanes>
__global__ void __launch_bounds__(kThreads) head_norm_rope_kernel(const bf16* x, const bf16* w, Rotary rotary,
                                                                  bf16* y, HeadShape shape, NormForm form) {
  __shared__ Rotation rotation;
  const int i = int(threadIdx.x) % kLanes * W, half = shape.head_dim / 2;
  begin_token(rotation, rotary, shape, x, y);
  const bool inside = i < half;
  const float inv_dim = 1.0f / float(2 * half);
  Pairs<W> weight{};
  if (inside) weight.load(w, i, half);
  for_each_head<kLanes>(shape.heads + shape.normed, [&](int head, bool exists) {
    const bool alone = head >= shape.heads;
    const int from = alone && shape.again ? head - shape.heads : head;
    Pairs<W> v{};
    if (inside && exists) v.load(x + int64_t{from} * 2 * half, i, half);
    float squares = 0;
#pragma unroll
    for (int j = 0; j < W; ++j) squares += v.low[j] * v.low[j] + v.high[j] * v.high[j];
    const float r = rsqrtf(group_sum<kLanes>(squares) * inv_dim + form.eps);
    if (!inside || !exists) return;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v.low[j] *= r * (alone ? 1.0f : form.offset + weight.low[j]);
      v.high[j] *= r * (alone ? 1.0f : form.offset + weight.high[j]);
    }
    if (!alone) v.rotate(rotation, i);
    v.store(y + int64_t{head} * 2 * half, i, half);
  });
  copy_rest(x, y, shape, false);
}

template <int W, int kLanes>
__global__ void __launch_bounds__(kThreads)
    whole_norm_rope_kernel(const bf16* x, const bf16* w, Rotary rotary, bf16* y, HeadShape shape,
                           NormForm form) {
  __shared__ Rotation rotation;
  __shared__ float scratch[kMaxWarps];
  const int i = int(threadIdx.x) % kLanes * W, half = shape.head_dim / 2;
  begin_token(rotation, rotary, shape, x, y);
  const bool inside = i < half;
  float squares = 0;
  for_each_head<kLanes>(shape.heads, [&](int head, bool exists) {
    if (!inside || !exists) return;
    Pairs<W> v;
    v.load(x + int64_t{head} * 2 * half, i, half);
#pragma unroll
    for (int j = 0; j < W; ++j) squares += v.low[j] * v.low[j] + v.high[j] * v.high[j];
  });
  const float r = rsqrtf(block_sum(squares, scratch) / float(shape.head_columns()) + form.eps);
  for_each_head<kLanes>(shape.heads, [&](int head, bool exists) {
    if (!inside || !exists) return;
    const int64_t at = int64_t{head} * 2 * half;
    Pairs<W> v, weight;
    v.load(x + at, i, half);
    weight.load(w + at, i, half);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v.low[j] *= r * (form.offset + weight.low[j]);
      v.high[j] *= r * (form.offset + weight.high[j]);
    }
    v.rotate(rotation, i);
    v.store(y + at, i, half);
  });
  copy_rest(x, y, shape, false);
}

template <int W, int kLanes, class D>
__global__ void __launch_bounds__(kThreads)
    head_norm_rope_bwd_kernel(const D* dy, const bf16* x, const bf16* w, Rotary rotary, bf16* dx,
                              float* dw_blocks, int64_t tokens, HeadShape shape, NormForm form) {
  __shared__ Rotation rotation;
  __shared__ float dw_warps[kThreads / kWarp][2 * kMaxPairs];
  const int i = int(threadIdx.x) % kLanes * W, half = shape.head_dim / 2;
  const bool inside = i < half;
  const float inv_dim = 1.0f / float(2 * half);
  Pairs<W> weight{}, dw{};
  if (inside) weight.load(w, i, half);
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    __syncthreads();  // all have used the last token's rotation
    fill_rotation(rotation, rotary, token, half, -1.0f);
    const int64_t x_row = token * shape.x_columns(), y_row = token * shape.y_columns();
    for_each_head<kLanes>(shape.x_heads(), [&](int head, bool exists) {
      const int64_t at = int64_t{head} * 2 * half;
      const bool alone = head >= shape.heads;
      const auto factor = [&](float w) { return alone ? 1.0f : form.offset + w; };
      Pairs<W> v{}, g{}, behind{};
      if (inside && exists) {
        v.load(x + x_row + at, i, half);
        g.load(dy + y_row + at, i, half);
        if (!alone) g.rotate(rotation, i);
        if (shape.again) behind.load(dy + y_row + shape.head_columns() + at, i, half);
      }
      float squares = 0, dot = 0, dot_behind = 0;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        squares += v.low[j] * v.low[j] + v.high[j] * v.high[j];
        dot += v.low[j] * g.low[j] * factor(weight.low[j]) + v.high[j] * g.high[j] * factor(weight.high[j]);
        dot_behind += v.low[j] * behind.low[j] + v.high[j] * behind.high[j];
      }
      const float r = rsqrtf(group_sum<kLanes>(squares) * inv_dim + form.eps), cube = r * r * r * inv_dim;
      const float pull = cube * group_sum<kLanes>(dot);
      const float pull_behind = shape.again ? cube * group_sum<kLanes>(dot_behind) : 0.0f;
      if (!inside || !exists) return;
      Pairs<W> out;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        out.low[j] = r * factor(weight.low[j]) * g.low[j] - v.low[j] * pull;
        out.high[j] = r * factor(weight.high[j]) * g.high[j] - v.high[j] * pull;
        if (shape.again) {
          out.low[j] += rounded(r * behind.low[j] - v.low[j] * pull_behind);
          out.high[j] += rounded(r * behind.high[j] - v.high[j] * pull_behind);
        }
        if (alone) continue;
        dw.low[j] += g.low[j] * v.low[j] * r;
        dw.high[j] += g.high[j] * v.high[j] * r;
      }
      out.store(dx + x_row + at, i, half);
    });
    copy_rest(dy + y_row, dx + x_row, shape, true);
  }
  // First over the groups of a warp, then over the warps.
#pragma unroll
  for (int offset = kLanes; offset < kWarp; offset *= 2) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      dw.low[j] += __shfl_xor_sync(kFullWarp, dw.low[j], offset);
      dw.high[j] += __shfl_xor_sync(kFullWarp, dw.high[j], offset);
    }
  }
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  if (lane < kLanes && inside) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      dw_warps[warp][i + j] = dw.low[j];
      dw_warps[warp][i + j + half] = dw.high[j];
    }
  }
  __syncthreads();
  for (int column = int(threadIdx.x); column < 2 * half; column += int(blockDim.x)) {
    float sum = 0;
    for (int k = 0; k < int(blockDim.x) / kWarp; ++k) sum += dw_warps[k][column];
    dw_blocks[int64_t{blockIdx.x} * 2 * half + column] = sum;
  }
}

template <int W, int kLanes, class D>
__global__ void __launch_bounds__(kThreads)
    whole_norm_rope_bwd_kernel(const D* dy, const bf16* x, const bf16* w, Rotary rotary, bf16* dx,
                               float* dw_blocks, int64_t tokens, HeadShape shape, NormForm form) {
  __shared__ Rotation rotation;
  __shared__ float scratch[2][kMaxWarps];
  const int i = int(threadIdx.x) % kLanes * W, half = shape.head_dim / 2;
  const bool inside = i < half;
  const float inv_dim = 1.0f / float(shape.head_columns());
  float* dw = dw_blocks + int64_t{blockIdx.x} * shape.head_columns();
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    __syncthreads();  // all have used the last token's rotation
    fill_rotation(rotation, rotary, token, half, -1.0f);
    const int64_t row = token * shape.x_columns();
    const auto load = [&](int head, Pairs<W>& v, Pairs<W>& g, Pairs<W>& weight) {
      const int64_t at = int64_t{head} * 2 * half;
      v.load(x + row + at, i, half);
      g.load(dy + row + at, i, half);
      weight.load(w + at, i, half);
      g.rotate(rotation, i);
    };
    float squares = 0, dot = 0;
    for_each_head<kLanes>(shape.heads, [&](int head, bool exists) {
      if (!inside || !exists) return;
      Pairs<W> v, g, weight;
      load(head, v, g, weight);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        squares += v.low[j] * v.low[j] + v.high[j] * v.high[j];
        dot += v.low[j] * g.low[j] * (form.offset + weight.low[j]) +
               v.high[j] * g.high[j] * (form.offset + weight.high[j]);
      }
    });
    const float r = rsqrtf(block_sum(squares, scratch[0]) * inv_dim + form.eps);
    const float pull = r * r * r * inv_dim * block_sum(dot, scratch[1]);
    for_each_head<kLanes>(shape.heads, [&](int head, bool exists) {
      if (!inside || !exists) return;
      Pairs<W> v, g, weight, out;
      load(head, v, g, weight);
      float* sums = dw + int64_t{head} * 2 * half + i;
      const bool first = token == blockIdx.x;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        out.low[j] = r * (form.offset + weight.low[j]) * g.low[j] - v.low[j] * pull;
        out.high[j] = r * (form.offset + weight.high[j]) * g.high[j] - v.high[j] * pull;
        sums[j] = (first ? 0.0f : sums[j]) + g.low[j] * v.low[j] * r;
        sums[j + half] = (first ? 0.0f : sums[j + half]) + g.high[j] * v.high[j] * r;
      }
      out.store(dx + row + int64_t{head} * 2 * half, i, half);
    });
    copy_rest(dy + row, dx + row, shape, true);
  }
}

// Calls f with W, the lanes of a group and the threads of a block. A head is in as few lanes as there are
// vectors in half of it, rounded up to a power of two.
template <class F>
cudaError_t with_head_shape(const HeadShape& shape, F f) {
  const int half = shape.head_dim / 2;
  const auto run = [&](auto w, auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    return f(w, lanes, threads_for(int64_t{shape.heads + shape.normed} * kLanes, kThreads));
  };
  const auto with_lanes = [&](auto w) {
    const int vectors = (half + decltype(w)::value - 1) / decltype(w)::value;
    if (vectors <= 1) return run(w, std::integral_constant<int, 1>{});
    if (vectors <= 2) return run(w, std::integral_constant<int, 2>{});
    if (vectors <= 4) return run(w, std::integral_constant<int, 4>{});
    if (vectors <= 8) return run(w, std::integral_constant<int, 8>{});
    if (vectors <= 16) return run(w, std::integral_constant<int, 16>{});
    return run(w, std::integral_constant<int, 32>{});
  };
  if (half % kVec == 0) return with_lanes(std::integral_constant<int, kVec>{});
  return with_lanes(std::integral_constant<int, 4>{});
}
static_assert(kMaxHeadDim / 2 <= kWarp * kVec && kMaxHeadDim / 2 <= kMaxPairs &&
                  kMaxHeadDimOfEights / 2 <= kWarp * 4,
              "a head fits a group of lanes");

}  // namespace

cudaError_t head_norm_rope(const bf16* x, const bf16* w, const Rotary& rotary, bf16* y, int64_t tokens,
                           const HeadShape& shape, const NormForm& form, Queue queue) {
  return with_head_shape(shape, [&](auto width, auto lanes, unsigned threads) {
    const auto kernel = shape.whole ? whole_norm_rope_kernel<decltype(width)::value, decltype(lanes)::value>
                                    : head_norm_rope_kernel<decltype(width)::value, decltype(lanes)::value>;
    return launch(kernel, dim3(unsigned(tokens)), threads, 0, queue, x, w, rotary, y, shape, form);
  });
}

template <class D, class G>
cudaError_t head_norm_rope_bwd(const D* dy, const bf16* x, const bf16* w, const Rotary& rotary, bf16* dx,
                               G* dw, void* workspace, int64_t tokens, const HeadShape& shape,
                               const NormForm& form, bool accumulate, cudaStream_t stream) {
  auto* dw_blocks = static_cast<float*>(workspace);
  const int64_t blocks = head_norm_partials(tokens);
  const auto status = with_head_shape(shape, [&](auto width, auto lanes, unsigned threads) {
    const auto kernel = shape.whole
                            ? whole_norm_rope_bwd_kernel<decltype(width)::value, decltype(lanes)::value, D>
                            : head_norm_rope_bwd_kernel<decltype(width)::value, decltype(lanes)::value, D>;
    return launch(kernel, dim3(unsigned(blocks)), threads, 0, stream, dy, x, w, rotary, dx, dw_blocks, tokens,
                  shape, form);
  });
  if (status != cudaSuccess) return status;
  return sum_partials(dw_blocks, dw, blocks, shape.whole ? shape.head_columns() : shape.head_dim, accumulate,
                      stream);
}

#define SLUICE_INSTANTIATE(D, G)                                                                        \
  template cudaError_t head_norm_rope_bwd(const D*, const bf16*, const bf16*, const Rotary&, bf16*, G*, \
                                          void*, int64_t, const HeadShape&, const NormForm&, bool,      \
                                          cudaStream_t)
SLUICE_INSTANTIATE(float, float);
SLUICE_INSTANTIATE(float, bf16);
SLUICE_INSTANTIATE(bf16, float);
SLUICE_INSTANTIATE(bf16, bf16);
#undef SLUICE_INSTANTIATE

}  // namespace sluice::core::cuda
