// SPDX-License-Identifier: Apache-2.0
// Attention of heads of 129 to 512 on Hopper's own units (compute capability 9.0; attention.cu and
// attention_bwd.cu have the others, and the formulas). A block has two groups of four warps that multiply,
// and one that copies. Tiles have 256 or 512 columns, in panels of 64. In products with scores a group has
// half of a tile's keys, or one of both products. In sums over scores it has half of the columns, which fill
// the registers. Scores pass between the two through shared memory.
//
// Two kinds of tiles stream past what a block owns, a stage of each: one is copied while the other is
// multiplied. Two blocks that read the same ones are a cluster: each brings half of their panels to both.
#pragma once

#include "backend/cuda/hopper/hopper.cuh"
#include "backend/cuda/kernels/attention_hopper.h"
#include "backend/cuda/kernels/attention_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kGroups = 2, kCluster = 2;
constexpr int kMultipliers = kGroups * kGroupThreads, kThreads = kMultipliers + kGroupThreads;
// Registers per thread, out of 65,536.
constexpr int kCopyRegisters = 40, kProductRegisters = 232;
constexpr int kPanel = 64, kLineBytes = kPanel * 2, kPieceBytes = 8 * kLineBytes;
// Rows of tiles. Backward there are as many keys as registers have room for their sums.
constexpr int kQueries = 64, kKeys = 64;
template <int D>
constexpr int kKeysBack = D == 256 ? 64 : 32;
template <int D>
constexpr int kHalf = D / 2;
template <int D>
constexpr int kPanels = D / kPanel;

template <int ROWS>
constexpr int kPanelBytes = ROWS* kLineBytes;
template <int D, int ROWS>
constexpr int kTileBytes = kPanels<D>* kPanelBytes<ROWS>;

// From a lane, so that the compiler knows that a warp's are alike. By whole warps.
__device__ int own_group() {
  return __shfl_sync(kFullWarp, int(threadIdx.x) / kGroupThreads, 0);
}
// The thread's first row of a tile of queries; the second is 8 further on.
__device__ int own_query() {
  return int(threadIdx.x) % kGroupThreads / kWarp * kWarpRows + int(threadIdx.x) % kWarp / 4;
}
// The thread's first of two neighbouring columns of eight.
__device__ int own_pair() {
  return int(threadIdx.x) % 4 * 2;
}
// Where element `column` of row `row` lies in a panel.
__device__ int in_panel(int row, int column) {
  return row * kLineBytes + ((column / kVec) ^ (row % 8)) * 16 + column % kVec * 2;
}
// Until all warps that multiply are here.
__device__ void await_multipliers() {
  await_threads(1, kMultipliers);
}
__device__ unsigned char* aligned_shared() {
  unsigned char* const shared = dynamic_shared();
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}

// Two stages, of a tile each, that both blocks of a cluster fill part by part, two panels each. Of every part
// there is a barrier of when it is here, and one of when both blocks are done with it. Their turns are
// counted.
template <int D>
class Stages {
 public:
  static constexpr int kParts = kPanels<D> / kCluster, kPartsOfGroup = kParts / kGroups;
  static constexpr int kBytes = 2 * 2 * kParts * 8;

  explicit __device__ Stages(const unsigned char* barriers) : barriers_(shared_address(barriers)) {}

