// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights, y = x w^T. Reading w is what takes time. A block makes 16 columns of y
// from as many rows of w. Its warps take turns along them, each with a ring of chunks in shared memory that
// it fills and reads alone. The first chunks are under way before the kernel before has ended. Tensor cores
// multiply, so that eight rows of x take hardly longer than one; the order of the sums does not depend on how
// many there are.
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/rotation.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kTileColumns = 8;  // rows of w that are an operand of the tensor cores
constexpr int kTiles = 2, kColumns = kTiles * kTileColumns;
constexpr int kChunk = 128;  // elements of each row of w that a warp takes at once
constexpr int kStages = 2;   // chunks of a warp's ring
constexpr int kStep =
    4 * kVec;  // elements of a row that a warp multiplies at once: eight for each of four threads
constexpr int kSteps = kChunk / kStep;
// In shared memory rows are half a turn of the banks apart, so that the eight threads that read at once meet
// none twice.
constexpr int kRowBytes = kChunk * int(sizeof(bf16)) + 64;
constexpr int kChunkBytes = kColumns * kRowBytes, kRingBytes = kStages * kChunkBytes;
constexpr int kRowLanes = kChunk / kVec, kRowsAtOnce = kWarp / kRowLanes;  // of a warp that copies
static_assert(kRowBytes % 128 == 64 && kTileColumns % kRowsAtOnce == 0);
constexpr int kResults = kColumns * int(kFewRows);
static_assert(kFewRows == 8 && kResults <= kThreads);

// Which columns a tile makes: where heads are rotated four pairs of one of them, first elements before second
// ones, else eight in a row.
struct Tile {
  int64_t first;
  int64_t apart;  // from a column of the first half to that of the second
  int pair;       // of the rotation: the first of the four; -1: none

  __device__ int64_t column(int j) const {
    constexpr int kHalf = kTileColumns / 2;
    return first + j % kHalf + j / kHalf * apart;
  }
};
__device__ Tile tile_of(const FewRows& p, int64_t tile) {
  constexpr int kHalf = kTileColumns / 2;
  const int64_t per_head = p.rope_heads > 0 ? p.head_dim / kTileColumns : 1,
                rotated = p.rope_heads * per_head;
  if (tile >= rotated) return {p.rope_heads * p.head_dim + (tile - rotated) * kTileColumns, kHalf, -1};
  const int pair = int(tile % per_head) * kHalf;
  return {tile / per_head * p.head_dim + pair, p.head_dim / 2, pair};
}

__device__ const bf16* row_of(const FewRows& p, int row) {
  if (p.spans == nullptr) return p.x + row * p.in;
  const int64_t count = p.spans[2 * row + 1];
  const int64_t last = count < 1 ? 0 : count > p.q_len ? p.q_len - 1 : count - 1;
  return p.x + (row * p.q_len + last) * p.in;
}

// cos and sin of a token's pair, its angle reduced to one turn in double precision.
__device__ void rotation(const FewRows& p, int row, int pair, float& cos, float& sin) {
  constexpr double kInverseTurn = 0.15915494309189535;  // 1 / (2 pi)
  const double turns = double(p.rotary.pos[row]) * double(p.rotary.inv_freq[pair]) * kInverseTurn;
  sincospif(float(2.0 * (turns - rint(turns))), &sin, &cos);
  const RotationScales scales = rotation_scales(p.rotary, row);
  cos *= p.rotary.inv_freq[pair] == 0 ? scales.still : scales.turned;
  sin *= scales.turned;
}

// Eight elements of x, or zeros.
__device__ uint4 load_x(const bf16* x, bool there) {
  return there ? *reinterpret_cast<const uint4*>(x) : make_uint4(0, 0, 0, 0);
}

