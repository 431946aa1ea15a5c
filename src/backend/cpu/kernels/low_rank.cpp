// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/kernels/grouped_joint.h"
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

LowRankSizes of_expert(const ExpertRank& s, int64_t tokens) {
  return {tokens, s.rank, s.parts, s.part, s.at, s.columns};
}

// Where the rows of an op's expert are: in place, or those of the tokens of choices.
template <class T>
struct RowsOf {
  const T* data;
  const int32_t* choice;  // null: they are in place
  int64_t top_k, columns;

  const T* row(int64_t i) const { return data + (choice == nullptr ? i : choice[i] / top_k) * columns; }
};

template <class T>
RowsOf<T> rows_of(const ExpertRows& rows, int64_t expert, bool gathers, const T* data, int64_t columns) {
  if (gathers) return {data, rows.choice(expert), rows.top_k(), columns};
  return {data + rows.begin(expert) * columns, nullptr, 1, columns};
}

// Calls f(expert of the group, the first of its rows, how many, worker) for up to kLowRankRows rows of one
// expert at a time.
template <class F>
void for_each_block(const Mixture& mixture, const ExpertGroup& group, const ExpertRows& rows,
                    const KernelContext& context, F&& f) {
  const int64_t begin = rows.begin(group.first), end = rows.begin(group.first + group.count);
  context.pool.parallel_for(ceil_div(mixture.rows(), kLowRankRows), [&](int64_t task, int worker) {
    int64_t row = begin + task * kLowRankRows;
    const int64_t last = std::min(end, row + kLowRankRows);
    for (int64_t e = 0; e < group.count && row < last; ++e) {
      const int64_t next = std::min(last, rows.begin(group.first + e) + rows.count(group.first + e));
      if (next <= row) continue;
      f(e, row - rows.begin(group.first + e), next - row, worker);
      row = next;
    }
  });
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

Status launch(const LowRank& op, const Args& args, const KernelContext& context) {
  const LowRankSizes& s = op.sizes;
  with_type(op.dtype, [&]<class T>(T) {
    const T* residual = op.has_residual ? args.in<T>(LowRank::kResidual) : nullptr;
    context.pool.parallel_for(ceil_div(s.tokens, kLowRankRows), [&](int64_t task, int worker) {
      Carver place(context.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t first = task * kLowRankRows;
      SLUICE_LOOP(context.isa, low_rank, s, op.scale, args.in<T>(LowRank::kU) + first * s.inner(),
                  args.in<T>(LowRank::kB), residual == nullptr ? nullptr : residual + first * s.columns,
                  args.out<T>(LowRank::kY) + first * s.columns, std::min(kLowRankRows, s.tokens - first),
                  scratch);
    });
  });
  return {};
}

Status launch(const LowRankDgrad& op, const Args& args, const KernelContext& context) {
  const LowRankSizes& s = op.sizes;
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(ceil_div(s.tokens, kLowRankRows), [&](int64_t task, int worker) {
      Carver place(context.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t first = task * kLowRankRows;
      SLUICE_LOOP(context.isa, low_rank_dgrad, s, op.scale, args.in<T>(LowRankDgrad::kDy) + first * s.columns,
                  args.in<T>(LowRankDgrad::kB), args.out<T>(LowRankDgrad::kDu) + first * s.inner(),
                  std::min(kLowRankRows, s.tokens - first), scratch);
    });
  });
  return {};
}

Status launch(const LowRankWgrad& op, const Args& args, const KernelContext& context) {
  const LowRankSizes& s = op.sizes;
  const int64_t panels = ceil_div(s.part, kPanel);
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    context.pool.parallel_for(s.parts * panels, [&](int64_t task, int worker) {
      Carver place(context.scratch[size_t(worker)]);
      const LowRankScratch scratch(s, place);
      const int64_t part = task / panels, row = task % panels * kPanel, at = part * s.part + row;
      SLUICE_LOOP(context.isa, low_rank_wgrad, s, op.scale, args.in<T>(LowRankWgrad::kDy) + s.first + at,
                  args.in<T>(LowRankWgrad::kU) + part * s.rank, op.accumulate,
                  args.out<G>(LowRankWgrad::kDb) + at * s.rank, std::min(kPanel, s.part - row), scratch);
    });
  });
  return {};
}

