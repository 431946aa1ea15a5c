// SPDX-License-Identifier: Apache-2.0
// Attention of heads of 129 to 512 on Hopper's own units (compute capability 9.0; attention.cu and
// attention_bwd.cu have the others, and the formulas). A block has two groups of four warps that multiply,
// and one that copies. Tiles have 256 or 512 columns, in panels of 64. In products with scores a group has
// half of a tile's keys, or one of both products. In sums over scores it has half of the columns, which fill
// the registers. Scores pass between the two through shared memory.
//
// Two kinds of tiles stream past what a block owns, a stage of each: one is copied while the other is
// multiplied. Two blocks that read the same ones are a cluster: each brings half of their panels to both.
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

// Queries, keys and values, weights of keys, and what the groups tell each other of every query.
template <int D>
struct ForwardTiles {
  unsigned char* base;

  __device__ unsigned char* q() const { return base; }
  __device__ unsigned char* k() const { return base + kTileBytes<D, kQueries>; }
  __device__ unsigned char* v() const { return k() + kTileBytes<D, kKeys>; }
  __device__ unsigned char* weights() const { return v() + kTileBytes<D, kKeys>; }
  __device__ float& of_query(int group, int query) const {
    return reinterpret_cast<float*>(weights() + kPanelBytes<kQueries>)[group * kQueries + query];
  }
  __device__ unsigned char* barriers() const {
    return weights() + kPanelBytes<kQueries> + kGroups * kQueries * sizeof(float);
  }
  static constexpr size_t bytes() {
    return 1024 + kTileBytes<D, kQueries> + 2 * kTileBytes<D, kKeys> + kPanelBytes<kQueries> +
           kGroups * kQueries * sizeof(float) + Stages<D>::kBytes;
  }
};

// Clusters of two blocks per (pair of tiles of queries, key head, row).
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_fwd_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap kv_heads,
                                bf16* o, float* lse) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const ForwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), group = own_group();
  const QueryTile own(block);
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  int key = own.first_key<kKeys>();
  if (group == kGroups) {
    give_up_registers<kCopyRegisters>();
    for (; threadIdx.x == kMultipliers && key < own.both.end; key += kKeys, stages.advance()) {
      stages.template copy<kKeys>(0, tiles.k(), &kv_heads, int(own.kv_head), key, own.row);
      stages.template copy<kKeys>(1, tiles.v(), &kv_heads, int(block.kv_heads + own.kv_head), key, own.row);
    }
  } else {
    take_registers<kProductRegisters>();
    const KeyRange seen[2] = {visible_keys(block, own.row, own.first + own_query()),
                              visible_keys(block, own.row, own.first + own_query() + 8)};
    const float scale = block.scale * kLog2E;
    float sums[kHalf<D> / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};  // sums over the group's keys
    copy_half<D, kQueries>(tiles.q(), query_rows(block, block.q, own.row, own.head), own.first, head_dim);
    await_halves();
    for (; key < own.both.end; key += kKeys, stages.advance()) {
      if (!own.range.touches(key, kKeys)) {
        stages.pass();
        continue;
      }
      float s[kKeys / 4];
      multiply_heads<D, kQueries, kKeys, kKeys / 2>(s, along(tiles.q()),
                                                    along(tiles.k(), group * (kKeys / 2)), stages, 0);
      const bool masked = !own.range.covers(key, kKeys);
      float top[2] = {row_max[0], row_max[1]};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int r = i / 2 % 2;
        if (block.softcap > 0) s[i] = capped(s[i], block.scale, block.softcap);
        if (masked && !seen[r].has(key + group * (kKeys / 2) + i / 4 * 8 + own_pair() + i % 2))
          s[i] = -INFINITY;
        top[r] = fmaxf(top[r], s[i]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(top[r], __shfl_xor_sync(kFullWarp, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(kFullWarp, top[r], 2));
        tiles.of_query(group, own_query() + 8 * r) = top[r];
      }
      // Both groups' largest scores are here, and they are done with K and the last weights.
      await_multipliers();
      stages.release_half(0);
      float rescale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(top[r], tiles.of_query(1 - group, own_query() + 8 * r));
        const float base = top[r] == -INFINITY ? 0.0f : top[r] * scale;
        rescale[r] = exp2f(row_max[r] * scale - base);
        row_max[r] = top[r];
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float low = exp2f(s[4 * n + 2 * r] * scale - base);
          const float high = exp2f(s[4 * n + 2 * r + 1] * scale - base);
          sum += low + high;
          const int column = group * (kKeys / 2) + n * 8 + own_pair();
          *reinterpret_cast<uint32_t*>(tiles.weights() + in_panel(own_query() + 8 * r, column)) =
              pack_bf16(low, high);
        }
        row_sum[r] = row_sum[r] * rescale[r] + sum;
      }
      if (__any_sync(kFullWarp, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < kHalf<D> / 2; ++i) sums[i] *= rescale[i / 2 % 2];
      }
      see_copies();
      await_multipliers();  // all weights are here
      stages.await_half(1);
      add_columns<D, kKeys>(sums, tiles.weights(), tiles.v());
      stages.release_half(1);
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_sum[r] += __shfl_xor_sync(kFullWarp, row_sum[r], 1);
      row_sum[r] += __shfl_xor_sync(kFullWarp, row_sum[r], 2);
    }
    await_multipliers();  // nobody reads largest scores any more
