// SPDX-License-Identifier: Apache-2.0
// Gradients of attention over one block of keys: the probabilities come again from the scores and the global
// log-sum-exp, block by block.
//
// A task owns a range of keys of one key/value head, so each element of dk and dv has one owner, who adds
// up in a fixed order. The tasks whose keys a query block looks at add to its dq one after the other, by
// increasing range: a counter per query block says how many have.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>
#include <type_traits>

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/spin.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kBlocksPerTask = 4;
constexpr int64_t kKeysPerTask = kBlocksPerTask * kKeyBlock;

struct Workspace {
  float* dq;                     // [tokens, q_heads * head_dim]; null: sums build up in the operand
  std::atomic<uint32_t>* turns;  // [rows, q_heads, query blocks]

  Workspace(const AttnBwd& op, Carver& carver) {
    const AttnShape& s = op.shape;
    const bool several = s.kv_len > kKeysPerTask;
    dq = several && op.grad_dtype != DType::F32 ? carver.take<float>(s.tokens() * s.q_heads * s.head_dim)
                                                : nullptr;
    turns = several ? carver.take<std::atomic<uint32_t>>(turn_count(s)) : nullptr;
  }
  static int64_t turn_count(const AttnShape& s) {
    return s.rows * s.q_heads * ceil_div(s.q_len, kQueryBlock);
  }
};

// One key block.
struct Keys {
  float *k, *v;    // [64, head_dim padded]
  float *dk, *dv;  // likewise
};

struct Scratch {
  Keys keys[kBlocksPerTask];
  float *q, *d_o;      // [64, head_dim padded]
  float *q_t, *do_t;   // [head_dim padded, 64]; q_t is scaled to scores in base 2
  float* dq;           // [64, head_dim padded]
  float *p, *ds;       // [64 keys, 64 queries]
  float *lse, *delta;  // [64]; lse in base 2, delta = sum of o * do
  Visible* visible;

  Scratch(const AttnShape& s, Carver& carver) {
    const int64_t block = kQueryBlock * padded_head_dim(s);
    for (Keys& key : keys) {
      for (float** piece : {&key.k, &key.v, &key.dk, &key.dv}) *piece = carver.take<float>(block);
    }
    for (float** piece : {&q, &d_o, &q_t, &do_t, &dq}) *piece = carver.take<float>(block);
    for (float** piece : {&p, &ds}) *piece = carver.take<float>(kKeyBlock * kQueryBlock);
    for (float** piece : {&lse, &delta}) *piece = carver.take<float>(kQueryBlock);
    visible = carver.take<Visible>(1);
  }
};

// The same for bf16 in tiles (tiles.h).
struct TileKeys {
  Bf16 *k, *v;         // [64, head_dim]
  Bf16* k_transposed;  // left operand: [head_dim / 32, 2 times 32 keys, 2 tiles]
  float *dk, *dv;      // [64, head_dim]
};

struct TileScratch {
  TileKeys keys[kBlocksPerTask];
  Bf16 *q, *d_o;             // right operands along the head: [head_dim / 32, 4 tiles of 16 queries]
  Bf16 *q_heads, *do_heads;  // right operands along the queries: [2 times 32 queries, head_dim / 16 tiles]
  float *scores, *dp;        // [64 keys, 64 queries]
  Bf16 *p, *ds;              // likewise
  Bf16* ds_pairs;            // right operand: [2 times 32 keys, 4 tiles of 16 queries]
  float *dq, *dq_rows;       // [head_dim, 64] and [64, head_dim]
  float *lse, *delta;        // [64]; lse in base 2, delta = sum of o * do
  Visible* visible;

  TileScratch(const AttnShape& s, Carver& carver) {
    const int64_t block = kQueryBlock * s.head_dim, square = kKeyBlock * kQueryBlock;
    for (TileKeys& key : keys) {
      for (Bf16** piece : {&key.k, &key.v, &key.k_transposed}) *piece = carver.take<Bf16>(block);
      for (float** piece : {&key.dk, &key.dv}) *piece = carver.take<float>(block);
    }
    for (Bf16** piece : {&q, &d_o, &q_heads, &do_heads}) *piece = carver.take<Bf16>(block);
    for (float** piece : {&scores, &dp}) *piece = carver.take<float>(square);
    for (Bf16** piece : {&p, &ds, &ds_pairs}) *piece = carver.take<Bf16>(square);
    for (float** piece : {&dq, &dq_rows}) *piece = carver.take<float>(block);
    for (float** piece : {&lse, &delta}) *piece = carver.take<float>(kQueryBlock);
    visible = carver.take<Visible>(1);
  }
};

// A range of keys against all queries of one head of one row. Pointers are to the row's first token, at this
// head's first column.
template <class T, class G>
struct Task {
  const AttnShape* shape;
  const T *q, *o, *d_o;
  const int32_t* pos;
  const float* lse;
  G* dq;
  float* dq_sum;                 // the f32 place of dq sums between tasks; null when there is one task
  std::atomic<uint32_t>* turns;  // per query block; null when there is one task
  bool accumulate_dq;
  int64_t first, count;  // keys
};

// The tasks whose keys a block of queries looks at; the first one where it looks at none.
struct TaskRange {
  int64_t first, last;
};
inline TaskRange tasks_of(const Visible& visible, int64_t kv_len) {
  const int64_t first = std::max(visible.low_min, 0), last = std::min<int64_t>(visible.high_max, kv_len - 1);
  if (first > last) return {0, 0};
  return {first / kKeysPerTask, last / kKeysPerTask};
}

