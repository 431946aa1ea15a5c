// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeGLU: y = activation(gate) * up, see ops/mlp.h. Backward also writes y again, because reading
// gate and up once serves both. Rows of gates and of ups are equally far apart, in one matrix or in two.
#include <type_traits>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/quantize.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kThreads = 256;

// From exp(-|x|), which neither overflows nor loses its relative precision.
__device__ float sigmoid(float x) {
  const float e = __expf(-fabsf(x)), upper = __fdividef(1.0f, 1.0f + e);
  return x >= 0 ? upper : e * upper;
}

// The share of a gate that is left of it, and what its derivative is times the gate, given that share.
struct Silu {
  static __device__ float share(float gate) { return sigmoid(gate); }
  static __device__ float growth(float gate, float share) { return share * (gate * (1.0f - share)); }
};
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  // Beyond, the sigmoid is 0 or 1, and the cube of what is still finite may not be.
  static __device__ float bounded(float gate) { return fminf(fmaxf(gate, -16.0f), 16.0f); }
  static __device__ float share(float gate) {
    const float x = bounded(gate);
    return sigmoid(kTwice * (x + kCubic * (x * x * x)));
  }
  static __device__ float growth(float gate, float share) {
    const float x = bounded(gate);
    return share * (gate * (1.0f - share) * (kTwice * (1.0f + 3 * kCubic * (x * x))));
  }
};
struct Gelu {
  static __device__ float share(float gate) { return normcdff(gate); }
  static __device__ float growth(float gate, float) {
    return gate * (0.3989422804014327f * __expf(-0.5f * gate * gate));  // 1 / sqrt(2 pi)
  }
};

struct QuickGelu {
  static constexpr float kSteep = 1.702f;
  static __device__ float share(float gate) { return sigmoid(kSteep * gate); }
  static __device__ float growth(float gate, float share) { return share * (gate * (1.0f - share) * kSteep); }
};

// A gate and its factor under a limit, unless that is 0. A NaN stays one, which fminf would not let it.
__device__ float limited_gate(float gate, float limit) {
  return limit > 0 && gate > limit ? limit : gate;
}
__device__ float limited_up(float up, float limit) {
  return limit > 0 ? (up > limit ? limit : up < -limit ? -limit : up) + 1.0f : up;
}

// One definition for both directions: recomputation must write the same bits.
template <class Gate>
__device__ float gated(float gate, float up) {
  return gate * Gate::share(gate) * up;
}

// And its gradients.
template <class Gate, bool kPlain>
__device__ void glu_gradient(float gate, float up, float grad, float limit, float& y, float& d_gate,
                             float& d_up) {
  const float x = limited_gate(gate, limit), u = kPlain ? 1.0f : limited_up(up, limit);
  const float s = Gate::share(x);
  y = gated<Gate>(x, u);
  d_up = limit > 0 && fabsf(up) > limit ? 0.0f : grad * x * s;
  d_gate = limit > 0 && gate > limit ? 0.0f : grad * u * (s + Gate::growth(x, s));
}

