// SPDX-License-Identifier: Apache-2.0
// Products over the rows of each expert on Hopper's own units (compute capability 9.0; grouped.cu has the
// others, of the same bits). A block stays and takes tiles of 128 rows in turn. Four warps bring a tile's
// pieces of k to shared memory, some ahead. Two groups of four warps multiply 64 rows each. Two blocks of
// neighbouring rows are a cluster: each brings half of what is multiplied with these to both.
//
// Rows of tokens come by copies of 16 bytes; all else by bulk copies of boxes. Such a box may reach into the
// next expert's rows: what comes of them is not stored, or, in a gradient of weights, they are cleared first.
//
// An element is summed up in the order of k, 16 at a time.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "backend/cuda/hopper/grouped_sums.cuh"
#include "backend/cuda/hopper/hopper.cuh"
#include "backend/cuda/kernels/expert_rows.cuh"
#include "backend/cuda/kernels/grouped_hopper.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/kernels/vec.cuh"

namespace sluice::core::cuda {
namespace {

constexpr int kTileRows = 128, kDepth = 64, kChunk = 8;  // elements; a chunk has 16 bytes
constexpr int kGroups = 2;                               // that multiply
constexpr int kCluster = 2;
constexpr int kThreads = (1 + kGroups) * kGroupThreads;
// Registers per thread, out of 65,536.
constexpr int kCopyRegisters = 72, kProductRegisters = 216;
constexpr int kLineBytes = 128, kPieceBytes = 8 * kLineBytes;  // rows of 64 elements, eight of them
constexpr int kRowsBytes = kTileRows * kDepth * 2;
constexpr int kMostExperts = 512;

template <int kColumns>
constexpr int kStageBytes = kRowsBytes + kColumns* kDepth * 2;
// Lines of a box of what has a row for each k: pieces of 64 columns are shared out between the blocks, or
// their lines.
template <int kColumns>
constexpr int kLines = kColumns / 64 % kCluster == 0 ? kDepth : kDepth / kCluster;
template <int kColumns>
constexpr int kStages = kColumns == 256   ? 4
                        : kColumns == 192 ? 5
                                          : 6;
// Stages begin at multiples of 1,024 bytes; behind them are barriers, where experts begin,
// and where sums are turned.
template <int kColumns>
constexpr size_t kSharedBytes = size_t{kStages<kColumns>} * kStageBytes<kColumns> + 1024 +
                                16 * kStages<kColumns> + sizeof(int32_t) * (2 * kMostExperts + 1) +
                                16 + kGroups* kTurnedBytes;

// The tiles of a block, in turn: those of an expert are side by side, those of the same columns first.
//
// A tile of a gradient of weights takes as long as its expert has rows. So the experts with most rows come
// first, and clusters take turns in one order and then in the other: a long tile is followed by a short one.
template <Form kForm, int kColumns>
class Tiles {
 public:
  // `order`: of a gradient of weights, the experts by their rows.
  __device__ Tiles(const int32_t* begin, const int32_t* order, int experts, int64_t m, int64_t n, int rank)
      : begin_(begin),
        order_(order),
        experts_(experts),
        rank_(rank),
        columns_(int((n + kColumns - 1) / kColumns)),
        m_(int(m)),
        cluster_(int(blockIdx.x) / kCluster),
        clusters_(int(gridDim.x) / kCluster),
        at_(cluster_) {}

  // The next one: whether there is one.
  __device__ bool next() {
    for (; turn_ < experts_; ++turn_) {
      expert_ = kForm == Form::Wgrad ? order_[turn_] : turn_;
      first_ = begin_[expert_];
      count_ = begin_[expert_ + 1] - first_;
      constexpr int kShared = kTileRows * kCluster;
      const int down = ((kForm == Form::Wgrad ? m_ : count_) + kShared - 1) / kShared;
      const int here = down * columns_;
      if (at_ - before_ < here) {
        const int tile = at_ - before_;
        column = tile / down * kColumns;
        row = tile % down * kShared + rank_ * kTileRows;
        ++round_;
        at_ = round_ * clusters_ + (round_ % 2 == 0 ? cluster_ : clusters_ - 1 - cluster_);
        return true;
      }
      before_ += here;
    }
    return false;
  }
  __device__ int expert() const { return expert_; }
  __device__ int first() const { return first_; }  // of the expert's rows
  __device__ int count() const { return count_; }

