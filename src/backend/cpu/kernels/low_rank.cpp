// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/kernels/kernels.h"
#include "ops/low_rank.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kLowRankRows = 64;    // tokens of a task
constexpr int64_t kLowRankDepth = 128;  // along the sum, widened at once

// Operands of a task's product, in f32: rows of u, or of dy, and rows of B, or of u.
struct LowRankScratch {
  float *left, *right, *sums;
  int64_t inner, width;  // columns of u and of a rank, up to whole vectors

  LowRankScratch(const LowRankSizes& s, Carver& place)
      : inner(align_up(s.inner(), 16)), width(align_up(s.rank, 16)) {
    left = place.take<float>(std::max(kLowRankRows * std::max(inner, kLowRankDepth), kLowRankDepth * kPanel));
    right = place.take<float>(std::max(kLowRankDepth * width, s.rank * kPanel));
    sums = place.take<float>(kLowRankRows * std::max(width, kPanel));
  }
};

int64_t scratch_bytes_of(const LowRankSizes& s) {
  Carver size(nullptr);
  LowRankScratch(s, size);
  return size.used();
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/low_rank_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

int64_t scratch_of(const LowRank& op) {
  return scratch_bytes_of(op.sizes);
}
int64_t scratch_of(const LowRankDgrad& op) {
  return scratch_bytes_of(op.sizes);
}
int64_t scratch_of(const LowRankWgrad& op) {
  return scratch_bytes_of(op.sizes);
}

Status launch(const LowRank& op, const Args& args, const Machine& machine) {
  const LowRankSizes& s = op.sizes;
  with_type(op.dtype, [&]<class T>(T) {
    const T* residual = op.has_residual ? args.in<T>(LowRank::kResidual) : nullptr;
    machine.pool.parallel_for(ceil_div(s.tokens, kLowRankRows), [&](int64_t task, int worker) {
      Carver place(machine.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t first = task * kLowRankRows;
      SLUICE_LOOP(machine.isa, low_rank, s, op.scale, args.in<T>(LowRank::kU) + first * s.inner(),
                  args.in<T>(LowRank::kB), residual == nullptr ? nullptr : residual + first * s.columns,
                  args.out<T>(LowRank::kY) + first * s.columns, std::min(kLowRankRows, s.tokens - first),
                  scratch);
    });
  });
  return {};
}

Status launch(const LowRankDgrad& op, const Args& args, const Machine& machine) {
  const LowRankSizes& s = op.sizes;
  with_type(op.dtype, [&]<class T>(T) {
    machine.pool.parallel_for(ceil_div(s.tokens, kLowRankRows), [&](int64_t task, int worker) {
      Carver place(machine.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t first = task * kLowRankRows;
      SLUICE_LOOP(machine.isa, low_rank_dgrad, s, op.scale, args.in<T>(LowRankDgrad::kDy) + first * s.columns,
                  args.in<T>(LowRankDgrad::kB), args.out<T>(LowRankDgrad::kDu) + first * s.inner(),
                  std::min(kLowRankRows, s.tokens - first), scratch);
    });
  });
  return {};
}

Status launch(const LowRankWgrad& op, const Args& args, const Machine& machine) {
  const LowRankSizes& s = op.sizes;
  const int64_t panels = ceil_div(s.part, kPanel);
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    machine.pool.parallel_for(s.parts * panels, [&](int64_t task, int worker) {
      Carver place(machine.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t part = task / panels, row = task % panels * kPanel, at = part * s.part + row;
      SLUICE_LOOP(machine.isa, low_rank_wgrad, s, op.scale, args.in<T>(LowRankWgrad::kDy) + s.first + at,
                  args.in<T>(LowRankWgrad::kU) + part * s.rank, op.accumulate,
                  args.out<G>(LowRankWgrad::kDb) + at * s.rank, std::min(kPanel, s.part - row), scratch);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