template <class Gate, bool kPlain, class T>
__global__ void swiglu_kernel(GateRows<T> rows, T* y, int64_t dim, float limit) {
  let_next_begin();
  await_previous();
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const int64_t at = token * rows.stride + column;
  const auto gates = Vec8<T>::load(rows.gate + at), ups = Vec8<T>::load((kPlain ? rows.gate : rows.up) + at);
  float gate[kVec], up[kVec], out[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  for (int j = 0; j < kVec; ++j)
    out[j] = gated<Gate>(limited_gate(gate[j], limit), kPlain ? 1.0f : limited_up(up[j], limit));
  store8(y + token * dim + column, out);
}

template <class Gate, bool kPlain, class T>
__global__ void swiglu_bwd_kernel(GateRows<T> rows, const T* dy, T* d_gates, T* d_ups, T* y, int64_t dim,
                                  float limit) {
  const int64_t token = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVec;
  if (column >= dim) return;
  const int64_t at = token * rows.stride + column;
  const auto gates = Vec8<T>::load(rows.gate + at), ups = Vec8<T>::load((kPlain ? rows.gate : rows.up) + at);
  const auto grads = Vec8<T>::load(dy + token * dim + column);
  float gate[kVec], up[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
  gates.unpack(gate);
  ups.unpack(up);
  grads.unpack(grad);
  for (int j = 0; j < kVec; ++j)
    glu_gradient<Gate, kPlain>(gate[j], up[j], grad[j], limit, out[j], d_gate[j], d_up[j]);
  store8(y + token * dim + column, out);
  store8(d_gates + at, d_gate);
  if (!kPlain) store8(d_ups + at, d_up);
}

// Eight columns of a row of y, as swiglu_kernel stores them.
template <class Gate, bool kPlain>
struct GatedRows {
  GateRows<bf16> rows;
  float limit;

  __device__ Eight operator()(int64_t row, int64_t col) const {
    const int64_t at = row * rows.stride + col;
    float gate[kVec], up[kVec], out[kVec];
    load8(rows.gate + at, gate);
    load8((kPlain ? rows.gate : rows.up) + at, up);
    for (int j = 0; j < kVec; ++j)
      out[j] = gated<Gate>(limited_gate(gate[j], limit), kPlain ? 1.0f : limited_up(up[j], limit));
    return Eight::of(out);
  }
};

// The backward pass whose results are in 8 bits reads its inputs twice: for the largest magnitudes, and for
// what is rounded. Between the two, less is written than read.
struct GluInput {
  GateRows<bf16> rows;
  const bf16* dy;
  int64_t tokens, dim;
  float limit;
};
struct GluMaxima {
  uint32_t *of_rows, *of_gates, *of_ups, *of_y;  // of_ups behind of_gates
};

// A thread's part of a tile in one turn: zeros outside of the rows make zeros.
template <class Gate, bool kPlain>
struct GluPart {
  Eight gate[kRowsOfThread], up[kRowsOfThread], y[kRowsOfThread];

  __device__ GluPart(const GluInput& in, int64_t row, int64_t col) {
    load_rows(in.rows.gate, row, col, in.tokens, in.dim, in.rows.stride, gate);
    if (!kPlain) load_rows(in.rows.up, row, col, in.tokens, in.dim, in.rows.stride, up);
    load_rows(in.dy, row, col, in.tokens, in.dim, in.dim, y);
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      float x[kVec], u[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
      gate[k].unpack(x);
      (kPlain ? gate : up)[k].unpack(u);
      y[k].unpack(grad);
#pragma unroll
      for (int j = 0; j < kVec; ++j)
        glu_gradient<Gate, kPlain>(x[j], u[j], grad[j], in.limit, out[j], d_gate[j], d_up[j]);
      gate[k] = Eight::of(d_gate);
      if (!kPlain) up[k] = Eight::of(d_up);
      y[k] = Eight::of(out);
    }
  }
};

template <class Gate, bool kPlain>
__global__ void __launch_bounds__(kTileThreads, 2) glu_maxima_kernel(GluInput in, GluMaxima maxima) {
  __shared__ ColumnScratch scratch[3];
  const TilePlace at(blockIdx.y, blockIdx.x);
  Eight of_gates = {}, of_ups = {}, of_y = {};
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t row = at.row + turn * kRowsAtOnce;
    const GluPart<Gate, kPlain> part(in, row, at.col);
    uint32_t most[kRowsOfThread];
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      most_of(of_gates, part.gate[k]);
      most_of(of_y, part.y[k]);
      most[k] = most_of(part.gate[k]);
      if (kPlain) continue;
      most_of(of_ups, part.up[k]);
      most[k] = __vmaxu2(most[k], most_of(part.up[k]));
    }
    add_row_maxima(most, at.lane, row, in.tokens, maxima.of_rows);
  }
  add_column_maxima(of_gates, at.lane, blockIdx.x, in.dim, scratch[0], maxima.of_gates);
  add_column_maxima(of_y, at.lane, blockIdx.x, in.dim, scratch[1], maxima.of_y);
  if (!kPlain) add_column_maxima(of_ups, at.lane, blockIdx.x, in.dim, scratch[2], maxima.of_ups);
}

// In dynamic shared memory. Without ups the last are not there.
struct GluTiles {
  TurnedTile gate, y, up;
  float of_gates[kTile], of_y[kTile], of_ups[kTile];  // scales, inverted
};

