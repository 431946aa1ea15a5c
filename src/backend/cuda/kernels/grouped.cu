// SPDX-License-Identifier: Apache-2.0
// Products over the rows of each expert (ops/experts.h), on tensor cores. GPUs of compute capability 9.0 have
// kernels of their own, of the same bits (hopper/grouped_hopper.cu). The grid is that of the most tiles there
// can be; a block finds its expert and its rows from where experts begin, and leaves if it has none.
//
// C[m, n] = sum over k of A[m, k] B[k, n]. Forward, k is what rows have in common, A's rows are the expert's,
// and B's columns lie along k. For the gradient of what was multiplied B lies as it is. For that of weights k
// are the expert's rows, and both matrices have a row for each k. An element is summed up in the order of k.
#include <type_traits>

#include "backend/cuda/kernels/expert_rows.cuh"
#include "backend/cuda/kernels/grouped_hopper.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_product.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

using Tiles = Tiling<128, 128, 32, 4>;
constexpr int kTile = Tiles::kRows, kDepth = Tiles::kDepth, kCorner = Tiles::kCornerRows;
constexpr int kStageBytes = Tiles::kStageBytes, kMatrixBytes = kStageBytes / 2;

enum class Form { Forward, Dgrad, Wgrad };

// As along_k(), of a tile with a row of sixteen chunks for each k.
__device__ int across_k(int k, int chunk) {
  return k * 256 + ((chunk ^ (k & 7)) * 16);
}

struct Tile {
  int64_t expert;       // in the group
  int64_t first, rows;  // of the expert's rows: the tile's first one, and how many are left from there
};

// The tile that a block of rows is, or none. Every thread of a warp calls it.
__device__ bool find_tile(const int32_t* begin, int64_t experts, int64_t wanted, Tile& tile) {
  const int lane = threadIdx.x % kWarp;
  int64_t before = 0;
  for (int64_t base = 0; base < experts; base += kWarp) {
    const int64_t e = base + lane;
    const int32_t from = e < experts ? begin[e] : 0, count = e < experts ? begin[e + 1] - from : 0;
    const int tiles = (count + kTile - 1) / kTile;
    int upto = tiles;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int other = __shfl_up_sync(kFullWarp, upto, offset);
      if (lane >= offset) upto += other;
    }
    const bool here = wanted < before + upto;
    const unsigned found = __ballot_sync(kFullWarp, here);
    if (found != 0) {
      const int owner = __ffs(int(found)) - 1;
      const int64_t skipped = (wanted - before - __shfl_sync(kFullWarp, upto - tiles, owner)) * kTile;
      tile.expert = base + owner;
      tile.first = __shfl_sync(kFullWarp, from, owner) + skipped;
      tile.rows = __shfl_sync(kFullWarp, count, owner) - skipped;
      return true;
    }
    before += __shfl_sync(kFullWarp, upto, kWarp - 1);
  }
  return false;
}

template <Form kForm, class C>
struct GroupedArgs {
  RowSource a;           // Forward, Dgrad: the rows. Wgrad: rows of A^T
  RowSource b;           // Wgrad alone
  const bf16* w;         // of the group; Forward [experts, n, k], Dgrad [experts, k, n]
  const bf16* bias;      // [experts, n], or null
  const int32_t* begin;  // of the group's experts
  C* c;
  int64_t experts, m, n, k;  // m: of Wgrad; k: not of Wgrad
  bool accumulate;           // of Wgrad
  // From an expert's w, or of Wgrad its c, to the next one's, and from a row of c to the next. Adapters of an
  // expert are parts of these.
  int64_t step, stride;
  float scale = 1;    // of what is summed
  bool adds = false;  // to what rows of c have: not of Wgrad, and without a bias
};

