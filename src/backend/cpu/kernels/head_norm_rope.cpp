// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rope.h"
#include "ops/norm.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

// The common part of both directions, from the first of `rows` rows on.
template <class T>
struct HeadRows {
  const T *x, *w;
  const int32_t* pos;
  const float* inv_freq;
  int64_t rows;
  HeadNorm op;

  // How many elements are normalised together, and how far the weights of a head are from those of the last.
  int64_t normalised() const { return op.weights(); }
  int64_t weight_step() const { return op.whole ? op.head_dim : 0; }
};

template <class T>
HeadRows<T> rows_of(const auto& op, const Args& args, int64_t first, int64_t rows) {
  using HeadOp = std::remove_cvref_t<decltype(op)>;
  return {.x = args.in<T>(HeadOp::kX) + first * op.x_columns(),
          .w = args.in<T>(HeadOp::kW),
          .pos = args.in<int32_t>(HeadOp::kPos) + first,
          .inv_freq = args.in<float>(HeadOp::kInvFreq),
          .rows = rows,
          .op = op};
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/head_norm_rope_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const HeadNormRope& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      SLUICE_LOOP(context.isa, forward, rows_of<T>(op, args, first, count),
                  args.out<T>(HeadNormRope::kY) + first * op.columns());
    });
  });
  return {};
}

int64_t workspace_of(const HeadNormRopeBwd& op) {
  Carver size(nullptr);
  size.take<float>(ceil_div(op.tokens, summed_rows(op.tokens)) * op.weights());
  return size.used();
}

Status launch(const HeadNormRopeBwd& op, const Args& args, const KernelContext& context) {
  const int64_t rows = summed_rows(op.tokens), blocks = ceil_div(op.tokens, rows);
  auto* partials = Carver(args.workspace).take<float>(blocks * op.weights());
  with_types(op.dtype, op.in_dtype, [&]<class T, class D>(T, D) {
    context.for_rows(op.tokens, rows, [&](int64_t first, int64_t count) {
      SLUICE_LOOP(context.isa, backward, rows_of<T>(op, args, first, count),
                  args.in<D>(HeadNormRopeBwd::kDy) + first * op.columns(),
                  args.out<T>(HeadNormRopeBwd::kDx) + first * op.x_columns(),
                  partials + first / rows * op.weights());
    });
  });
  with_type(op.grad_dtype, [&](auto type) {
    SLUICE_LOOP(context.isa, add_partials, partials, blocks, op.weights(), op.weights(), op.accumulate,
                args.out<decltype(type)>(HeadNormRopeBwd::kDw));
  });
  return {};
}

}  // namespace sluice::core::cpu