template <class Gate, bool kPlain>
__global__ void __launch_bounds__(kTileThreads, 2)
    glu_quantize_kernel(GluInput in, GluMaxima maxima, NarrowGlu out) {
  extern __shared__ __align__(16) unsigned char shared[];
  GluTiles& tiles = *reinterpret_cast<GluTiles*>(shared);
  const int64_t tile_row = gridDim.y - 1 - blockIdx.y, tile_col = gridDim.x - 1 - blockIdx.x;
  const int64_t columns = kPlain ? in.dim : 2 * in.dim;
  const TilePlace at(tile_row, tile_col);
  const auto scales = [&](const uint32_t* of, float* to, float(&inverted)[kTile]) {
    const int64_t col = tile_col * kTile + threadIdx.x;
    if (threadIdx.x >= kTile || col >= in.dim) return;
    const float scale = E4m3::scale(float_of_bits(of[col]));
    inverted[threadIdx.x] = inverse_of(scale);
    if (tile_row == 0) to[col] = scale;
  };
  float* const turned_scales = reinterpret_cast<float*>(out.dgu_turned + in.tokens * columns);
  scales(maxima.of_gates, turned_scales, tiles.of_gates);
  scales(maxima.of_y, reinterpret_cast<float*>(out.y_turned + in.tokens * in.dim), tiles.of_y);
  if (!kPlain) scales(maxima.of_ups, turned_scales + in.dim, tiles.of_ups);
  __syncthreads();
  auto* const row_scales = reinterpret_cast<float*>(out.dgu + in.tokens * columns);
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t row = at.row + turn * kRowsAtOnce;
    const GluPart<Gate, kPlain> part(in, row, at.col);
    if (at.col < in.dim) {
#pragma unroll
      for (int k = 0; k < kRowsOfThread; ++k) {
        if (row + k >= in.tokens) continue;
        const float scale = E4m3::scale(float_of_bits(maxima.of_rows[row + k])),
                    inverse = inverse_of(scale);
        uint8_t* const to = out.dgu + (row + k) * columns + at.col;
        *reinterpret_cast<uint2*>(to) = rounded_row(part.gate[k], inverse);
        if (!kPlain) *reinterpret_cast<uint2*>(to + in.dim) = rounded_row(part.up[k], inverse);
        if (at.col == 0) row_scales[row + k] = scale;
      }
    }
    const auto put = [&](TurnedTile& tile, const Eight(&values)[kRowsOfThread], const float* inverted) {
      float inverse[kVec];
      load8(inverted + at.lane * kVec, inverse);
      tile.put(values, inverse, at.lane, at.group, turn);
    };
    put(tiles.gate, part.gate, tiles.of_gates);
    put(tiles.y, part.y, tiles.of_y);
    if (!kPlain) put(tiles.up, part.up, tiles.of_ups);
  }
  __syncthreads();
  tiles.gate.write(out.dgu_turned, tile_row, tile_col, in.tokens, in.dim);
  tiles.y.write(out.y_turned, tile_row, tile_col, in.tokens, in.dim);
  if (!kPlain) tiles.up.write(out.dgu_turned + in.tokens * in.dim, tile_row, tile_col, in.tokens, in.dim);
}

// A block has a row of an expert. Its expert, where there is a bias, is the last that begins at or before it.
template <class Gate>
__global__ void __launch_bounds__(kThreads) expert_glu_bwd_kernel(ExpertGlu all, float limit) {
  __shared__ float scratch[kMaxWarps];
  const int64_t row = blockIdx.x, dim = all.dim;
  const int32_t choice = all.choice[row];
  const float of_row = all.gates[choice];
  float dot = 0;
  for (int64_t column = int64_t{threadIdx.x} * kVec; column < dim; column += int64_t{blockDim.x} * kVec) {
    const int64_t at = row * 2 * dim + column;
    const auto gates = Vec8<bf16>::load(all.gu + at), ups = Vec8<bf16>::load(all.gu + at + dim);
    const auto grads = Vec8<bf16>::load(all.dy + row * dim + column);
    float gate[kVec], up[kVec], grad[kVec], out[kVec], d_gate[kVec], d_up[kVec];
    gates.unpack(gate);
    ups.unpack(up);
    grads.unpack(grad);
    for (int j = 0; j < kVec; ++j) {
      const float x = limited_gate(gate[j], limit), u = limited_up(up[j], limit), s = Gate::share(x);
      const float y = gated<Gate>(x, u), g = of_row * grad[j];
      dot += grad[j] * y;
      out[j] = of_row * y;
      d_up[j] = limit > 0 && fabsf(up[j]) > limit ? 0.0f : g * x * s;
      d_gate[j] = limit > 0 && gate[j] > limit ? 0.0f : g * u * (s + Gate::growth(x, s));
    }
    store8(all.gated + row * dim + column, out);
    store8(all.dgu + at, d_gate);
    store8(all.dgu + at + dim, d_up);
  }
  if (all.bias != nullptr) {
    int64_t expert = 0;
    // A rehearsal of zeros has a routing without rows.
    while (expert + 1 < all.experts && all.begin[expert + 1] <= row) ++expert;
    const bf16 *bias = all.bias + expert * all.biased, *dout = all.dout + choice / all.top_k * all.biased;
    for (int64_t column = int64_t{threadIdx.x} * kVec; column < all.biased;
         column += int64_t{blockDim.x} * kVec) {
      float a[kVec], b[kVec];
      load8(bias + column, a);
      load8(dout + column, b);
      for (int j = 0; j < kVec; ++j) dot += a[j] * b[j];
    }
  }
  dot = block_sum(dot, scratch);
  if (threadIdx.x == 0) all.dgates[choice] = dot;
}

dim3 grid_for(int64_t tokens, int64_t dim) {
  return dim3(unsigned(tokens), blocks_for(dim, kThreads * kVec));
}