// Adds a tile to rows of c, by way of shared memory: threads side by side read and write whole lines. Pairs
// of columns took 1.8 times as long on an H200.
template <class Args, class Pairs>
__device__ void add_to_rows(const Args& args, const Pairs& for_each_pair, bf16* out, int64_t column,
                            int64_t rows, unsigned char* shared) {
  static_assert(kTile * kTile * sizeof(float) <= Tiles::kSharedBytes);
  float* const staged = reinterpret_cast<float*>(shared);
  // Chunks are exchanged so that four rows, of which half a warp writes pairs, share no bank.
  const auto chunk_at = [&](int r, int chunk) { return staged + r * kTile + (chunk ^ (r & 7)) * kVec; };
  await_copies<0>();
  __syncthreads();
  for_each_pair([&](int r, int of_tile, float x, float y) {
    *reinterpret_cast<float2*>(chunk_at(r, of_tile / kVec) + of_tile % kVec) = make_float2(x, y);
  });
  __syncthreads();
  constexpr int kChunks = kTile / kVec, kRowsAtOnce = kThreads / kChunks, kInFlight = 8;
  const int chunk = threadIdx.x % kChunks;
  const int64_t at = column + chunk * kVec;
  if (at >= args.n) return;
  for (int first = threadIdx.x / kChunks; first < kTile; first += kRowsAtOnce * kInFlight) {
    Vec8<bf16> old[kInFlight] = {};
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int r = first + i * kRowsAtOnce;
      if (r < rows) old[i] = Vec8<bf16>::load(out + r * args.stride + at);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int r = first + i * kRowsAtOnce;
      if (r >= rows) break;
      float x[kVec], before[kVec];
      load8(chunk_at(r, chunk), x);
      old[i].unpack(before);
#pragma unroll
      for (int k = 0; k < kVec; ++k) x[k] += before[k];
      store8(out + r * args.stride + at, x);
    }
  }
}