  // By one thread, before any other method.
  __device__ void make() const {
    for (int i = 0; i < 2 * kParts; ++i) {
      make_barrier(barriers_ + 16 * i, 1);
      make_barrier(barriers_ + 16 * i + 8, kCluster);
    }
    show_barriers();
  }
  // Brings this block's panel of every part of a tile to both blocks, once these are done with the last
  // tile's. By one thread.
  template <int ROWS>
  __device__ void copy(int stage, const unsigned char* tile, const CUtensorMap* heads, int head,
                       int64_t first, int64_t row) const {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      const uint32_t here = barrier(stage, part);
      await_barrier(here + 8, parity_ ^ 1);
      arrive_expecting(here, kCluster * kPanelBytes<ROWS>);
      const int panel = part * kCluster + int(cluster_rank());
      copy_box_to_all(shared_address(tile) + panel * kPanelBytes<ROWS>, heads, panel * kPanel, head,
                      int(first), int(row), here, (1 << kCluster) - 1);
    }
  }
  __device__ void await(int stage, int part) const {
    await_barrier(barrier(stage, part), parity_);
  }
  // The group's half of the columns.
  __device__ void await_half(int stage) const {
    for (int i = 0; i < kPartsOfGroup; ++i) await(stage, own_group() * kPartsOfGroup + i);
  }
  // By all threads of a group: nobody in this block reads this part of its half any more in this turn.
  __device__ void release(int stage, int part_of_half) const {
    const int thread = int(threadIdx.x) % kGroupThreads;
    const uint32_t here = barrier(stage, own_group() * kPartsOfGroup + part_of_half);
    if (thread % kWarp == 0 && thread / kWarp < kCluster) arrive_at(here + 8, uint32_t(thread / kWarp));
  }
  __device__ void release_half(int stage) const {
    for (int i = 0; i < kPartsOfGroup; ++i) release(stage, i);
  }
  // A turn whose tiles this block does not read.
  __device__ void pass() const {
    for (int stage = 0; stage < 2; ++stage) {
      await_half(stage);
      release_half(stage);
    }
  }
  __device__ void advance() {
    parity_ ^= 1;
  }

 private:
  __device__ uint32_t barrier(int stage, int part) const {
    return barriers_ + 16 * (stage * kParts + part);
  }

  uint32_t barriers_, parity_ = 0;
};

// Starts and ends a kernel: nobody copies before both blocks have barriers, and nobody leaves while the other
// block may still copy to it.
template <int D>
__device__ void begin_cluster(const Stages<D>& stages) {
  if (threadIdx.x == 0) stages.make();
  __syncthreads();
  await_cluster();
}
__device__ void end_cluster() {
  __syncthreads();
  await_cluster();
}

// The tile of queries of a block and its head. Those of heads that share keys follow each other, so that
// neighbours see the same keys; the last queries see most: they start first.
struct QueryTile {
  int64_t first, head, kv_head, row;
  TileRange range, both;  // of keys; both: of this tile and the other one of the cluster

  explicit __device__ QueryTile(const AttentionSizes& block) : kv_head(blockIdx.y), row(blockIdx.z) {
    const int64_t group = block.q_heads / block.kv_heads, at = gridDim.x - 1 - blockIdx.x;
    first = at / group * kQueries;
    head = kv_head * group + at % group;
    range = tile_range<kQueries>(block, row, first);
    both = tile_range<kQueries>(block, row, (at ^ 1) / group * kQueries);
    both.begin = min(both.begin, range.begin);
    both.end = max(both.end, range.end);
  }
  // The first key of the first of tiles.
  template <int KEYS>
  __device__ int first_key() const {
    return both.begin < both.end ? both.begin / KEYS * KEYS : 0;
  }
};

// Copies rows [first, first + ROWS) of the group's half of a head's columns; what does not exist becomes
// zero.
template <int D, int ROWS>
__device__ void copy_half(unsigned char* tile, const HeadRows<bf16>& head, int64_t first, int head_dim) {
  constexpr int kChunks = kHalf<D> / kVec, kRowsAtOnce = kGroupThreads / kChunks;
  const int thread = int(threadIdx.x) % kGroupThreads;
  const int column = own_group() * kHalf<D> + thread % kChunks * kVec, begin = thread / kChunks;
  unsigned char* const panel = tile + column / kPanel * kPanelBytes<ROWS>;
#pragma unroll
  for (int i = 0; i < ROWS / kRowsAtOnce; ++i) {
    const int row = begin + i * kRowsAtOnce;
    const bool valid = first + row < head.count && column < head_dim;
    const bf16* from = valid ? head.base + (first + row) * head.stride + column : head.base;
    copy_async(panel + in_panel(row, column % kPanel), from, valid);
  }
}
// Until the copies of both groups are there.
__device__ void await_halves() {
  close_copies();
  await_copies<0>();
  see_copies();
  await_multipliers();
}

// A tile whose rows lie along k, from row `first` on, and a panel that has a row for each k.
__device__ uint64_t along(const unsigned char* tile, int first = 0) {
  return matrix_at(shared_address(tile) + first * kLineBytes, 16, kPieceBytes);
}
template <int ROWS>
__device__ uint64_t across(const unsigned char* panel) {
  return matrix_at(shared_address(panel), kPanelBytes<ROWS>, kPieceBytes);
}
// From a product to the next 16 of k, in units of 16 bytes.
constexpr int kAlong = 2, kAcross = 16 * kLineBytes / 16;

