// SPDX-License-Identifier: Apache-2.0
// Attention over one block of keys by the online softmax (Dao et al., 2022).
#include <algorithm>
#include <cmath>
#include <type_traits>

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
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/attention_fwd_loops.h"
#include "backend/cpu/each_isa.h"
#define SLUICE_LOOPS "backend/cpu/kernels/attention_fwd_tiles_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::core::cpu {
namespace {

template <class T, class O>
void run_all(const AttnFwd& op, const Args& args, const Machine& machine) {
  const AttnShape& s = op.shape;
  constexpr int64_t kQueries = kBlocksPerTask * kQueryBlock;
  const int64_t parts = ceil_div(s.q_len, kQueries), heads = s.rows * s.q_heads;
  const int64_t kv_cols = s.kv_heads * s.head_dim, group = s.q_heads / s.kv_heads;
  machine.pool.parallel_for(parts * heads, [&](int64_t task, int worker) {
    // The last queries of a row see the most keys: they go first, so that all threads end together.
    const int64_t first = (parts - 1 - task / heads) * kQueries;
    const int64_t row = task % heads / s.q_heads, head = task % s.q_heads;
    const int64_t q_offset = row * s.q_len * s.q_heads * s.head_dim + head * s.head_dim;
    const T* kv = args.in<T>(AttnFwd::kKv) + row * s.kv_len * 2 * kv_cols + head / group * s.head_dim;
    const Task<T, O> queries{.shape = &s,
                             .q = args.in<T>(AttnFwd::kQ) + q_offset,
                             .k = kv,
                             .v = kv + kv_cols,
                             .pos = args.in<int32_t>(AttnFwd::kPos) + row * s.q_len,
                             .o = args.out<O>(AttnFwd::kO) + q_offset,
                             .lse = args.out<float>(AttnFwd::kLse) + (row * s.q_heads + head) * s.q_len,
                             .merge = op.merge,
                             .sink = op.has_sinks ? float(args.in<T>(AttnFwd::kSinks)[head]) : -INFINITY,
                             .first = first,
                             .count = std::min(kQueries, s.q_len - first)};
    Carver carver(machine.scratch[static_cast<size_t>(worker)]);
    if constexpr (std::is_same_v<T, Bf16>) {
      if (is_tiled(machine.isa, s)) {
        TileScratch scratch(s, carver);
        SLUICE_AMX_LOOP(run_queries_tiled, machine.isa, queries, scratch);
        return;
      }
    }
    Scratch scratch(s, carver);
    SLUICE_LOOP(machine.isa, run_queries, queries, scratch);
  });
}

}  // namespace

int64_t scratch_of(const AttnFwd& op) {
  Carver size(nullptr), tile_size(nullptr);
  (void)Scratch(op.shape, size);
  if (is_tiled(CpuIsa::Amx, op.shape)) (void)TileScratch(op.shape, tile_size);
  return std::max(size.used(), tile_size.used());
}

Status launch(const AttnFwd& op, const Args& args, const Machine& machine) {
  with_types(op.shape.dtype, op.out_dtype, [&]<class T, class R>(T, R) { run_all<T, R>(op, args, machine); });
  return {};
}

}  // namespace sluice::core::cpu
