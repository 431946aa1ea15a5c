// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rope.h"
#include "ops/linear.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

GemmShape forward_product(const Linear& op) {
  return {Layout::NT, op.tokens, op.out, op.in, op.dtype, op.result_type(), op.has_residual || op.has_bias};
}
// Operands with scales lie as the sum runs (ops/linear.h).
GemmShape dgrad_product(const LinearDgrad& op) {
  return {op.dy_format ? Layout::NT : Layout::NN, op.tokens, op.in, op.out, op.dtype, op.dtype,
          op.accumulate || op.has_residual};
}
GemmShape wgrad_product(const LinearWgrad& op) {
  return {op.dy_format ? Layout::NT : Layout::TN,
          op.out,
          op.in,
          op.tokens,
          op.dtype,
          op.grad_dtype,
          op.accumulate};
}

// One of a product's two factors.
struct Factor {
  int operand;
  const std::optional<NumberFormat>& format;
  int64_t elements;
};
using Factors = std::array<Factor, 2>;

Factors factors_of(const Linear& op) {
  return {{{Linear::kX, op.x_format, op.tokens * op.in}, {Linear::kW, op.weight_format, op.out * op.in}}};
}
Factors factors_of(const LinearDgrad& op) {
  return {{{LinearDgrad::kDy, op.dy_format, op.tokens * op.out},
           {LinearDgrad::kW, op.weight_format, op.out * op.in}}};
}
Factors factors_of(const LinearWgrad& op) {
  return {{{LinearWgrad::kDy, op.dy_format, op.tokens * op.out},
           {LinearWgrad::kX, op.x_format, op.tokens * op.in}}};
}

// Bytes of a factor in a format of its own as the product takes it: in the op's dtype, which holds 8 bits
// and their scale exactly.
int64_t expanded_bytes(const Factor& f, DType dtype) {
  return f.format ? align_up(f.elements * size_of(dtype), 64) : 0;
}
template <class Product>
int64_t expanded_bytes(const Product& op) {
  const Factors f = factors_of(op);
  return expanded_bytes(f[0], op.dtype) + expanded_bytes(f[1], op.dtype);
}

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/linear_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

// Rows of `row` bytes.
void copy_rows(const std::byte* from, std::byte* to, int64_t rows, int64_t row, ThreadPool& pool) {
  pool.parallel_for(ceil_div(rows, kRowsPerTask), [&](int64_t task, int) {
    const int64_t first = task * kRowsPerTask;
    std::memcpy(to + first * row, from + first * row,
                static_cast<size_t>(std::min(kRowsPerTask, rows - first) * row));
  });
}

// Writes the bias that the product is added to.
void begin_with_bias(const Linear& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    with_type(op.result_type(), [&]<class Y>(Y) {
      const Y* residual = op.has_residual ? args.in<Y>(int(op.residual_operand())) : nullptr;
      context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
        const int64_t offset = first * op.out;
        SLUICE_LOOP(context.isa, add_bias, args.in<T>(int(op.bias_operand())),
                    residual ? residual + offset : nullptr, args.out<Y>(Linear::kY) + offset, count, op.out);
      });
    });
  });
}

void multiply(const GemmShape& shape, const Factors& factors, void* c, const Args& args,
              const KernelContext& context) {
  std::byte* workspace = args.workspace;
  const void* in[2];
  for (size_t i = 0; i < factors.size(); ++i) {
    const Factor& f = factors[i];
    in[i] = args.in<void>(f.operand);
    if (!f.format) continue;
    cast(*f.format, in[i], f.elements, shape.in, workspace, context);
    in[i] = workspace;
    workspace += expanded_bytes(f, shape.in);
  }
  context.multiply(shape, in[0], in[1], c, workspace);
}

}  // namespace

int64_t workspace_of(const Linear& op) {
  return expanded_bytes(op);
}
int64_t workspace_of(const LinearDgrad& op) {
  return expanded_bytes(op);
}
int64_t workspace_of(const LinearWgrad& op) {
  return expanded_bytes(op);
}
std::vector<GemmShape> products_of(const Linear& op) {
  return {forward_product(op)};
}
std::vector<GemmShape> products_of(const LinearDgrad& op) {
  return {dgrad_product(op)};
}
std::vector<GemmShape> products_of(const LinearWgrad& op) {
  return {wgrad_product(op)};
}

Status launch(const Linear& op, const Args& args, const KernelContext& context) {
  if (op.has_bias) {
    begin_with_bias(op, args, context);
  } else if (op.has_residual) {
    copy_rows(args.in<std::byte>(int(op.residual_operand())), args.out<std::byte>(Linear::kY), op.tokens,
              op.out * size_of(op.dtype), context.pool);
  }
  multiply(forward_product(op), factors_of(op), args.out<void>(Linear::kY), args, context);
  if (op.rope_heads == 0) return {};
  return rotate({.y = args.out<void>(Linear::kY),
                 .dtype = op.dtype,
                 .rows = op.tokens,
                 .columns = op.out,
                 .heads = op.rope_heads,
                 .head_dim = op.head_dim,
                 .pos = args.in<int32_t>(op.pos_operand()),
                 .inv_freq = args.in<float>(op.inv_freq_operand()),
                 .scale = op.rope_scale,
                 .still_scale = op.still_scale,
                 .temperature = op.temperature},
                context);
}

Status launch(const LinearDgrad& op, const Args& args, const KernelContext& context) {
  if (op.has_residual) {
    copy_rows(args.in<std::byte>(LinearDgrad::kDres), args.out<std::byte>(LinearDgrad::kDx), op.tokens,
              op.in * size_of(op.dtype), context.pool);
  }
  multiply(dgrad_product(op), factors_of(op), args.out<void>(LinearDgrad::kDx), args, context);
  return {};
}

Status launch(const LinearWgrad& op, const Args& args, const KernelContext& context) {
  multiply(wgrad_product(op), factors_of(op), args.out<void>(LinearWgrad::kDw), args, context);
  return {};
}

int64_t workspace_of(const BiasGrad& op) {
  Carver size(nullptr);
  size.take<float>(ceil_div(op.tokens, summed_rows(op.tokens)) * op.out);
  return size.used();
}

Status launch(const BiasGrad& op, const Args& args, const KernelContext& context) {
  constexpr int64_t kColumns = 512;  // per task that adds up partial sums
  const int64_t rows = summed_rows(op.tokens), blocks = ceil_div(op.tokens, rows);
  auto* partials = Carver(args.workspace).take<float>(blocks * op.out);
  with_type(op.dtype, [&](auto type) {
    const auto* dy = args.in<decltype(type)>(BiasGrad::kDy);
    context.pool.parallel_for(blocks, [&](int64_t b, int) {
      SLUICE_LOOP(context.isa, sum_rows, dy + b * rows * op.out, partials + b * op.out,
                  std::min(rows, op.tokens - b * rows), op.out);
    });
  });
  with_type(op.grad_dtype, [&](auto type) {
    auto* dbias = args.out<decltype(type)>(BiasGrad::kDbias);
    context.pool.parallel_for(ceil_div(op.out, kColumns), [&](int64_t task, int) {
      const int64_t first = task * kColumns;
      SLUICE_LOOP(context.isa, add_partials, partials + first, blocks, op.out,
                  std::min(kColumns, op.out - first), op.accumulate, dbias + first);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