template <class T>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(FewRows p, T* y) {
  __shared__ float partial[kWarps][kResults], total[kResults];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, in = int(p.in);
  unsigned char* const ring = dynamic_shared() + warp * kRingBytes;
  Tile tiles[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) tiles[n] = tile_of(p, int64_t{blockIdx.x} * kTiles + n);

  // The warp's chunk of a round; what is not there is zero.
  const auto copy_chunk = [&](int round) {
    const int k = (round * kWarps + warp) * kChunk + lane % kRowLanes * kVec;
    unsigned char* const to = ring + round % kStages * kChunkBytes + lane % kRowLanes * sizeof(uint4);
#pragma unroll
    for (int i = 0; i < kColumns; i += kRowsAtOnce) {
      const int row = i + lane / kRowLanes;
      const int64_t column = tiles[i / kTileColumns].column(row % kTileColumns);
      const bool there = k < in && column < p.out;
      copy_async(to + row * kRowBytes, p.w + (there ? column * p.in + k : 0), there);
    }
  };
  const int rounds = (in + kWarps * kChunk - 1) / (kWarps * kChunk);
  for (int round = 0; round < kStages; ++round) {
    if (round < rounds) copy_chunk(round);
    close_copies();
  }
  let_next_begin();
  await_previous();

  // A thread has four times eight elements of row lane / 4 of x, and as many of that row of each tile. Tensor
  // cores want them spread otherwise; since they are of both operands alike, only the order of the sum
  // differs.
  const int row = lane / 4, own = lane % 4 * kVec;
  const bool has_row = row < p.rows;
  const bf16* const x = has_row ? row_of(p, row) : p.x;
  float c[kTiles][2][4] = {};
  for (int round = 0; round < rounds; ++round) {
    const int k = (round * kWarps + warp) * kChunk + own;
    uint4 v[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) v[i] = load_x(x + k + i * kStep, has_row && k + i * kStep < in);
    await_copies<kStages - 1>();
    __syncwarp();  // what all lanes copied is here
    const unsigned char* const from =
        ring + round % kStages * kChunkBytes + row * kRowBytes + own * int(sizeof(bf16));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 w = *reinterpret_cast<const uint4*>(from + n * kTileColumns * kRowBytes + i * kStep * 2);
        multiply_add(c[n][0], {v[i].x, 0, v[i].y, 0}, w.x, w.y);
        multiply_add(c[n][1], {v[i].z, 0, v[i].w, 0}, w.z, w.w);
      }
    }
    __syncwarp();  // all lanes have read it
    if (round + kStages < rounds) copy_chunk(round + kStages);
    close_copies();
  }

#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = n * kTileColumns + lane % 4 * 2 + i;
      partial[warp][j * kFewRows + row] = c[n][0][i] + c[n][1][i];
    }
  }
  __syncthreads();
  const int result = threadIdx.x, out_row = result % int(kFewRows), j = result / int(kFewRows) % kTileColumns;
  const Tile tile = tile_of(p, int64_t{blockIdx.x} * kTiles + result / int(kFewRows) / kTileColumns);
  const int64_t column = tile.column(j);
  const bool makes = result < kResults && out_row < p.rows && column < p.out;
  if (makes) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][result];
    if (p.bias != nullptr) sum += to_float(p.bias[column]);
    if (p.residual != nullptr) sum += to_float(p.residual[out_row * p.out + column]);
    total[result] = sum;
  }
  __syncthreads();
  if (!makes) return;
  float value = total[result];
  if (p.softcap > 0) value = p.softcap * tanh_of(value / p.softcap);
  if (tile.pair >= 0) {
    constexpr int kHalf = kTileColumns / 2, kOther = kHalf * int(kFewRows);
    float cos, sin;
    rotation(p, out_row, tile.pair + j % kHalf, cos, sin);
    value =
        j < kHalf ? value * cos - total[result + kOther] * sin : value * cos + total[result - kOther] * sin;
  }
  store_float(y + out_row * p.out + column, value);
}

template <class T>
cudaError_t run(const FewRows& p, T* y, Queue queue) {
  return launch(few_rows_kernel<T>, dim3(blocks_for(p.out, kColumns)), kThreads, kWarps * kRingBytes, queue,
                p, y);
}

}  // namespace

cudaError_t few_rows(const FewRows& product, bf16* y, Queue queue) {
  return run(product, y, queue);
}

cudaError_t few_rows(const FewRows& product, float* y, Queue queue) {
  return run(product, y, queue);
}

cudaError_t last_logits(FewRows product, float* logits, Queue queue) {
  const int64_t rows = product.rows;
  for (int64_t first = 0; first < rows; first += kFewRows) {
    product.rows = rows - first < kFewRows ? rows - first : kFewRows;
    const cudaError_t status = run(product, logits + first * product.out, queue);
    if (status != cudaSuccess) return status;
    product.x += kFewRows * product.q_len * product.in;
    product.spans += 2 * kFewRows;
  }
  return cudaSuccess;
}

bool kernels_begin_early() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, few_rows_kernel<bf16>);
  return status == cudaSuccess && attributes.ptxVersion >= 90;
}

}  // namespace sluice::core::cuda
