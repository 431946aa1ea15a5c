// SPDX-License-Identifier: Apache-2.0
// Gates of what a half of a layer makes (HeadGate of ops/delta.h).
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/delta.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

// Heads of one token after the other.
template <class T>
struct GatedHeads {
  const T *x, *z;
  const float* w;  // null: they are not normalised
  int64_t heads, head_dim;
  float eps;
};

template <class T>
GatedHeads<T> heads_of(const auto& op, const Args& args, int64_t first, int64_t rows) {
  using O = std::remove_cvref_t<decltype(op)>;
  const int64_t offset = first * op.heads * op.head_dim;
  return {.x = args.in<T>(O::kX) + offset,
          .z = args.in<T>(O::kZ) + offset,
          .w = op.normed ? args.in<float>(O::kW) : nullptr,
          .heads = rows * op.heads,
          .head_dim = op.head_dim,
          .eps = op.eps};
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/head_gate_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const HeadGate& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      SLUICE_LOOP(context.isa, gate_heads, heads_of<T>(op, args, first, count),
                  args.out<T>(HeadGate::kY) + first * op.heads * op.head_dim);
    });
  });
  return {};
}

int64_t workspace_of(const HeadGateBwd& op) {
  Carver size(nullptr);
  if (op.normed) size.take<float>(ceil_div(op.tokens, summed_rows(op.tokens)) * op.head_dim);
  return size.used();
}

Status launch(const HeadGateBwd& op, const Args& args, const KernelContext& context) {
  using O = HeadGateBwd;
  const int64_t rows = summed_rows(op.tokens), blocks = ceil_div(op.tokens, rows);
  auto* partials = op.normed ? Carver(args.workspace).take<float>(blocks * op.head_dim) : nullptr;
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, rows, [&](int64_t first, int64_t count) {
      const int64_t offset = first * op.heads * op.head_dim;
      SLUICE_LOOP(context.isa, gate_heads_back, heads_of<T>(op, args, first, count),
                  args.in<T>(O::kDy) + offset, args.out<T>(O::kDx) + offset, args.out<T>(O::kDz) + offset,
                  op.normed ? partials + first / rows * op.head_dim : nullptr);
    });
  });
  if (!op.normed) return {};
  with_type(op.grad_dtype, [&]<class G>(G) {
    SLUICE_LOOP(context.isa, add_partials, partials, blocks, op.head_dim, op.head_dim, op.accumulate,
                args.out<G>(O::kDw));
  });
  return {};
}

}  // namespace sluice::core::cpu