int64_t scratch_of(const GroupedLowRank& op) {
  return scratch_bytes_of(of_expert(op.sizes, 1));
}
int64_t scratch_of(const GroupedLowRankDgrad& op) {
  return scratch_bytes_of(of_expert(op.sizes, 1));
}
int64_t scratch_of(const GroupedLowRankWgrad& op) {
  return scratch_bytes_of(of_expert(op.sizes, 1));
}

Status launch(const GroupedLowRank& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedLowRank::kRouting));
  const LowRankSizes s = of_expert(op.sizes, 1);
  with_type(op.dtype, [&]<class T>(T) {
    for_each_block(op.mixture, op.group, rows, context,
                   [&](int64_t e, int64_t first, int64_t count, int worker) {
                     Carver place(context.scratch[size_t(worker)]);
                     const LowRankScratch scratch(s, place);
                     const int64_t row = rows.begin(op.group.first + e) + first;
                     SLUICE_LOOP(context.isa, add_low_rank, s, op.scale, op.turned,
                                 args.in<T>(GroupedLowRank::kU) + row * s.inner(),
                                 args.in<T>(GroupedLowRank::kB) + e * s.adapted() * s.rank,
                                 args.out<T>(GroupedLowRank::kY) + row * s.columns, count, scratch);
                   });
  });
  return {};
}

Status launch(const GroupedLowRankDgrad& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedLowRankDgrad::kRouting));
  const LowRankSizes s = of_expert(op.sizes, 1);
  with_type(op.dtype, [&]<class T>(T) {
    const T* dy = args.in<T>(GroupedLowRankDgrad::kDy);
    T* du = args.out<T>(GroupedLowRankDgrad::kDu);
    if (!op.accumulate) {
      const int64_t end = rows.begin(op.group.first + op.group.count);
      std::fill_n(du, rows.begin(op.group.first) * s.inner(), T{});
      std::fill_n(du + end * s.inner(), (op.mixture.rows() - end) * s.inner(), T{});
    }
    for_each_block(op.mixture, op.group, rows, context,
                   [&](int64_t e, int64_t first, int64_t count, int worker) {
                     Carver place(context.scratch[size_t(worker)]);
                     const LowRankScratch scratch(s, place);
                     const int64_t expert = op.group.first + e, row = rows.begin(expert) + first;
                     SLUICE_LOOP(context.isa, grouped_low_rank_dgrad, s, op.scale,
                                 rows_of(rows, expert, op.gathers, dy, s.columns), first,
                                 args.in<T>(GroupedLowRankDgrad::kB) + e * s.adapted() * s.rank,
                                 du + row * s.inner(), count, scratch);
                   });
  });
  return {};
}

Status launch(const GroupedLowRankWgrad& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedLowRankWgrad::kRouting));
  const LowRankSizes all = of_expert(op.sizes, 1);
  const int64_t panels = ceil_div(all.part, kPanel);
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    const T* dy = args.in<T>(GroupedLowRankWgrad::kDy);
    context.pool.parallel_for(op.group.count * all.parts * panels, [&](int64_t task, int worker) {
      Carver place(context.scratch[size_t(worker)]);
      const LowRankScratch scratch(all, place);
      const int64_t e = task / (all.parts * panels), expert = op.group.first + e;
      const int64_t part = task / panels % all.parts, row = task % panels * kPanel;
      const int64_t at = part * all.part + row, count = std::min(kPanel, all.part - row);
      G* db = args.out<G>(GroupedLowRankWgrad::kDb) + (e * all.adapted() + at) * all.rank;
      if (rows.count(expert) == 0) {
        if (!op.accumulate) std::fill_n(db, count * all.rank, G{});
        return;
      }
      SLUICE_LOOP(context.isa, grouped_low_rank_wgrad, of_expert(op.sizes, rows.count(expert)), op.scale,
                  rows_of(rows, expert, op.gathers, dy, all.columns), all.first + at,
                  args.in<T>(GroupedLowRankWgrad::kU) + rows.begin(expert) * all.inner() + part * all.rank,
                  op.accumulate, db, count, scratch);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
