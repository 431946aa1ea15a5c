// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/grouped_joint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/gemm_packed.h"
#include "base/check.h"

namespace sluice::core::cpu {
namespace {

// A task packs kStrip columns and multiplies kRowsPerTask rows with them, kDepth along k before the next
// rows' turn. So all that it works on stays in a core's second-level cache.
constexpr int64_t kDepth = 160, kStrip = 4 * kPanel, kRowsPerTask = 512;

// C (+)= A B, or A B^T, for some rows of an expert and columns of B from first_column on. Row i of A is that
// of choice[i]'s token, or the i-th.
struct RowProduct {
  Layout layout;
  const float* a;
  const int32_t* choice;
  int64_t top_k, rows, n, k;
  const float *b, *bias;
  int64_t first_column, columns;
  float *c, *packed, *sums;
};

// Rows that are copied into panels, [rows, 32] each.
struct RowChunk {
  const float* from;
  const int32_t* choice;
  int64_t top_k, rows, columns;
  float* to;
};

// C (+)= A^T B for out_rows columns of A; B in panels of chunks of kDepth rows.
struct OuterProduct {
  const float* a;
  const int32_t* choice;
  int64_t top_k, k, a_columns, out_rows, columns;
  const float* b;
  float* c;
  bool accumulate;
  float *packed, *sums;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/grouped_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kSums = kPanel * kPanel;  // behind what a task packs

// Which task is whose, where each expert has some.
class Tasks {
 public:
  struct Task {
    int64_t expert, number;
  };

  void add(int64_t expert, int64_t tasks) {
    if (experts_ == 0) first_expert_ = expert;
    begin_[size_t(experts_) + 1] = begin_[size_t(experts_)] + tasks;
    ++experts_;
  }
  int64_t count() const { return begin_[size_t(experts_)]; }
  Task at(int64_t task) const {
    const auto* end = begin_.data() + experts_ + 1;
    const int64_t i = std::upper_bound(begin_.data(), end, task) - begin_.data() - 1;
    return {first_expert_ + i, task - begin_[size_t(i)]};
  }

 private:
  std::array<int64_t, kMostExperts + 1> begin_{};
  int64_t experts_ = 0, first_expert_ = 0;
};

float* scratch_of(const KernelContext& context, int worker) {
  return reinterpret_cast<float*>(context.scratch[size_t(worker)]);
}

struct Rowwise {
  Layout layout;
  const ExpertGroup& group;
  bool gathers;
  int64_t n, k;
  const float *a, *b, *bias;
  float* c;
};

void multiply_all(const Rowwise& p, const ExpertRows& rows, const KernelContext& context) {
  const int64_t strips = ceil_div(p.n, kStrip);
  Tasks tasks;
  for (int64_t i = 0; i < p.group.count; ++i)
    tasks.add(i, ceil_div(rows.count(p.group.first + i), kRowsPerTask) * strips);
  context.pool.parallel_for(tasks.count(), [&](int64_t task, int worker) {
    const auto [i, number] = tasks.at(task);
    const int64_t expert = p.group.first + i, first = number / strips * kRowsPerTask;
    const int64_t row = rows.begin(expert) + first, column = number % strips * kStrip;
    float* packed = scratch_of(context, worker);
    SLUICE_LOOP(context.isa, multiply_rows,
                RowProduct{.layout = p.layout,
                           .a = p.gathers ? p.a : p.a + row * p.k,
                           .choice = p.gathers ? rows.choice(expert) + first : nullptr,
                           .top_k = rows.top_k(),
                           .rows = std::min(kRowsPerTask, rows.count(expert) - first),
                           .n = p.n,
                           .k = p.k,
                           .b = p.b + i * p.n * p.k,
                           .bias = p.bias == nullptr ? nullptr : p.bias + i * p.n,
                           .first_column = column,
                           .columns = std::min(kStrip, p.n - column),
                           .c = p.c + row * p.n,
                           .packed = packed,
                           .sums = packed + kStrip * kDepth});
  });
}

}  // namespace

const int64_t kJointScratchBytes = (kStrip * kDepth + kSums) * int64_t{sizeof(float)};

int64_t joint_workspace_bytes(const GroupedLinear&) {
  return 0;
}
int64_t joint_workspace_bytes(const GroupedDgrad&) {
  return 0;
}
// Packed rows of at least one expert, which may have all tokens.
int64_t joint_workspace_bytes(const GroupedWgrad& op) {
  return op.mixture.tokens * panels_of(op.in) * kPanel * int64_t{sizeof(float)};
}

void multiply_jointly(const GroupedLinear& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedLinear::kRouting));
  multiply_all({.layout = Layout::NT,
                .group = op.group,
                .gathers = op.gathers,
                .n = op.out,
                .k = op.in,
                .a = args.in<float>(GroupedLinear::kX),
                .b = args.in<float>(GroupedLinear::kW),
                .bias = op.has_bias ? args.in<float>(GroupedLinear::kBias) : nullptr,
                .c = args.out<float>(GroupedLinear::kY)},
               rows, context);
}