template <Form kForm, class C>
__global__ void __launch_bounds__(kThreads, 2) grouped_kernel(GroupedArgs<kForm, C> args) {
  constexpr bool kWeights = kForm == Form::Wgrad;
  unsigned char* const shared = dynamic_shared();
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kTile;
  Tile tile;
  if constexpr (kWeights) {
    tile.expert = blockIdx.z;
    tile.first = args.begin[tile.expert];
    tile.rows = args.begin[tile.expert + 1] - tile.first;
  } else {
    if (!find_tile(args.begin, args.experts, blockIdx.y, tile)) return;
  }
  const int64_t depth = kWeights ? tile.rows : args.k;
  const int64_t row = kWeights ? int64_t{blockIdx.y} * kTile : 0;  // of C, of Wgrad
  const bf16* const w = kWeights ? nullptr : args.w + tile.expert * args.step;

  // Rows of A that the thread copies chunks of, the same for every k. Of Wgrad each k has others: where they
  // are of choices, these are read a piece ahead.
  const bf16* a_rows[4];
  int32_t ahead[4] = {};
  const int across = thread % 16 * kChunk;
  const int32_t* const choice = args.a.choice != nullptr ? args.a.choice : args.b.choice;
  const auto look_ahead = [&](int64_t piece) {
    if (choice == nullptr) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t at = piece * kDepth + thread / 16 + 8 * i;
      ahead[i] = at < depth ? choice[tile.first + at] : 0;
    }
  };
  if constexpr (kWeights) {
    look_ahead(0);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = thread / 4 + 32 * i;
      a_rows[i] = r < tile.rows ? args.a.row(tile.first + r) : nullptr;
    }
  }
  const auto load = [&](int64_t piece, int stage) {
    unsigned char* const as = shared + stage * kStageBytes;
    unsigned char* const bs = as + kMatrixBytes;
    const int64_t k0 = piece * kDepth;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kWeights) {
        const int r = thread / 16 + 8 * i, chunk = thread % 16;
        const bool there = k0 + r < depth;
        const auto in_place = int32_t(tile.first + k0 + r);
        const int32_t token = choice != nullptr ? args.a.token_of(ahead[i]) : in_place;
        const auto copy = [&](unsigned char* to, const RowSource& from, int64_t first, bool within) {
          const int64_t of = from.choice != nullptr ? token : in_place;
          const bool valid = there && within;
          copy_async(to + across_k(r, chunk), valid ? from.data + of * from.columns + first : from.data,
                     valid);
        };
        copy(as, args.a, row + across, row + across < args.m);
        copy(bs, args.b, column + across, column + across < args.n);
      } else {
        const int r = thread / 4 + 32 * i, chunk = thread % 4;
        const int64_t at = k0 + chunk * kChunk;
        const bool a_there = a_rows[i] != nullptr && at < depth;
        copy_async(as + along_k<kDepth>(r, chunk), a_there ? a_rows[i] + at : args.a.data, a_there);
        if constexpr (kForm == Form::Forward) {
          const bool b_there = column + r < args.n && at < depth;
          copy_async(bs + along_k<kDepth>(r, chunk), b_there ? w + (column + r) * args.k + at : w, b_there);
        } else {
          const int kr = thread / 16 + 8 * i, kc = thread % 16;
          const int64_t of_b = column + kc * kChunk;
          const bool b_there = k0 + kr < depth && of_b < args.n;
          copy_async(bs + across_k(kr, kc), b_there ? w + (k0 + kr) * args.n + of_b : w, b_there);
        }
      }
    }
    if constexpr (kWeights) look_ahead(piece + 1);
  };

  float sums[4][8][4] = {};
  const int m0 = warp / 2 * kCorner, n0 = warp % 2 * kCorner;
  const int64_t pieces = (depth + kDepth - 1) / kDepth;
  multiply_pieces<Tiles>(
      sums, pieces, shared, m0, n0, load,
      [&](uint32_t(&a)[4], const unsigned char* as, int m, int k) {
        if constexpr (kWeights) {
          load_matrices_transposed(a, as + across_k(k + lane % 8 + lane / 16 * 8, m / kChunk + lane / 8 % 2));
        } else {
          load_matrices(a, as + along_k<kDepth>(m + lane % 16, k / kChunk + lane / 16));
        }
      },
      [&](uint32_t(&b)[4], const unsigned char* bs, int n, int k) {
        if constexpr (kForm == Form::Forward) {
          load_matrices(b, bs + along_k<kDepth>(n + lane % 8 + lane / 16 * 8, k / kChunk + lane / 8 % 2));
        } else {
          load_matrices_transposed(b, bs + across_k(k + lane % 8 + lane / 8 % 2 * 8, n / kChunk + lane / 16));
        }
      });

  const int64_t rows_left = kWeights ? args.m - row : tile.rows;
  C* const out = args.c + (kWeights ? tile.expert * args.step + row * args.stride : tile.first * args.stride);
  // Calls put(row of the tile, its column, value, value of the next column).
  const auto for_each_pair = [&](const auto& put) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = m0 + 16 * i + 8 * half + lane / 4;
        if (r >= rows_left) continue;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int of_tile = n0 + 8 * j + lane % 4 * 2;
          if (column + of_tile >= args.n) continue;
          put(r, of_tile, sums[i][j][2 * half] * args.scale, sums[i][j][2 * half + 1] * args.scale);
        }
      }
    }
  };
  if constexpr (!kWeights) {
    if (args.adds) return add_to_rows(args, for_each_pair, out, column, rows_left, shared);
  }
  for_each_pair([&](int r, int of_tile, float x, float y) {
    const int64_t at = column + of_tile;
    C* const to = out + r * args.stride + at;
    if constexpr (kForm == Form::Forward) {
      if (args.bias != nullptr) {
        x += to_float(args.bias[tile.expert * args.n + at]);
        y += to_float(args.bias[tile.expert * args.n + at + 1]);
      }
    }
    if constexpr (kWeights) {
      if (args.accumulate) x += to_float(to[0]), y += to_float(to[1]);
    }
    if constexpr (std::is_same_v<C, bf16>) {
      *reinterpret_cast<uint32_t*>(to) = pack_bf16(x, y);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(x, y);
    }
  });
}