// Calls f with the activation as a type, and whether all is gate as a constant. f32 has SiLU alone.
template <class T, class F>
cudaError_t with_gate(Activation activation, bool plain, F f) {
  const auto with = [&](auto gate) { return plain ? f(gate, std::true_type{}) : f(gate, std::false_type{}); };
  if constexpr (std::is_same_v<T, float>) {
    return with(Silu{});
  } else {
    if (activation == Activation::Silu) return with(Silu{});
    if (activation == Activation::QuickGelu) return with(QuickGelu{});
    return activation == Activation::Gelu ? with(Gelu{}) : with(GeluTanh{});
  }
}

}  // namespace

cudaError_t expert_glu_bwd(const ExpertGlu& rows, const GateForm& form, cudaStream_t stream) {
  return with_gate<bf16>(form.activation, false, [&](auto gate, auto) {
    return launch(expert_glu_bwd_kernel<decltype(gate)>, dim3(unsigned(rows.rows)),
                  threads_for(rows.dim / kVec, kThreads), 0, stream, rows, form.limit);
  });
}

template <class T>
cudaError_t swiglu(const GateRows<T>& rows, T* y, int64_t tokens, int64_t dim, const GateForm& form,
                   Queue queue) {
  return with_gate<T>(form.activation, rows.up == nullptr, [&](auto gate, auto is_plain) {
    return launch(swiglu_kernel<decltype(gate), decltype(is_plain)::value, T>, grid_for(tokens, dim),
                  kThreads, 0, queue, rows, y, dim, form.limit);
  });
}

template <class T>
cudaError_t swiglu_bwd(const GateRows<T>& rows, const T* dy, T* d_gate, T* d_up, T* y, int64_t tokens,
                       int64_t dim, const GateForm& form, cudaStream_t stream) {
  return with_gate<T>(form.activation, rows.up == nullptr, [&](auto gate, auto is_plain) {
    return launch(swiglu_bwd_kernel<decltype(gate), decltype(is_plain)::value, T>, grid_for(tokens, dim),
                  kThreads, 0, stream, rows, dy, d_gate, d_up, y, dim, form.limit);
  });
}

cudaError_t swiglu_narrow(const GateRows<bf16>& rows, uint8_t* y, int64_t tokens, int64_t dim,
                          const GateForm& form, cudaStream_t stream) {
  return with_gate<bf16>(form.activation, rows.up == nullptr, [&](auto gate, auto is_plain) {
    return quantize_rows(GatedRows<decltype(gate), decltype(is_plain)::value>{rows, form.limit}, y, tokens,
                         dim, stream);
  });
}

cudaError_t swiglu_bwd_narrow(const GateRows<bf16>& rows, const bf16* dy, const NarrowGlu& out,
                              void* workspace, int64_t tokens, int64_t dim, const GateForm& form,
                              cudaStream_t stream) {
  const bool plain = rows.up == nullptr;
  const GluInput in{rows, dy, tokens, dim, form.limit};
  auto* const of_rows = static_cast<uint32_t*>(workspace);
  uint32_t* const of_gates = of_rows + tokens;
  uint32_t* const of_ups = of_gates + dim;
  const GluMaxima maxima{of_rows, of_gates, of_ups, plain ? of_ups : of_ups + dim};
  const size_t bytes = size_t(tokens + (plain ? 2 : 3) * dim) * sizeof(uint32_t);
  if (const auto status = cudaMemsetAsync(workspace, 0, bytes, stream); status != cudaSuccess) return status;
  const dim3 grid(blocks_for(dim, kTile), blocks_for(tokens, kTile));
  return with_gate<bf16>(form.activation, plain, [&](auto gate, auto is_plain) {
    constexpr bool kPlain = decltype(is_plain)::value;
    const auto status =
        launch(glu_maxima_kernel<decltype(gate), kPlain>, grid, kTileThreads, 0, stream, in, maxima);
    if (status != cudaSuccess) return status;
    return launch(glu_quantize_kernel<decltype(gate), kPlain>, grid, kTileThreads, sizeof(GluTiles), stream,
                  in, maxima, out);
  });
}

template cudaError_t swiglu(const GateRows<bf16>&, bf16*, int64_t, int64_t, const GateForm&, Queue);
template cudaError_t swiglu(const GateRows<float>&, float*, int64_t, int64_t, const GateForm&, Queue);
template cudaError_t swiglu_bwd(const GateRows<bf16>&, const bf16*, bf16*, bf16*, bf16*, int64_t, int64_t,
                                const GateForm&, cudaStream_t);
template cudaError_t swiglu_bwd(const GateRows<float>&, const float*, float*, float*, float*, int64_t,
                                int64_t, const GateForm&, cudaStream_t);

}  // namespace sluice::core::cuda
