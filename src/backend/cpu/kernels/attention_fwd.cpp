// SPDX-License-Identifier: Apache-2.0
// Attention over one block of keys by the online softmax (Dao et al., 2022).
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "backend/cpu/kernels/attention.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kBlocksPerTask = 4;  // query blocks that share one copy of a key block

// One query block's state.
struct Queries {
  float* transposed;       // [head_dim padded, 64], scaled to scores in base 2
  float* o;                // [64, head_dim padded], not normalised
  float *maximum, *total;  // [64]
  Visible* visible;
};

struct Scratch {
  Queries queries[kBlocksPerTask];
  float *k, *v;    // [64, head_dim padded]
  float* scores;   // [64 keys, 64 queries]
  float* rescale;  // [64]

  Scratch(const AttnShape& s, Carver& carver) {
    const int64_t dim = padded_head_dim(s);
    for (Queries& q : queries) {
      q.transposed = carver.take<float>(dim * kQueryBlock);
      q.o = carver.take<float>(kQueryBlock * dim);
      q.maximum = carver.take<float>(kQueryBlock);
      q.total = carver.take<float>(kQueryBlock);
      q.visible = carver.take<Visible>(1);
    }
    k = carver.take<float>(kKeyBlock * dim);
    v = carver.take<float>(kKeyBlock * dim);
    scores = carver.take<float>(kKeyBlock * kQueryBlock);
    rescale = carver.take<float>(kQueryBlock);
  }
};

// The same for bf16 in tiles (tiles.h). o and the probabilities are transposed.
struct TileQueries {
  Bf16* q;                 // right operand: [head_dim / 32, 4 tiles of 16 queries]
  float* o;                // [head_dim, 64]
  float *maximum, *total;  // [64]; the maximum is not scaled
  Visible* visible;
};

struct TileScratch {
  TileQueries queries[kBlocksPerTask];
  Bf16* k;        // [64, head_dim], where keys must be padded
  Bf16* v;        // left operand, transposed: [head_dim / 32, 2 times 32 keys, 2 tiles]
  float* scores;  // [64 keys, 64 queries]
  Bf16* p;        // right operand: [2 times 32 keys, 4 tiles of 16 queries]
  float* rescale;
  float* rows;  // [64, head_dim]

  TileScratch(const AttnShape& s, Carver& carver) {
    for (TileQueries& q : queries) {
      q.q = carver.take<Bf16>(s.head_dim * kQueryBlock);
      q.o = carver.take<float>(s.head_dim * kQueryBlock);
      q.maximum = carver.take<float>(kQueryBlock);
      q.total = carver.take<float>(kQueryBlock);
      q.visible = carver.take<Visible>(1);
    }
    k = carver.take<Bf16>(kKeyBlock * s.head_dim);
    v = carver.take<Bf16>(kKeyBlock * s.head_dim);
    scores = carver.take<float>(kKeyBlock * kQueryBlock);
    p = carver.take<Bf16>(kKeyBlock * kQueryBlock);
    rescale = carver.take<float>(kQueryBlock);
    rows = carver.take<float>(kQueryBlock * s.head_dim);
  }
};

// Up to kBlocksPerTask query blocks of one head of one row. Pointers are to the row's first token.
template <class T, class O>
struct Task {
  const AttnShape* shape;
  const T *q, *k, *v;  // at this head's first column
  const int32_t* pos;
  O* o;
  float* lse;
  bool merge;
  float sink;            // -inf: none
  int64_t first, count;  // queries
  int64_t q_stride, kv_stride;
  int64_t origin = 0;    // the key that blocks of keys are counted from
  int64_t together = 1;  // queries of a token
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/attention_fwd_loops.h"
#include "backend/cpu/each_isa.h"
#define SLUICE_LOOPS "backend/cpu/kernels/attention_fwd_tiles_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kQueries = kBlocksPerTask * kQueryBlock;
static_assert(kQueries == kMostTextQueries);

// Queries of a row that a task has.
struct Stretch {
  int64_t row, first, count;
  int64_t origin;  // the key that blocks are counted from
};
// All of them. Exact ones are of one document each, from whose first key on blocks are counted.
std::vector<Stretch> stretches_of(const AttnShape& s, const int32_t* pos, bool exact) {
  std::vector<Stretch> all;
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t first = 0; first < s.q_len;) {
      int64_t end = s.q_len;
      const bool cut = exact && s.packed && s.distance == 0;
      if (cut) {
        const auto begins = [](int32_t at) { return at == 0; };
        end = std::find_if(pos + row * s.q_len + first + 1, pos + (row + 1) * s.q_len, begins) -
              (pos + row * s.q_len);
      }
      const int64_t origin = cut ? first : 0;
      for (; first < end; first += std::min(kQueries, end - first))
        all.push_back({row, first, std::min(kQueries, end - first), origin});
    }
  }
  // The last queries of a row see the most keys: they go first, so that all threads end together.
  std::ranges::stable_sort(all, std::greater(), &Stretch::first);
  return all;
}