#pragma unroll
    for (int r = 0; r < 2; ++r) tiles.of_query(group, own_query() + 8 * r) = row_sum[r];
    await_multipliers();
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = own_query() + 8 * r;
      const float sum = tiles.of_query(0, query) + tiles.of_query(1, query);
      inverse[r] = sum > 0 ? 1.0f / sum : 0.0f;
      if (group == 0 && threadIdx.x % 4 == 0 && own.first + query < block.q_len) {
        lse[(own.row * block.q_heads + own.head) * block.q_len + own.first + query] =
            sum > 0 ? row_max[r] * block.scale + logf(sum) : -INFINITY;
      }
    }
    store_queries<D>(sums, query_rows<bf16>(block, o, own.row, own.head), own.first, head_dim, inverse);
  }
  end_cluster();
#endif
}

// A tile of queries with the gradients of their outputs and one of keys with their values; of both, weights
// and their gradients; what the groups exchange.
template <int D>
struct BackwardTiles {
  static constexpr int kGiven = kKeysBack<D> / 16;  // vectors of what a thread gives

  unsigned char* base;

  __device__ unsigned char* q() const { return base; }
  __device__ unsigned char* d_o() const { return q() + kTileBytes<D, kQueries>; }
  __device__ unsigned char* k() const { return d_o() + kTileBytes<D, kQueries>; }
  __device__ unsigned char* v() const { return k() + kTileBytes<D, kKeysBack<D>>; }
  __device__ unsigned char* p() const { return v() + kTileBytes<D, kKeysBack<D>>; }
  __device__ unsigned char* ds() const { return p() + kPanelBytes<kQueries>; }
  __device__ float4& given(int group, int i) const {
    auto* const all = reinterpret_cast<float4*>(ds() + kPanelBytes<kQueries>);
    return all[(group * kGiven + i) * kGroupThreads + int(threadIdx.x) % kGroupThreads];
  }
  __device__ unsigned char* barriers() const {
    return ds() + kPanelBytes<kQueries> + kGiven * kMultipliers * sizeof(float4);
  }
  static constexpr size_t bytes() {
    constexpr int kTiles = kTileBytes<D, kQueries> + kTileBytes<D, kKeysBack<D>> + kPanelBytes<kQueries>;
    return 1024 + 2 * kTiles + kGiven * kMultipliers * sizeof(float4) + Stages<D>::kBytes;
  }
};
static_assert(ForwardTiles<512>::bytes() <= 227 * 1024 && BackwardTiles<512>::bytes() <= 227 * 1024 &&
              BackwardTiles<256>::bytes() <= 227 * 1024);

// A query's values for the keys of a tile; lse in powers of two.
struct TileQuery {
  KeyRange seen;
  float lse, delta;

  __device__ TileQuery(const AttentionSizes& block, const float* all_lse, const float* all_delta, int64_t row,
                       int64_t head, int64_t i)
      : seen(visible_keys(block, row, i)), lse(0), delta(0) {
    if (i >= block.q_len) return;
    const int64_t at = (row * block.q_heads + head) * block.q_len + i;
    lse = all_lse[at] * kLog2E;
    delta = all_delta[at];
  }
};