// scores = a b^T, of tiles of A and B rows, of which N of B from b on; one of the two is that of a stage.
// Returns when they are there.
template <int D, int A, int B, int N>
__device__ void multiply_heads(float (&scores)[N / 2], uint64_t a, uint64_t b, const Stages<D>& stages,
                               int stage) {
  pin(scores);
#pragma unroll
  for (int part = 0; part < Stages<D>::kParts; ++part) {
    stages.await(stage, part);
    begin_products();
#pragma unroll
    for (int i = 0; i < kCluster * kPanel / 16; ++i) {
      const int panel = part * kCluster + i / (kPanel / 16), k = i % (kPanel / 16);
      GroupProduct<N, 0, 0>::add(scores, a + panel * (kPanelBytes<A> / 16) + k * kAlong,
                                 b + panel * (kPanelBytes<B> / 16) + k * kAlong, part + i > 0);
    }
    close_products();
  }
  await_products<0>(scores);
}

// sums += weights b, of so many keys and the group's half of b's columns, which is here. Returns when they
// are there.
template <int D, int KEYS>
__device__ void add_columns(float (&sums)[kHalf<D> / 2], const unsigned char* weights,
                            const unsigned char* b) {
  const uint64_t w = along(weights), columns = across<KEYS>(b + own_group() * (kTileBytes<D, KEYS> / 2));
  begin_products(sums);
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k)
    GroupProduct<kHalf<D>, 0, 1>::add(sums, w + k * kAlong, columns + k * kAcross, 1);
  close_products();
  await_products<0>(sums);
}

// Writes the group's half of the columns of a tile of queries, times factors of the thread's rows.
template <int D>
__device__ void store_queries(const float (&sums)[kHalf<D> / 2], const HeadRows<bf16>& out, int64_t first,
                              int head_dim, const float (&factor)[2]) {
  const int begin = own_group() * kHalf<D>;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = first + own_query() + 8 * r;
    if (row >= out.count) continue;
    bf16* const to = const_cast<bf16*>(out.base) + row * out.stride;
#pragma unroll
    for (int n = 0; n < kHalf<D> / 8; ++n) {
      const int column = begin + n * 8;
      if (column >= head_dim) continue;
      *reinterpret_cast<uint32_t*>(to + column + own_pair()) =
          pack_bf16(sums[4 * n + 2 * r] * factor[r], sums[4 * n + 2 * r + 1] * factor[r]);
    }
  }
}

// Heads of a matrix, in boxes of so many rows of a panel.
cudaError_t describe_heads(const bf16* data, const AttentionSizes& block, int64_t heads, int64_t length,
                           int box_rows, CUtensorMap& map) {
  const auto line = cuuint64_t(block.head_dim * 2);
  const cuuint64_t sizes[] = {cuuint64_t(block.head_dim), cuuint64_t(heads), cuuint64_t(length),
                              cuuint64_t(block.rows)};
  const cuuint64_t strides[] = {line, line * sizes[1], line * sizes[1] * sizes[2]};
  const cuuint32_t box[] = {kPanel, 1, cuuint32_t(box_rows), 1};
  return describe_boxes(data, sizes, strides, box, map);
}

// Starts clusters of a kernel, for so many tiles of each key head; one more where they are odd.
template <class... Params, class... Args>
cudaError_t start(void (*kernel)(Params...), const AttentionSizes& block, int64_t tiles, size_t shared,
                  cudaStream_t stream, const Args&... args) {
  ClusterLaunch launch(kCluster, kThreads, shared, stream);
  const auto status = launch.prepare(kernel);
  if (status != cudaSuccess) return status;
  launch.config.gridDim =
      dim3(blocks_for(tiles, kCluster) * kCluster, unsigned(block.kv_heads), unsigned(block.rows));
  return cudaLaunchKernelEx(&launch.config, kernel, static_cast<Params>(args)...);
}

int64_t query_tiles(const AttentionSizes& block) {
  return (block.q_len + kQueries - 1) / kQueries * (block.q_heads / block.kv_heads);
}

}  // namespace
}  // namespace sluice::core::cuda