  int row = 0, column = 0;  // of C's tile; rows of Forward and Dgrad count from the expert's first

 private:
  const int32_t *begin_, *order_;
  int experts_, rank_, columns_, m_, cluster_, clusters_;
  int at_, round_ = 0;  // the tile that is next, counted over all experts, and how many came before
  int turn_ = 0, expert_ = 0, before_ = 0, first_ = 0, count_ = 0;
};

// The experts by how many rows they have, most first; of equals the first. All threads do it, and meet then.
__device__ void sort_by_rows(const int32_t* begin, int experts, int32_t* order) {
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    const int count = begin[e + 1] - begin[e];
    int earlier = 0;
#pragma unroll 8
    for (int other = 0; other < experts; ++other) {
      const int rows = begin[other + 1] - begin[other];
      earlier += rows > count || (rows == count && other < e);
    }
    order[earlier] = e;
  }
}

// A stage of the ring, and its turn.
template <int kCount>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kCount) stage = 0, parity ^= 1;
  }
};

// Chunk `chunk` of a line of 64 elements, of which `line` counts from a piece's first.
__device__ uint32_t in_line(int line, int chunk) {
  return uint32_t(line * kLineBytes + ((chunk ^ (line % 8)) * 16));
}
__device__ void copy_chunk(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}

// The copies of rows of tokens by a group of warps, a piece of k at a time.
template <Form kForm>
class Gathering {
 public:
  explicit __device__ Gathering(const RowSource& rows) : rows_(rows) {}

  // From here on for the tile whose first row is `row` of the `count` rows from `first` on.
  __device__ void begin(int first, int count, int row, int depth) {
    first_ = first, row_ = row, depth_ = depth;
    if constexpr (kForm == Form::Wgrad) {
      now_ = line_of(choice_at(0)), next_ = choice_at(2 * kDepth);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int r = row + thread() / kLineChunks + i * (kGroupThreads / kLineChunks);
        lines_[i] = r >= count ? -1 : rows_.token_of(rows_.choice[first + r]);
      }
    }
  }

  // Copies the piece from k0 on to a stage, and arrives once that has ended.
  __device__ void copy(uint32_t stage, int k0, uint32_t ready) {
    if constexpr (kForm == Form::Wgrad) {
      const int part = k0 / kDepth % 2;
      if (k0 > 0 && part == 0) now_ = line_of(next_), next_ = choice_at(k0 + 2 * kDepth);
      // Sixteen threads copy eight lines of two pieces of 64 columns.
      const int chunk = thread() % 16, octet = thread() / 16;
      const uint32_t to = stage + (chunk / kLineChunks * kDepth + octet * 8) * kLineBytes;
      const bool within = row_ + chunk * kChunk < rows_.columns;
      const auto* const from =
          reinterpret_cast<const char*>(rows_.data + (within ? row_ + chunk * kChunk : 0));
      const auto stride = uint32_t(rows_.columns) * 2;
      int lines[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) lines[i] = __shfl_sync(kFullWarp, now_, part * 16 + octet % 2 * 8 + i);
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        copy_chunk(to + in_line(i, chunk % kLineChunks), from + uint64_t{uint32_t(max(lines[i], 0))} * stride,
                   within && lines[i] >= 0);
    } else {
      const int chunk = thread() % kLineChunks, at = k0 + chunk * kChunk;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const bool valid = at < depth_ && lines_[i] >= 0;
        copy_chunk(stage + in_line(thread() / kLineChunks + i * (kGroupThreads / kLineChunks), chunk),
                   valid ? rows_.data + int64_t{lines_[i]} * depth_ + at : rows_.data, valid);
      }
    }
    arrive_when_copied(ready);
  }

 private:
  static constexpr int kEach = kRowsBytes / 16 / kGroupThreads, kLineChunks = kLineBytes / 16;

  static __device__ int thread() {
    return threadIdx.x % kGroupThreads;
  }
  // Wgrad has other rows for each k. Each lane looks up one of those that its warp copies in two pieces, two
  // pieces ahead. What it finds is not used before, so no copy waits for it.
  __device__ int choice_at(int k0) const {
    const int lane = thread() % kWarp;
    const int at = k0 + lane / 16 * kDepth + thread() / kWarp * 16 + lane % 16;
    return at >= depth_ ? -1 : rows_.choice[first_ + at];
  }
  __device__ int line_of(int choice) const {
    return choice < 0 ? -1 : rows_.token_of(choice);
  }

  const RowSource rows_;
  int first_ = 0, row_ = 0, depth_ = 0;
  int lines_[kEach];          // of Forward and Dgrad: the rows that the thread copies chunks of, -1 for none
  int now_ = -1, next_ = -1;  // of Wgrad: the lane's row, and its next choice
};