template <class T, class O>
void run_task(const Task<T, O>& task, CpuIsa isa, std::byte* own) {
  Carver carver(own);
  if constexpr (std::is_same_v<T, Bf16>) {
    if (is_tiled(isa, *task.shape)) {
      TileScratch scratch(*task.shape, carver);
      SLUICE_AMX_LOOP(run_queries_tiled, isa, task, scratch);
      return;
    }
  }
  Scratch scratch(*task.shape, carver);
  SLUICE_LOOP(isa, run_queries, task, scratch);
}

int64_t scratch_of(const AttnShape& s) {
  Carver size(nullptr), tile_size(nullptr);
  (void)Scratch(s, size);
  if (is_tiled(CpuIsa::Amx, s)) (void)TileScratch(s, tile_size);
  return std::max(size.used(), tile_size.used());
}

template <class T, class O>
void run_all(const AttnFwd& op, const Args& args, const KernelContext& context) {
  const AttnShape& s = op.shape;
  const int64_t kv_cols = s.kv_heads * s.head_dim, group = s.q_heads / s.kv_heads;
  const auto* pos = args.in<int32_t>(AttnFwd::kPos);
  const std::vector<Stretch> stretches = stretches_of(s, pos, context.exact);
  context.pool.parallel_for(std::ssize(stretches) * s.q_heads, [&](int64_t task, int worker) {
    const auto [row, first, count, origin] = stretches[size_t(task / s.q_heads)];
    const int64_t head = task % s.q_heads;
    const int64_t q_offset = row * s.q_len * s.q_heads * s.head_dim + head * s.head_dim;
    const T* kv = args.in<T>(AttnFwd::kKv) + row * s.kv_len * 2 * kv_cols + head / group * s.head_dim;
    const Task<T, O> queries{.shape = &s,
                             .q = args.in<T>(AttnFwd::kQ) + q_offset,
                             .k = kv,
                             .v = kv + kv_cols,
                             .pos = pos + row * s.q_len,
                             .o = args.out<O>(AttnFwd::kO) + q_offset,
                             .lse = args.out<float>(AttnFwd::kLse) + (row * s.q_heads + head) * s.q_len,
                             .merge = op.merge,
                             .sink = op.has_sinks ? float(args.in<T>(AttnFwd::kSinks)[head]) : -INFINITY,
                             .first = first,
                             .count = count,
                             .q_stride = s.q_heads * s.head_dim,
                             .kv_stride = 2 * kv_cols,
                             .origin = origin};
    run_task(queries, context.isa, context.scratch[static_cast<size_t>(worker)]);
  });
}

}  // namespace

int64_t scratch_of(const AttnFwd& op) {
  return scratch_of(op.shape);
}

int64_t text_scratch_bytes(const AttnShape& shape) {
  return align_up(kMostTextQueries * int64_t{sizeof(float)}, 64) + scratch_of(shape);
}

void attend_to_text(const TextQueries& t, CpuIsa isa, std::byte* scratch) {
  Carver carver(scratch);
  auto* const lse = carver.take<float>(kMostTextQueries);
  with_type(t.shape.dtype, [&]<class T>(T) {
    run_task(Task<T, T>{.shape = &t.shape,
                        .q = static_cast<const T*>(t.q),
                        .k = static_cast<const T*>(t.k),
                        .v = static_cast<const T*>(t.v),
                        .pos = nullptr,
                        .o = static_cast<T*>(t.o),
                        .lse = lse,
                        .merge = false,
                        .sink = t.sink,
                        .first = 0,
                        .count = t.count,
                        .q_stride = t.stride,
                        .kv_stride = t.shape.head_dim,
                        .origin = 0,
                        .together = t.together},
             isa, scratch + carver.used());
  });
}

Status launch(const AttnFwd& op, const Args& args, const KernelContext& context) {
  with_types(op.shape.dtype, op.out_dtype, [&]<class T, class R>(T, R) { run_all<T, R>(op, args, context); });
  return {};
}

}  // namespace sluice::core::cpu