// Weights p and their gradients ds of a tile, which go to shared memory. A group multiplies one of the two
// pairs of tiles and gives half of what comes of it to the other group. Then it has half of the keys of
// both. Calls `between` when both groups have multiplied. All are there when it returns.
template <int D, class Between>
__device__ void weigh(const BackwardTiles<D>& tiles, const AttentionSizes& block,
                      const TileQuery (&queries)[2], int first_key, const Stages<D>& stages,
                      Between between) {
  constexpr int kOwn = kKeysBack<D> / 2;  // keys of a group
  const int group = own_group();
  float product[kOwn];
  multiply_heads<D, kQueries, kKeysBack<D>, kKeysBack<D>>(
      product, along(group == 0 ? tiles.q() : tiles.d_o()), along(group == 0 ? tiles.k() : tiles.v()), stages,
      group);
#pragma unroll
  for (int n = 0; n < kOwn / 8; ++n) {
    const float *low = product + 4 * n, *high = low + kOwn / 2;
    tiles.given(group, n) = group == 0 ? make_float4(high[0], high[1], high[2], high[3])
                                       : make_float4(low[0], low[1], low[2], low[3]);
  }
  await_multipliers();
  between();
#pragma unroll
  for (int n = 0; n < kOwn / 8; ++n) {
    const float4 got = tiles.given(1 - group, n);
    const float others[4] = {got.x, got.y, got.z, got.w};
    float p[4], ds[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const TileQuery& query = queries[i / 2];
      const float own = group == 0 ? product[4 * n + i] : product[kOwn / 2 + 4 * n + i];
      const float dp = group == 0 ? others[i] : own;
      float s = group == 0 ? own : others[i], slope = 1;
      if (block.softcap > 0) {
        s = capped(s, block.scale, block.softcap);
        slope = cap_slope(s, block.scale, block.softcap);
      }
      const bool visible = query.seen.has(first_key + group * kOwn + n * 8 + own_pair() + i % 2);
      p[i] = visible ? exp2f(s * (block.scale * kLog2E) - query.lse) : 0.0f;
      ds[i] = p[i] * (dp - query.delta) * slope;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = in_panel(own_query() + 8 * r, group * kOwn + n * 8 + own_pair());
      *reinterpret_cast<uint32_t*>(tiles.p() + at) = pack_bf16(p[2 * r], p[2 * r + 1]);
      *reinterpret_cast<uint32_t*>(tiles.ds() + at) = pack_bf16(ds[2 * r], ds[2 * r + 1]);
    }
  }
  see_copies();
  await_multipliers();
}

// Clusters of two blocks per (pair of tiles of queries, key head, row): dq.
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_dq_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap kv_heads,
                               const bf16* d_o, const float* lse, const float* delta, bf16* dq) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const BackwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), group = own_group();
  const QueryTile own(block);
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  int key = own.first_key<kKeysBack<D>>();
  if (group == kGroups) {
    give_up_registers<kCopyRegisters>();
    for (; threadIdx.x == kMultipliers && key < own.both.end; key += kKeysBack<D>, stages.advance()) {
      stages.template copy<kKeysBack<D>>(0, tiles.k(), &kv_heads, int(own.kv_head), key, own.row);
      stages.template copy<kKeysBack<D>>(1, tiles.v(), &kv_heads, int(block.kv_heads + own.kv_head), key,
                                         own.row);
    }
  } else {
    take_registers<kProductRegisters>();
    const TileQuery queries[2] = {{block, lse, delta, own.row, own.head, own.first + own_query()},
                                  {block, lse, delta, own.row, own.head, own.first + own_query() + 8}};
    float sums[kHalf<D> / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    copy_half<D, kQueries>(tiles.q(), query_rows(block, block.q, own.row, own.head), own.first, head_dim);
    copy_half<D, kQueries>(tiles.d_o(), query_rows(block, d_o, own.row, own.head), own.first, head_dim);
    await_halves();
    for (; key < own.both.end; key += kKeysBack<D>, stages.advance()) {
      if (!own.range.touches(key, kKeysBack<D>)) {
        stages.pass();
        continue;
      }
      // Both groups have multiplied: nobody reads values any more.
      weigh(tiles, block, queries, key, stages, [&] {
        stages.await_half(1);
        stages.release_half(1);
      });
      stages.await_half(0);
      add_columns<D, kKeysBack<D>>(sums, tiles.ds(), tiles.k());
      stages.release_half(0);
    }
    const float factor[2] = {block.scale, block.scale};
    store_queries<D>(sums, query_rows<bf16>(block, dq, own.row, own.head), own.first, head_dim, factor);
  }
  end_cluster();
#endif
}