// Clears lines of a stage's pieces, from `line` on as far as a product reaches: they hold rows of the next
// expert or of nobody. A group clears what it multiplies.
template <int kColumns>
__device__ void clear_behind(uint32_t stage, int line, int group) {
  constexpr int kLineChunks = kLineBytes / 16, kBefore = kTileRows / 64;
  const int thread = threadIdx.x % kGroupThreads, end = (line + 15) / 16 * 16;
  const auto clear = [](uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  };
  if (const int at = line + thread / kLineChunks; at < end) {
    const uint32_t to = stage + at * kLineBytes + thread % kLineChunks * 16;
    clear(to + group * kDepth * kLineBytes);
#pragma unroll
    for (int piece = 0; piece < kColumns / 64; ++piece) clear(to + (kBefore + piece) * kDepth * kLineBytes);
  }
  see_copies();
  await_threads(1 + group, kGroupThreads);
}

// `rows` describes what args.boxes are of, `others` weights, or Wgrad's B.
template <Form kForm, class C, int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_hopper_kernel(const __grid_constant__ HopperArgs<C> args,
                          const __grid_constant__ CUtensorMap rows_map,
                          const __grid_constant__ CUtensorMap others) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kWeights = kForm == Form::Wgrad;
  constexpr int kCount = kStages<kColumns>;
  const uint32_t shared = shared_address(dynamic_shared()), stages = (shared + 1023) / 1024 * 1024;
  const uint32_t full = stages + kCount * kStageBytes<kColumns>, empty = full + 8 * kCount;
  auto* const begin = reinterpret_cast<int32_t*>(dynamic_shared() + (empty + 8 * kCount - shared));
  int32_t* const order = begin + kMostExperts + 1;
  // Behind a whole number of 16 bytes.
  auto* const turning = reinterpret_cast<float*>(begin + 2 * kMostExperts + 4);
  const int group = threadIdx.x / kGroupThreads, thread = threadIdx.x % kGroupThreads;
  const int rank = int(cluster_rank());

  for (int e = threadIdx.x; e <= args.experts; e += kThreads) begin[e] = args.begin[e];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kCount; ++s) {
      make_barrier(full + 8 * s, 1 + (args.boxes ? 0 : kGroupThreads));
      make_barrier(empty + 8 * s, kGroups * kCluster);
    }
    show_barriers();
  }
  __syncthreads();
  if constexpr (kWeights) {
    sort_by_rows(begin, args.experts, order);
    __syncthreads();
  }
  await_cluster();

  Tiles<kForm, kColumns> tile(begin, order, args.experts, args.m, args.n, rank);
  Ring<kCount> ring;
  if (group == kGroups) {
    give_up_registers<kCopyRegisters>();
    Gathering<kForm> gathering(args.rows);
    // Boxes alone are one thread's work.
    while ((thread == 0 || !args.boxes) && tile.next()) {
      const int depth = kWeights ? tile.count() : int(args.k);
      if (!args.boxes) gathering.begin(tile.first(), tile.count(), tile.row, depth);
      for (int k0 = 0; k0 < depth; k0 += kDepth) {
        await_barrier(empty + 8 * ring.stage, ring.parity ^ 1);
        const uint32_t as = stages + ring.stage * kStageBytes<kColumns>, bs = as + kRowsBytes,
                       ready = full + 8 * ring.stage;
        if (thread == 0) {
          arrive_expecting(ready, kColumns * kDepth * 2 + (args.boxes ? kRowsBytes : 0));
          // A block's share of what both need.
          const auto copy = [&](uint32_t to, int x, int y) {
            copy_box_to_all(to, &others, x, y, ready, (1 << kCluster) - 1);
          };
          if constexpr (kForm == Form::Forward) {
            const int first = rank * (kColumns / kCluster);
            copy(bs + first * kLineBytes, k0, tile.expert() * int(args.n) + tile.column + first);
          } else {
            const int y = kWeights ? tile.first() + k0 : tile.expert() * depth + k0;
            constexpr int kPieces = kColumns / 64;
            if constexpr (kLines<kColumns> == kDepth) {
#pragma unroll
              for (int i = 0; i < kPieces / kCluster; ++i) {
                const int piece = rank * (kPieces / kCluster) + i;
                copy(bs + piece * kDepth * kLineBytes, tile.column + piece * 64, y);
              }
            } else {
              const int first = rank * (kDepth / kCluster);
#pragma unroll
              for (int piece = 0; piece < kPieces; ++piece)
                copy(bs + (piece * kDepth + first) * kLineBytes, tile.column + piece * 64, y + first);
            }
          }
          if (args.boxes && kWeights) {
            for (int piece = 0; piece < kTileRows / 64; ++piece)
              copy_box(as + piece * kDepth * kLineBytes, &rows_map, tile.row + piece * 64, tile.first() + k0,
                       ready);
          } else if (args.boxes) {
            copy_box(as, &rows_map, k0, tile.first() + tile.row, ready);
          }
        }
        if (!args.boxes) gathering.copy(as, k0, ready);
        ring.advance();
      }
    }
  } else {
    take_registers<kProductRegisters>();
    constexpr int kAcrossA = kWeights, kAcrossB = kForm != Form::Forward;
    // From a product to the next one along k, in units of 16 bytes.
    constexpr int kStepA = kAcrossA ? 16 * kLineBytes / 16 : 2, kStepB = kAcrossB ? 16 * kLineBytes / 16 : 2;
    const auto release = [&](int stage) {
      if (thread % kWarp != 0 || thread / kWarp >= kCluster) return;
      arrive_at(empty + 8 * stage, uint32_t(thread / kWarp));
    };
    while (tile.next()) {
      const int depth = kWeights ? tile.count() : int(args.k);
      float sums[kColumns / 2];
      int before = -1;
      // The last piece of a gradient of weights may have fewer rows.
      const int whole = kWeights ? depth / kDepth * kDepth : depth;
      for (int k0 = 0; k0 < whole; k0 += kDepth) {
        await_barrier(full + 8 * ring.stage, ring.parity);
        const uint32_t as = stages + ring.stage * kStageBytes<kColumns>;
        if (!args.boxes) see_copies();
        const uint64_t a = matrix_at(as + group * 64 * kLineBytes, 16, kPieceBytes);
        const uint64_t b = matrix_at(as + kRowsBytes, kAcrossB ? kDepth * kLineBytes : 16, kPieceBytes);
        begin_products();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k)
          GroupProduct<kColumns, kAcrossA, kAcrossB>::add(sums, a + k * kStepA, b + k * kStepB, k0 + k > 0);
        close_products();
        await_products<1>();
        if (before >= 0) release(before);
        before = ring.stage;
        ring.advance();
      }
      if (kWeights && whole < depth) {
        await_barrier(full + 8 * ring.stage, ring.parity);
        const uint32_t as = stages + ring.stage * kStageBytes<kColumns>;
        clear_behind<kColumns>(as, depth - whole, group);
        const uint64_t a = matrix_at(as + group * 64 * kLineBytes, 16, kPieceBytes);
        const uint64_t b = matrix_at(as + kRowsBytes, kAcrossB ? kDepth * kLineBytes : 16, kPieceBytes);
#pragma unroll 1
        for (int k = 0; whole + 16 * k < depth; ++k) {
          begin_products();
          GroupProduct<kColumns, kAcrossA, kAcrossB>::add(sums, a + k * kStepA, b + k * kStepB,
                                                          whole + k > 0);
          close_products();
        }
        await_products<0>();
        if (before >= 0) release(before);
        before = ring.stage;
        ring.advance();
      }
      await_products<0>();
      if (before >= 0) release(before);
      if (depth == 0) {
#pragma unroll
        for (float& sum : sums) sum = 0;
      }
      const int64_t first_row = kWeights ? tile.row + (args.turned ? 0 : int64_t{tile.expert()} * args.m)
                                         : int64_t{tile.first()} + tile.row;
      const int rows_left = (kWeights ? int(args.m) : tile.count()) - tile.row;
      Sums<kForm, C, kColumns>(args, tile.expert(), first_row, rows_left, tile.column)
          .store(sums, turning + group * (kTurnedBytes / 4));
    }
  }
  // Nobody leaves while the other block may still write to or arrive at what is its own.
  __syncthreads();
  await_cluster();
