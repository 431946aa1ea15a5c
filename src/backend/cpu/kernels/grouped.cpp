// SPDX-License-Identifier: Apache-2.0
// Products over the rows of each expert, by our own kernels, which need not know before how many rows there
// are. An element is summed up in an order that does not depend on that, so a row's result does not depend on
// which others its expert has.
//
// In f32 they are cut into tasks all together (grouped_joint.h). In bf16, and for few tokens unless results
// are exact, experts come one after the other, and rows of tokens are copied together before.
#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm_few.h"
#include "backend/cpu/gemm_varying.h"
#include "backend/cpu/kernels/grouped_joint.h"
#include "backend/cpu/kernels/kernels.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerCopy = 32, kBytesPerClear = 256 * kKiB;

// The largest product, over all tokens' rows: one expert has no more.
GemmShape most_of(const GroupedLinear& op) {
  return {Layout::NT, op.mixture.tokens, op.out, op.in, op.dtype, op.dtype, op.has_bias};
}
GemmShape most_of(const GroupedDgrad& op) {
  return {Layout::NN, op.mixture.tokens, op.in, op.out, op.dtype, op.dtype, false};
}
GemmShape most_of(const GroupedWgrad& op) {
  return {Layout::TN, op.out, op.in, op.mixture.tokens, op.dtype, op.grad_dtype, op.accumulate};
}

// Bytes of the rows that are copied together.
int64_t gathered_bytes(const GroupedLinear& op) {
  return op.gathers ? op.mixture.tokens * op.in * size_of(op.dtype) : 0;
}
int64_t gathered_bytes(const GroupedDgrad& op) {
  return op.gathers ? op.mixture.tokens * op.out * size_of(op.dtype) : 0;
}
int64_t gathered_bytes(const GroupedWgrad& op) {
  return (op.gathers_dy  ? op.mixture.tokens * op.out
          : op.gathers_x ? op.mixture.tokens * op.in
                         : 0) *
         size_of(op.dtype);
}

// Whether rows of few tokens are multiplied as such.
bool is_few(const GroupedLinear& op, bool exact) {
  return op.mixture.tokens <= kFewRows && !exact;
}
// Whether experts' products are cut into tasks all together.
bool is_joint(const GroupedLinear& op, bool exact) {
  return op.dtype == DType::F32 && !is_few(op, exact);
}
bool is_joint(const GroupedDgrad& op, bool = false) {
  return op.dtype == DType::F32;
}
bool is_joint(const GroupedWgrad& op, bool = false) {
  return op.dtype == DType::F32;
}

template <class O>
int64_t workspace_for(const O& op, bool exact = false) {
  if (is_joint(op, exact)) return joint_workspace_bytes(op);
  Carver size(nullptr);
  size.take<std::byte>(gathered_bytes(op));
  size.take<std::byte>(varying_workspace_bytes(most_of(op)));
  return size.used();
}

// Copies rows of tokens, of `bytes` each, that an expert's rows are of, one behind the other.
void gather(const ExpertRows& rows, int64_t expert, const void* from, int64_t bytes, std::byte* to,
            ThreadPool& pool) {
  const int32_t* choice = rows.choice(expert);
  const int64_t count = rows.count(expert);
  pool.parallel_for(ceil_div(count, kRowsPerCopy), [&](int64_t task, int) {
    for (int64_t i = task * kRowsPerCopy; i < std::min(count, (task + 1) * kRowsPerCopy); ++i) {
      const int64_t token = choice[i] / rows.top_k();
      std::memcpy(to + i * bytes, static_cast<const std::byte*>(from) + token * bytes, size_t(bytes));
    }
  });
}

// Makes rows of experts outside the group zero, if it is the first.
void clear_others(const ExpertRows& rows, const Mixture& mixture, const ExpertGroup& group, std::byte* y,
                  int64_t row_bytes, ThreadPool& pool) {
  const auto clear = [&](int64_t first, int64_t last) {
    const int64_t bytes = (last - first) * row_bytes;
    pool.parallel_for(ceil_div(bytes, kBytesPerClear), [&](int64_t task, int) {
      const int64_t at = task * kBytesPerClear;
      std::memset(y + first * row_bytes + at, 0, size_t(std::min(kBytesPerClear, bytes - at)));
    });
  };
  clear(0, rows.begin(group.first));
  clear(rows.begin(group.first + group.count), mixture.rows());
}

// Rows that follow each other, of `bytes` each.
template <class T>
struct RowsAt {
  T* data;
  int64_t bytes;
};