// Sums of keys lie turned: a panel of columns by keys.
template <int D>
using KeySums = float[kHalf<D> / kPanel][kKeysBack<D> / 2];

// sums += the group's half of a's columns, turned, times weights, a part after the other: products that are
// on their way.
template <int D>
__device__ void add_turned(KeySums<D>& sums, const unsigned char* a, const unsigned char* weights) {
  const uint64_t columns = across<kQueries>(a + own_group() * (kTileBytes<D, kQueries> / 2));
  const uint64_t w = across<kQueries>(weights);
#pragma unroll
  for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
    for (int k = 0; k < kQueries / 16; ++k)
      GroupProduct<kKeysBack<D>, 1, 1>::add(
          sums[panel], columns + panel * (kPanelBytes<kQueries> / 16) + k * kAcross, w + k * kAcross, 1);
    if (panel % kCluster == kCluster - 1) close_products();
  }
}
// Waits for these products of both sums, and releases parts as they end.
template <int D, int kDone = 0>
__device__ void release_in_turn(const Stages<D>& stages) {
  constexpr int kOfStage = Stages<D>::kPartsOfGroup;
  if constexpr (kDone < 2 * kOfStage) {
    await_products<2 * kOfStage - 1 - kDone>();
    stages.release(kDone / kOfStage, kDone % kOfStage);
    release_in_turn<D, kDone + 1>(stages);
  }
}
template <int D>
__device__ void store_keys(const KeySums<D>& sums, bf16* base, const HeadRows<bf16>& rows, int first,
                           int head_dim, float factor) {
  const int lane = int(threadIdx.x) % kWarp, begin = own_group() * kHalf<D> + own_query() - lane / 4;
#pragma unroll
  for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
    for (int i = 0; i < kKeysBack<D> / 2; i += 2) {
      const uint32_t pair = turned(pack_bf16(sums[panel][i] * factor, sums[panel][i + 1] * factor));
      const int key = first + i / 4 * 8 + lane / 4;
      const int column = begin + panel * kPanel + i / 2 % 2 * 8;
      if (key < rows.count && column < head_dim)
        *reinterpret_cast<uint32_t*>(base + key * rows.stride + column + own_pair()) = pair;
    }
  }
}

// Clusters of two blocks per (pair of tiles of keys, key head, row): dk and dv.
template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_hopper_dkv_kernel(AttentionBlock<bf16> block, const __grid_constant__ CUtensorMap q_heads,
                                const __grid_constant__ CUtensorMap d_o_heads, const float* lse,
                                const float* delta, bf16* dkv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const BackwardTiles<D> tiles{aligned_shared()};
  const int head_dim = int(block.head_dim), first = int(blockIdx.x) * kKeysBack<D>;
  const int64_t kv_head = blockIdx.y, row = blockIdx.z, shared = block.q_heads / block.kv_heads;
  Stages<D> stages(tiles.barriers());
  begin_cluster(stages);
  constexpr int kBoth = kCluster * kKeysBack<D>;
  QuerySteps<kBoth, kQueries> step(block, row, first / kBoth * kBoth);
  if (own_group() == kGroups) {
    give_up_registers<kCopyRegisters>();
    // One warp looks for tiles, of which one thread copies.
    for (; threadIdx.x < kMultipliers + kWarp && !step.done(); step.advance(), stages.advance()) {
      const int head = int(kv_head * shared) + step.head;
      if (threadIdx.x == kMultipliers) {
        stages.template copy<kQueries>(0, tiles.q(), &q_heads, head, step.query, row);
        stages.template copy<kQueries>(1, tiles.d_o(), &d_o_heads, head, step.query, row);
      }
      __syncwarp();
    }
  } else {
    take_registers<kProductRegisters>();
    const HeadRows<bf16> k_rows = key_rows(block, row, kv_head);
    KeySums<D> dk, dv;
#pragma unroll
    for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) {
#pragma unroll
      for (int i = 0; i < kKeysBack<D> / 2; ++i) dk[panel][i] = dv[panel][i] = 0;
    }
    copy_half<D, kKeysBack<D>>(tiles.k(), k_rows, first, head_dim);
    copy_half<D, kKeysBack<D>>(tiles.v(), value_rows(block, row, kv_head), first, head_dim);
    await_halves();
    for (; !step.done(); stages.advance()) {
      const int64_t head = kv_head * shared + step.head, i = step.query + own_query();
      const TileQuery queries[2] = {{block, lse, delta, row, head, i}, {block, lse, delta, row, head, i + 8}};
      weigh(tiles, block, queries, first, stages, [] {});
      stages.await_half(0);
      stages.await_half(1);
      begin_products();
      add_turned<D>(dk, tiles.q(), tiles.ds());
      add_turned<D>(dv, tiles.d_o(), tiles.p());
      step.advance();  // while products run
      release_in_turn<D>(stages);
    }
#pragma unroll
    for (int panel = 0; panel < kHalf<D> / kPanel; ++panel) pin(dk[panel]), pin(dv[panel]);
    bf16* const out = dkv + key_offset(block, row, kv_head);
    store_keys<D>(dk, out, k_rows, first, head_dim, block.scale);
    store_keys<D>(dv, out + value_offset(block), k_rows, first, head_dim, 1.0f);
  }
  end_cluster();