#endif
}

// A matrix of `rows` x `columns`, copied in boxes of `box_rows` x 64.
cudaError_t describe(const bf16* data, int64_t rows, int64_t columns, int box_rows, CUtensorMap& map) {
  const cuuint64_t sizes[] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[] = {cuuint64_t(columns) * 2};
  const cuuint32_t box[] = {kDepth, cuuint32_t(box_rows)};
  return describe_boxes(data, sizes, strides, box, map);
}

// How many blocks run at once: whole clusters.
template <class Kernel>
cudaError_t resident_blocks(Kernel kernel, cudaLaunchConfig_t& config, int& blocks) {
  int device = 0, processors = 0, clusters = 0;
  auto status = cudaGetDevice(&device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  config.gridDim = dim3(unsigned(processors / kCluster * kCluster));
  if (status == cudaSuccess) status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  blocks = std::min(processors / kCluster, clusters) * kCluster;
  return status == cudaSuccess && blocks == 0 ? cudaErrorLaunchOutOfResources : status;
}

template <Form kForm, int kColumns, class C>
cudaError_t start(const HopperArgs<C>& args, const CUtensorMap& rows, const CUtensorMap& others,
                  cudaStream_t stream) {
  const auto kernel = grouped_hopper_kernel<kForm, C, kColumns>;
  ClusterLaunch launch(kCluster, kThreads, kSharedBytes<kColumns>, stream);
  auto status = launch.prepare(kernel);
  if (status != cudaSuccess) return status;
  // Cards of a process that have such kernels are alike in this. Threads of several may ask at once.
  static std::atomic<int> known{0};
  int blocks = known;
  if (blocks == 0) {
    status = resident_blocks(kernel, launch.config, blocks);
    if (status != cudaSuccess) return status;
    known = blocks;
  }
  launch.config.gridDim = dim3(unsigned(blocks));
  return cudaLaunchKernelEx(&launch.config, kernel, args, rows, others);
}

// The columns of a tile: wide ones read less, above all of rows that are gathered; those beyond the matrix
// are multiplied for nothing.
template <class F>
cudaError_t with_columns(int64_t n, bool gathers, F f) {
  const auto cost = [&](int64_t columns, double dearer) {
    return double((n + columns - 1) / columns * columns) * dearer;
  };
  const double wide = cost(256, 1), middle = cost(192, gathers ? 1.12 : 1.05), narrow = cost(128, 1.15);
  if (wide <= middle && wide <= narrow) return f(std::integral_constant<int, 256>{});
  if (middle <= narrow) return f(std::integral_constant<int, 192>{});
  return f(std::integral_constant<int, 128>{});
}

template <Form kForm>
cudaError_t over_rows(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y, int64_t n,
                      int64_t k, bool gathers, cudaStream_t stream) {
  HopperArgs<bf16> args{};
  args.rows = {x, gathers ? g.choices() : nullptr, k, reciprocal_of(g.top_k)};
  args.bias = bias;
  args.begin = g.routing + g.first;
  args.c = y;
  args.experts = int(g.count);
  args.n = n;
  args.k = k;
  args.boxes = !gathers;
  CUtensorMap rows{};
  if (args.boxes) {
    const auto status = describe(x, g.rows, k, kTileRows, rows);
    if (status != cudaSuccess) return status;
  }
  return with_columns(n, gathers, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    CUtensorMap weights{};
    const auto status = kForm == Form::Forward ? describe(w, g.count * n, k, kColumns / kCluster, weights)
                                               : describe(w, g.count * k, n, kLines<kColumns>, weights);
    if (status != cudaSuccess) return status;
    return start<kForm, kColumns>(args, rows, weights, stream);
  });
}

}  // namespace

