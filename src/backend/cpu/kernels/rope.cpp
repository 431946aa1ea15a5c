// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/rope.h"

#include <algorithm>

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

template <class T>
struct RotateRows {
  T* y;
  const int32_t* pos;
  const float* inv_freq;
  float scale, still;
  Temperature temperature;
  int64_t rows, cols, heads, head_dim;
};

// The gradients of q and kv, rotated, to their unrotated places; V passes.
template <class X, class Y>
struct UnrotateRows {
  const X *dq_in, *dkv_in;
  const int32_t* pos;
  const float* inv_freq;
  float scale, still;
  Temperature temperature;
  Y *dq, *dkv;
  int64_t rows, q_heads, kv_heads, head_dim;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/rope_loops.h"
#include "backend/cpu/each_isa.h"
#include "ops/attention.h"

namespace sluice::core::cpu {

Status rotate(const Rotated& what, const KernelContext& context) {
  with_type(what.dtype, [&](auto type) {
    using T = decltype(type);
    context.pool.parallel_for(ceil_div(what.rows, kRowsPerTask), [&](int64_t task, int) {
      const int64_t first = task * kRowsPerTask;
      const RotateRows<T> rows{.y = static_cast<T*>(what.y) + first * what.columns,
                               .pos = what.pos + first,
                               .inv_freq = what.inv_freq,
                               .scale = what.scale,
                               .still = what.still_scale == 0 ? what.scale : what.still_scale,
                               .temperature = what.temperature,
                               .rows = std::min(kRowsPerTask, what.rows - first),
                               .cols = what.columns,
                               .heads = what.heads,
                               .head_dim = what.head_dim};
      SLUICE_LOOP(context.isa, rotate_rows, rows);
    });
  });
  return {};
}

Status launch(const Rope& op, const Args& args, const KernelContext& context) {
  return rotate({.y = args.out<void>(Rope::kX),
                 .dtype = op.dtype,
                 .rows = op.tokens,
                 .columns = op.columns(),
                 .heads = op.heads,
                 .head_dim = op.head_dim,
                 .pos = args.in<int32_t>(Rope::kPos),
                 .inv_freq = args.in<float>(Rope::kInvFreq),
                 .scale = op.rope_scale,
                 .still_scale = op.still_scale,
                 .temperature = op.temperature},
                context);
}

Status launch(const RopeBwd& op, const Args& args, const KernelContext& context) {
  const int64_t q_cols = op.q_heads * op.head_dim, kv_cols = 2 * op.kv_heads * op.head_dim;
  with_type(op.in_dtype, [&](auto in_type) {
    with_type(op.dtype, [&](auto out_type) {
      using X = decltype(in_type);
      using Y = decltype(out_type);
      context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
        const UnrotateRows<X, Y> rows{.dq_in = args.in<X>(RopeBwd::kDqRotated) + first * q_cols,
                                      .dkv_in = args.in<X>(RopeBwd::kDkvRotated) + first * kv_cols,
                                      .pos = args.in<int32_t>(RopeBwd::kPos) + first,
                                      .inv_freq = args.in<float>(RopeBwd::kInvFreq),
                                      .scale = op.rope_scale,
                                      .still = op.still_scale == 0 ? op.rope_scale : op.still_scale,
                                      .temperature = op.temperature,
                                      .dq = args.out<Y>(RopeBwd::kDq) + first * q_cols,
                                      .dkv = args.out<Y>(RopeBwd::kDkv) + first * kv_cols,
                                      .rows = count,
                                      .q_heads = op.q_heads,
                                      .kv_heads = op.kv_heads,
                                      .head_dim = op.head_dim};
        SLUICE_LOOP(context.isa, unrotate_rows, rows);
      });
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