#endif
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
  const auto status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(blocks_for(tiles, kCluster) * kCluster, unsigned(block.kv_heads), unsigned(block.rows));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kCluster, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

int64_t query_tiles(const AttentionSizes& block) {
  return (block.q_len + kQueries - 1) / kQueries * (block.q_heads / block.kv_heads);
}

template <int D>
cudaError_t run_forward(const AttentionBlock<bf16>& block, bf16* o, float* lse, cudaStream_t stream) {
  CUtensorMap kv_heads;
  const auto status = describe_heads(block.kv, block, 2 * block.kv_heads, block.kv_len, kKeys, kv_heads);
  if (status != cudaSuccess) return status;
  return start(attention_hopper_fwd_kernel<D>, block, query_tiles(block), ForwardTiles<D>::bytes(), stream,
               block, kv_heads, o, lse);
}

template <int D>
cudaError_t run_backward(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                         const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream) {
  CUtensorMap kv_heads, q_heads, d_o_heads;
  auto status = describe_heads(block.kv, block, 2 * block.kv_heads, block.kv_len, kKeysBack<D>, kv_heads);
  if (status == cudaSuccess)
    status = describe_heads(block.q, block, block.q_heads, block.q_len, kQueries, q_heads);
  if (status == cudaSuccess)
    status = describe_heads(d_o, block, block.q_heads, block.q_len, kQueries, d_o_heads);
  if (status == cudaSuccess)
    status = start(attention_hopper_dkv_kernel<D>, block, (block.kv_len + kKeysBack<D> - 1) / kKeysBack<D>,
                   BackwardTiles<D>::bytes(), stream, block, q_heads, d_o_heads, lse, delta, dkv);
  if (status != cudaSuccess) return status;
  return start(attention_hopper_dq_kernel<D>, block, query_tiles(block), BackwardTiles<D>::bytes(), stream,
               block, kv_heads, d_o, lse, delta, dq);
}

}  // namespace

bool hopper_attention(int64_t head_dim) {
  return head_dim > 128 && head_dim <= 512 && is_hopper();
}

cudaError_t hopper_attention_fwd(const AttentionBlock<bf16>& block, bf16* o, float* lse,
                                 cudaStream_t stream) {
  return block.head_dim > 256 ? run_forward<512>(block, o, lse, stream)
                              : run_forward<256>(block, o, lse, stream);
}

cudaError_t hopper_attention_bwd(const AttentionBlock<bf16>& block, const bf16* d_o, const float* lse,
                                 const float* delta, bf16* dq, bf16* dkv, cudaStream_t stream) {
  return block.head_dim > 256 ? run_backward<512>(block, d_o, lse, delta, dq, dkv, stream)
                              : run_backward<256>(block, d_o, lse, delta, dq, dkv, stream);
}

}  // namespace sluice::core::cuda