inline void wait_for_turn(const std::atomic<uint32_t>& turn, uint32_t mine) {
  for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
    spins < 1000 ? pause_thread() : std::this_thread::yield();
  }
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/attention_bwd_loops.h"
#include "backend/cpu/each_isa.h"
#define SLUICE_LOOPS "backend/cpu/kernels/attention_bwd_tiles_loops.h"
#include "backend/cpu/amx_isa.h"

namespace sluice::core::cpu {
namespace {

// One key range of one key/value head: all query heads of its group, in order.
template <class T, class G, class S>
void run_keys(const AttnBwd& op, const Args& args, const Workspace& ws, CpuIsa isa, int64_t row,
              int64_t kv_head, int64_t first, S& x) {
  constexpr bool kTiled = std::is_same_v<S, TileScratch>;
  const AttnShape& s = op.shape;
  const int64_t dim = padded_head_dim(s), kv_cols = s.kv_heads * s.head_dim, group = s.q_heads / s.kv_heads;
  const int64_t count = std::min(kKeysPerTask, s.kv_len - first), blocks = ceil_div(s.q_len, kQueryBlock);
  const int64_t kv_offset = (row * s.kv_len + first) * 2 * kv_cols + kv_head * s.head_dim;
  const T* kv = args.in<T>(AttnBwd::kKv) + kv_offset;
  if constexpr (kTiled) {
    SLUICE_AMX_LOOP(load_keys_tiled, kv, kv + kv_cols, 2 * kv_cols, s.head_dim, count, x);
  } else {
    SLUICE_LOOP(isa, load_keys, kv, kv + kv_cols, 2 * kv_cols, s.head_dim, dim, count, x);
  }
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t offset = row * s.q_len * s.q_heads * s.head_dim + head * s.head_dim;
    const int64_t row_head = row * s.q_heads + head;
    G* dq = args.out<G>(AttnBwd::kDq) + offset;
    float* dq_sum = ws.dq ? ws.dq + offset : nullptr;
    if constexpr (std::is_same_v<G, float>) dq_sum = dq;
    const Task<T, G> queries{.shape = &s,
                             .q = args.in<T>(AttnBwd::kQ) + offset,
                             .o = args.in<T>(AttnBwd::kO) + offset,
                             .d_o = args.in<T>(AttnBwd::kDo) + offset,
                             .pos = args.in<int32_t>(AttnBwd::kPos) + row * s.q_len,
                             .lse = args.in<float>(AttnBwd::kLse) + row_head * s.q_len,
                             .dq = dq,
                             .dq_sum = dq_sum,
                             .turns = ws.turns ? ws.turns + row_head * blocks : nullptr,
                             .accumulate_dq = op.accumulate_dq,
                             .first = first,
                             .count = count};
    if constexpr (kTiled) {
      SLUICE_AMX_LOOP(run_queries_tiled, isa, queries, x);
    } else {
      SLUICE_LOOP(isa, run_queries, queries, x);
    }
  }
  G* dkv = args.out<G>(AttnBwd::kDkv) + kv_offset;
  for (int64_t b = 0; b * kKeyBlock < count; ++b) {
    const int64_t keys = std::min(kKeyBlock, count - b * kKeyBlock);
    G* to = dkv + b * kKeyBlock * 2 * kv_cols;
    SLUICE_LOOP(isa, put_rows, x.keys[b].dk, dim, keys, s.head_dim, score_scale(s), op.accumulate_dkv, to,
                2 * kv_cols);
    SLUICE_LOOP(isa, put_rows, x.keys[b].dv, dim, keys, s.head_dim, 1.0f, op.accumulate_dkv, to + kv_cols,
                2 * kv_cols);
  }
}

template <class T, class G>
void run_all(const AttnBwd& op, const Args& args, const KernelContext& context) {
  const AttnShape& s = op.shape;
  Carver carver(args.workspace);
  const Workspace ws(op, carver);
  if (ws.turns) std::uninitialized_fill_n(ws.turns, Workspace::turn_count(s), 0u);
  const int64_t heads = s.rows * s.kv_heads;
  // Tasks start in order, so a task only ever waits for one that has started.
  context.pool.parallel_for(ceil_div(s.kv_len, kKeysPerTask) * heads, [&](int64_t task, int worker) {
    Carver scratch_carver(context.scratch[static_cast<size_t>(worker)]);
    const auto run = [&](auto& scratch) {
      run_keys<T, G>(op, args, ws, context.isa, task % heads / s.kv_heads, task % s.kv_heads,
                     task / heads * kKeysPerTask, scratch);
    };
    if constexpr (std::is_same_v<T, Bf16>) {
      if (is_tiled(context.isa, s)) {
        TileScratch scratch(s, scratch_carver);
        return run(scratch);
      }
    }
    Scratch scratch(s, scratch_carver);
    run(scratch);
  });
}

}  // namespace

int64_t workspace_of(const AttnBwd& op) {
  Carver size(nullptr);
  (void)Workspace(op, size);
  return size.used();
}

int64_t scratch_of(const AttnBwd& op) {
  Carver size(nullptr), tile_size(nullptr);
  (void)Scratch(op.shape, size);
  if (is_tiled(CpuIsa::Amx, op.shape)) (void)TileScratch(op.shape, tile_size);
  return std::max(size.used(), tile_size.used());
}

Status launch(const AttnBwd& op, const Args& args, const KernelContext& context) {
  with_types(op.shape.dtype, op.grad_dtype,
             [&]<class T, class R>(T, R) { run_all<T, R>(op, args, context); });
  return {};
}

}  // namespace sluice::core::cpu