// Zeros in the rows before `begin[first]` and from `begin[last]` on.
__global__ void clear_rows_kernel(const int32_t* begin, int64_t first, int64_t last, int64_t rows, bf16* y,
                                  int64_t columns) {
  const int64_t row = blockIdx.x;
  if (row >= begin[first] && row < begin[last]) return;
  constexpr float kZeros[kVec] = {};
  for (int64_t column = int64_t{threadIdx.x} * kVec; column < columns; column += int64_t{blockDim.x} * kVec)
    store8(y + row * columns + column, kZeros);
}

constexpr unsigned tiles_for(int64_t size) {
  return blocks_for(size, kTile);
}

cudaError_t clear_others(const Grouping& g, bf16* y, int64_t n, cudaStream_t stream) {
  return launch(clear_rows_kernel, dim3(unsigned(g.rows)), threads_for(n / kVec, 256), 0, stream, g.routing,
                g.first, g.first + g.count, g.rows, y, n);
}

template <Form kForm>
cudaError_t launch_rows(const Grouping& g, const GroupedArgs<kForm, bf16>& args, cudaStream_t stream) {
  const dim3 grid(tiles_for(args.n), unsigned(g.rows / kTile + g.count));
  return launch(grouped_kernel<kForm, bf16>, grid, kThreads, Tiles::kSharedBytes, stream, args);
}

template <Form kForm>
cudaError_t over_rows(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y, int64_t n,
                      int64_t k, bool gathers, bool accumulate, cudaStream_t stream) {
  if (!accumulate && g.count < g.experts) {
    const auto status = clear_others(g, y, n, stream);
    if (status != cudaSuccess) return status;
  }
  if (hopper_products(g.count)) {
    if constexpr (kForm == Form::Forward) return hopper_linear(g, x, w, bias, y, n, k, gathers, stream);
    return hopper_dgrad(g, x, w, y, k, n, gathers, stream);
  }
  GroupedArgs<kForm, bf16> args{};
  args.a = {x, gathers ? g.choices() : nullptr, k, reciprocal_of(g.top_k)};
  args.w = w;
  args.bias = bias;
  args.begin = g.routing + g.first;
  args.c = y;
  args.experts = g.count;
  args.n = n;
  args.k = k;
  args.step = n * k;
  args.stride = n;
  return launch_rows(g, args, stream);
}

template <class G>
cudaError_t launch_weights(const Grouping& g, const GroupedArgs<Form::Wgrad, G>& args, cudaStream_t stream) {
  const dim3 grid(tiles_for(args.n), tiles_for(args.m), unsigned(g.count));
  return launch(grouped_kernel<Form::Wgrad, G>, grid, kThreads, Tiles::kSharedBytes, stream, args);
}