// Makes rows of `to` from those of `from`: all experts together, or by multiply(expert of the group, its
// product, its rows of `from`, its rows of `to`, workspace) for each that has rows.
template <class O, class Multiply>
Status multiply_rows(const O& op, const Args& args, const KernelContext& context,
                     RowsAt<const std::byte> from, RowsAt<std::byte> to, const Multiply& multiply) {
  const ExpertRows rows(op.mixture, args.in<int32_t>(O::kRouting));
  if (!op.accumulate) clear_others(rows, op.mixture, op.group, to.data, to.bytes, context.pool);
  if (is_joint(op, context.exact)) {
    multiply_jointly(op, args, context);
    return {};
  }
  Carver carver(args.workspace);
  auto* gathered = carver.take<std::byte>(gathered_bytes(op));
  auto* workspace = carver.take<std::byte>(0);
  GemmShape shape = most_of(op);
  for (int64_t i = 0; i < op.group.count; ++i) {
    const int64_t expert = op.group.first + i;
    shape.m = rows.count(expert);
    if (shape.m == 0) continue;
    const std::byte* own = from.data + rows.begin(expert) * from.bytes;
    if (op.gathers) {
      gather(rows, expert, from.data, from.bytes, gathered, context.pool);
      own = gathered;
    }
    multiply(i, shape, own, to.data + rows.begin(expert) * to.bytes, workspace);
  }
  return {};
}

}  // namespace

int64_t workspace_of(const GroupedLinear& op, bool exact) {
  return workspace_for(op, exact);
}
int64_t workspace_of(const GroupedDgrad& op) {
  return workspace_for(op);
}
int64_t workspace_of(const GroupedWgrad& op) {
  return workspace_for(op);
}
int64_t scratch_of(const GroupedLinear& op, bool exact) {
  return is_joint(op, exact) ? kJointScratchBytes : varying_scratch_bytes(most_of(op));
}
int64_t scratch_of(const GroupedDgrad& op) {
  return is_joint(op) ? kJointScratchBytes : varying_scratch_bytes(most_of(op));
}
int64_t scratch_of(const GroupedWgrad& op) {
  return is_joint(op) ? kJointScratchBytes : varying_scratch_bytes(most_of(op));
}

Status launch(const GroupedLinear& op, const Args& args, const KernelContext& context) {
  const int64_t row_bytes = op.out * size_of(op.dtype);
  const auto* w = args.in<std::byte>(GroupedLinear::kW);
  const auto* bias = op.has_bias ? args.in<std::byte>(GroupedLinear::kBias) : nullptr;
  return multiply_rows(
      op, args, context, {args.in<std::byte>(GroupedLinear::kX), op.in * size_of(op.dtype)},
      {args.out<std::byte>(GroupedLinear::kY), row_bytes},
      [&](int64_t i, const GemmShape& shape, const std::byte* x, std::byte* y, std::byte* workspace) {
        if (bias != nullptr) {
          for (int64_t r = 0; r < shape.m; ++r)
            std::memcpy(y + r * row_bytes, bias + i * row_bytes, size_t(row_bytes));
        }
        const std::byte* own = w + i * op.in * row_bytes;
        if (is_few(op, context.exact)) {
          few_multiply(context.isa, shape, context.pool, x, own, y);
        } else {
          varying_multiply(context.isa, shape, context.pool, context.scratch, x, own, y, workspace);
        }
      });
}

Status launch(const GroupedDgrad& op, const Args& args, const KernelContext& context) {
  const int64_t size = size_of(op.dtype);
  const auto* w = args.in<std::byte>(GroupedDgrad::kW);
  return multiply_rows(
      op, args, context, {args.in<std::byte>(GroupedDgrad::kDy), op.out * size},
      {args.out<std::byte>(GroupedDgrad::kDx), op.in * size},
      [&](int64_t i, const GemmShape& shape, const std::byte* dy, std::byte* dx, std::byte* workspace) {
        varying_multiply(context.isa, shape, context.pool, context.scratch, dy, w + i * op.out * op.in * size,
                         dx, workspace);
      });
}

Status launch(const GroupedWgrad& op, const Args& args, const KernelContext& context) {
  if (is_joint(op)) {
    multiply_jointly(op, args, context);
    return {};
  }
  const ExpertRows rows(op.mixture, args.in<int32_t>(GroupedWgrad::kRouting));
  const int64_t size = size_of(op.dtype), dw_bytes = op.out * op.in * size_of(op.grad_dtype);
  Carver carver(args.workspace);
  auto* gathered = carver.take<std::byte>(gathered_bytes(op));
  auto* workspace = carver.take<std::byte>(0);
  for (int64_t i = 0; i < op.group.count; ++i) {
    const int64_t expert = op.group.first + i, count = rows.count(expert);
    auto* dw = args.out<std::byte>(GroupedWgrad::kDw) + i * dw_bytes;
    if (count == 0) {
      if (!op.accumulate) std::memset(dw, 0, size_t(dw_bytes));
      continue;
    }
    const auto of = [&](int operand, bool gathers, int64_t columns) -> const std::byte* {
      const auto* from = args.in<std::byte>(operand);
      if (!gathers) return from + rows.begin(expert) * columns * size;
      gather(rows, expert, from, columns * size, gathered, context.pool);
      return gathered;
    };
    const std::byte* dy = of(GroupedWgrad::kDy, op.gathers_dy, op.out);
    const std::byte* x = of(GroupedWgrad::kX, op.gathers_x, op.in);
    GemmShape shape = most_of(op);
    shape.k = count;
    varying_multiply(context.isa, shape, context.pool, context.scratch, dy, x, dw, workspace);
  }
  return {};
}

}  // namespace sluice::core::cpu
