// SPDX-License-Identifier: Apache-2.0
// Products whose rows have a magnitude that is learnt (DoRA).
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/low_rank.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kNormTaskRows = 16;   // of a task
constexpr int64_t kScaledRows = 16;     // tokens of a task
constexpr int64_t kScaledColumns = 64;  // columns of a task that sums over tokens
constexpr int64_t kSummedTokens = 64;   // that are added up before they are added to the others

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/magnitude_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const RowNorms& op, const Args& args, const KernelContext& context) {
  const LowRankSizes& s = op.sizes;
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(ceil_div(s.adapted(), kNormTaskRows), [&](int64_t task, int) {
      const int64_t end = std::min((task + 1) * kNormTaskRows, s.adapted());
      // Rows of one part, which have one A.
      for (int64_t row = task * kNormTaskRows; row < end;) {
        const int64_t part = row / s.part;
        const int64_t rows = std::min(end, (part + 1) * s.part) - row;
        SLUICE_LOOP(context.isa, row_norms, args.in<T>(RowNorms::kW) + (s.first + row) * op.in,
                    args.in<T>(RowNorms::kA) + part * s.rank * op.in, args.in<T>(RowNorms::kB) + row * s.rank,
                    op.in, s.rank, op.scale, rows, args.out<float>(RowNorms::kNorms) + row);
        row += rows;
      }
    });
  });
  return {};
}

Status launch(const Magnitude& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    const T* bias = op.has_bias ? args.in<T>(op.bias_operand()) : nullptr;
    const T* residual = op.has_residual ? args.in<T>(op.residual_operand()) : nullptr;
    context.pool.parallel_for(ceil_div(op.tokens, kScaledRows), [&](int64_t task, int) {
      const int64_t first = task * kScaledRows, at = first * op.columns;
      SLUICE_LOOP(context.isa, magnify, op, args.in<T>(Magnitude::kZ) + at, args.in<float>(Magnitude::kM),
                  args.in<float>(Magnitude::kNorms), bias, residual == nullptr ? nullptr : residual + at,
                  args.out<T>(Magnitude::kY) + at, std::min(kScaledRows, op.tokens - first));
    });
  });
  return {};
}

Status launch(const MagnitudeBwd& op, const Args& args, const KernelContext& context) {
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    const auto* dy = args.in<T>(MagnitudeBwd::kDy);
    auto* dz = args.out<T>(MagnitudeBwd::kDz);
    const int64_t last = op.first + op.adapted;
    if (op.adapted < op.columns) {
      context.pool.parallel_for(op.tokens, [&](int64_t token, int) {
        const int64_t at = token * op.columns;
        std::copy_n(dy + at, op.first, dz + at);
        std::copy_n(dy + at + last, op.columns - last, dz + at + last);
      });
    }
    context.pool.parallel_for(ceil_div(op.adapted, kScaledColumns), [&](int64_t task, int) {
      const int64_t column = task * kScaledColumns, at = op.first + column;
      SLUICE_LOOP(context.isa, magnify_bwd, op, dy + at, args.in<T>(MagnitudeBwd::kZ) + at,
                  args.in<float>(MagnitudeBwd::kM) + column, args.in<float>(MagnitudeBwd::kNorms) + column,
                  dz + at, args.out<G>(MagnitudeBwd::kDm) + column,
                  std::min(kScaledColumns, op.adapted - column));
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