// Rows of y get scale * u b^T, or with `turned` scale * u b, of each part.
template <Form kForm>
cudaError_t add_low_rank(const Grouping& g, const RankForm& f, const bf16* u, const bf16* b, bf16* y,
                         cudaStream_t stream) {
  for (int64_t p = 0; p < f.parts; ++p) {
    GroupedArgs<kForm, bf16> args{};
    args.a = {u + p * f.rank, nullptr, f.parts * f.rank, reciprocal_of(g.top_k)};
    args.w = b + p * f.part * f.rank;
    args.begin = g.routing + g.first;
    args.c = y + f.at + p * f.part;
    args.experts = g.count;
    args.n = f.part;
    args.k = f.rank;
    args.step = f.parts * f.part * f.rank;
    args.stride = f.columns;
    args.scale = f.scale;
    args.adds = true;
    const auto status = launch_rows(g, args, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t grouped_low_rank(const Grouping& g, const RankForm& form, const bf16* u, const bf16* b, bf16* y,
                             bool turned, cudaStream_t stream) {
  return turned ? add_low_rank<Form::Dgrad>(g, form, u, b, y, stream)
                : add_low_rank<Form::Forward>(g, form, u, b, y, stream);
}

cudaError_t grouped_low_rank_dgrad(const Grouping& g, const RankForm& form, const bf16* dy, const bf16* b,
                                   bf16* du, bool gathers, bool accumulate, cudaStream_t stream) {
  const int64_t inner = form.parts * form.rank;
  if (!accumulate && g.count < g.experts) {
    const auto status = clear_others(g, du, inner, stream);
    if (status != cudaSuccess) return status;
  }
  for (int64_t p = 0; p < form.parts; ++p) {
    GroupedArgs<Form::Dgrad, bf16> args{};
    args.a = {dy + form.at + p * form.part, gathers ? g.choices() : nullptr, form.columns,
              reciprocal_of(g.top_k)};
    args.w = b + p * form.part * form.rank;
    args.begin = g.routing + g.first;
    args.c = du + p * form.rank;
    args.experts = g.count;
    args.n = form.rank;
    args.k = form.part;
    args.step = form.parts * form.part * form.rank;
    args.stride = inner;
    args.scale = form.scale;
    const auto status = launch_rows(g, args, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template <class G>
cudaError_t grouped_low_rank_wgrad(const Grouping& g, const RankForm& form, const bf16* dy, const bf16* u,
                                   G* db, bool gathers, bool accumulate, cudaStream_t stream) {
  for (int64_t p = 0; p < form.parts; ++p) {
    GroupedArgs<Form::Wgrad, G> args{};
    args.a = {dy + form.at + p * form.part, gathers ? g.choices() : nullptr, form.columns,
              reciprocal_of(g.top_k)};
    args.b = {u + p * form.rank, nullptr, form.parts * form.rank, reciprocal_of(g.top_k)};
    args.begin = g.routing + g.first;
    args.c = db + p * form.part * form.rank;
    args.experts = g.count;
    args.m = form.part;
    args.n = form.rank;
    args.accumulate = accumulate;
    args.step = form.parts * form.part * form.rank;
    args.stride = form.rank;
    args.scale = form.scale;
    const auto status = launch_weights(g, args, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
template cudaError_t grouped_low_rank_wgrad(const Grouping&, const RankForm&, const bf16*, const bf16*,
                                            float*, bool, bool, cudaStream_t);
template cudaError_t grouped_low_rank_wgrad(const Grouping&, const RankForm&, const bf16*, const bf16*, bf16*,
                                            bool, bool, cudaStream_t);

cudaError_t grouped_linear(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y,
                           int64_t out, int64_t in, bool gathers, bool accumulate, cudaStream_t stream) {
  return over_rows<Form::Forward>(g, x, w, bias, y, out, in, gathers, accumulate, stream);
}

cudaError_t grouped_dgrad(const Grouping& g, const bf16* dy, const bf16* w, bf16* dx, int64_t out, int64_t in,
                          bool gathers, bool accumulate, cudaStream_t stream) {
  return over_rows<Form::Dgrad>(g, dy, w, nullptr, dx, in, out, gathers, accumulate, stream);
}

template <class G>
cudaError_t grouped_wgrad(const Grouping& g, const bf16* dy, const bf16* x, G* dw, int64_t out, int64_t in,
                          bool gathers_dy, bool gathers_x, bool accumulate, cudaStream_t stream) {
  if (!(gathers_dy && gathers_x) && hopper_products(g.count))
    return hopper_wgrad(g, dy, x, dw, out, in, gathers_dy, gathers_x, accumulate, stream);
  GroupedArgs<Form::Wgrad, G> args{};
  args.a = {dy, gathers_dy ? g.choices() : nullptr, out, reciprocal_of(g.top_k)};
  args.b = {x, gathers_x ? g.choices() : nullptr, in, reciprocal_of(g.top_k)};
  args.begin = g.routing + g.first;
  args.c = dw;
  args.experts = g.count;
  args.m = out;
  args.n = in;
  args.accumulate = accumulate;
  args.step = out * in;
  args.stride = in;
  return launch_weights(g, args, stream);
}
template cudaError_t grouped_wgrad(const Grouping&, const bf16*, const bf16*, float*, int64_t, int64_t, bool,
                                   bool, bool, cudaStream_t);
template cudaError_t grouped_wgrad(const Grouping&, const bf16*, const bf16*, bf16*, int64_t, int64_t, bool,
                                   bool, bool, cudaStream_t);

}  // namespace sluice::core::cuda