bool hopper_products(int64_t experts) {
  return experts <= kMostExperts && is_hopper();
}

cudaError_t hopper_linear(const Grouping& g, const bf16* x, const bf16* w, const bf16* bias, bf16* y,
                          int64_t out, int64_t in, bool gathers, cudaStream_t stream) {
  return over_rows<Form::Forward>(g, x, w, bias, y, out, in, gathers, stream);
}

cudaError_t hopper_dgrad(const Grouping& g, const bf16* dy, const bf16* w, bf16* dx, int64_t out, int64_t in,
                         bool gathers, cudaStream_t stream) {
  return over_rows<Form::Dgrad>(g, dy, w, nullptr, dx, in, out, gathers, stream);
}

template <class G>
cudaError_t hopper_wgrad(const Grouping& g, const bf16* dy, const bf16* x, G* dw, int64_t out, int64_t in,
                         bool gathers_dy, bool gathers_x, bool accumulate, cudaStream_t stream) {
  // The side whose rows are of tokens is that of 128.
  HopperArgs<G> args{};
  args.turned = gathers_x;
  const bf16* const others = args.turned ? dy : x;
  args.m = args.turned ? in : out, args.n = args.turned ? out : in;
  args.rows = {args.turned ? x : dy, gathers_x || gathers_dy ? g.choices() : nullptr, args.m,
               reciprocal_of(g.top_k)};
  args.begin = g.routing + g.first;
  args.c = dw;
  args.experts = int(g.count);
  args.accumulate = accumulate;
  args.boxes = args.rows.choice == nullptr;
  CUtensorMap rows{};
  if (args.boxes) {
    const auto status = describe(args.rows.data, g.rows, args.m, kDepth, rows);
    if (status != cudaSuccess) return status;
  }
  return with_columns(args.n, !args.boxes, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    CUtensorMap map{};
    const auto status = describe(others, g.rows, args.n, kLines<kColumns>, map);
    if (status != cudaSuccess) return status;
    return start<Form::Wgrad, kColumns>(args, rows, map, stream);
  });
}
template cudaError_t hopper_wgrad(const Grouping&, const bf16*, const bf16*, float*, int64_t, int64_t, bool,
                                  bool, bool, cudaStream_t);
template cudaError_t hopper_wgrad(const Grouping&, const bf16*, const bf16*, bf16*, int64_t, int64_t, bool,
                                  bool, bool, cudaStream_t);

}  // namespace sluice::core::cuda