void multiply_jointly(const GroupedDgrad& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedDgrad::kRouting));
  multiply_all({.layout = Layout::NN,
                .group = op.group,
                .gathers = op.gathers,
                .n = op.in,
                .k = op.out,
                .a = args.in<float>(GroupedDgrad::kDy),
                .b = args.in<float>(GroupedDgrad::kW),
                .bias = nullptr,
                .c = args.out<float>(GroupedDgrad::kDx)},
               rows, context);
}

void multiply_jointly(const GroupedWgrad& op, const Args& args, const KernelContext& context) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedWgrad::kRouting));
  const auto* dy = args.in<float>(GroupedWgrad::kDy);
  const auto* x = args.in<float>(GroupedWgrad::kX);
  auto* dw = args.out<float>(GroupedWgrad::kDw);
  auto* packed = reinterpret_cast<float*>(args.workspace);
  const int64_t packed_row = panels_of(op.in) * kPanel, blocks = panels_of(op.out);
  const int64_t end = op.group.first + op.group.count;
  // As many experts at a time as there is room to pack rows of.
  for (int64_t first = op.group.first, next = first; first < end; first = next) {
    const int64_t begin = rows.begin(first);
    Tasks packing, products;
    for (; next < end && rows.begin(next) + rows.count(next) - begin <= op.mixture.tokens; ++next) {
      packing.add(next, ceil_div(rows.count(next), kDepth));
      products.add(next, blocks);
    }
    SLUICE_CHECK(next > first, "expert {} has {} rows, of {} tokens", first, rows.count(first),
                 op.mixture.tokens);
    context.pool.parallel_for(packing.count(), [&](int64_t task, int) {
      const auto [expert, chunk] = packing.at(task);
      const int64_t from = chunk * kDepth, row = rows.begin(expert) + from;
      SLUICE_LOOP(context.isa, pack_chunk,
                  RowChunk{.from = op.gathers_x ? x : x + row * op.in,
                           .choice = op.gathers_x ? rows.choice(expert) + from : nullptr,
                           .top_k = rows.top_k(),
                           .rows = std::min(kDepth, rows.count(expert) - from),
                           .columns = op.in,
                           .to = packed + (row - begin) * packed_row});
    });
    context.pool.parallel_for(products.count(), [&](int64_t task, int worker) {
      const auto [expert, block] = products.at(task);
      const int64_t row = rows.begin(expert), out = block * kPanel;
      float* own = scratch_of(context, worker);
      SLUICE_LOOP(context.isa, multiply_outer,
                  OuterProduct{.a = (op.gathers_dy ? dy : dy + row * op.out) + out,
                               .choice = op.gathers_dy ? rows.choice(expert) : nullptr,
                               .top_k = rows.top_k(),
                               .k = rows.count(expert),
                               .a_columns = op.out,
                               .out_rows = std::min(kPanel, op.out - out),
                               .columns = op.in,
                               .b = packed + (row - begin) * packed_row,
                               .c = dw + ((expert - op.group.first) * op.out + out) * op.in,
                               .accumulate = op.accumulate,
                               .packed = own,
                               .sums = own + kStrip * kDepth});
    });
  }
}

}  // namespace sluice::core::cpu
