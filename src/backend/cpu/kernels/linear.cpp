#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rope.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

GemmShape forward_product(const Linear& op) {
  return {Layout::NT, op.tokens, op.out, op.in, op.dtype, op.dtype, op.has_residual};
}
GemmShape dgrad_product(const LinearDgrad& op) {
  return {Layout::NN, op.tokens, op.in, op.out, op.dtype, op.dtype, op.accumulate};
}
GemmShape wgrad_product(const LinearWgrad& op) {
  return {Layout::TN, op.out, op.in, op.tokens, op.dtype, op.grad_dtype, op.accumulate};
}

void copy_residual(const Linear& op, const Args& args, ThreadPool& pool) {
  const int64_t row = op.out * size_of(op.dtype);
  const auto* from = args.in<std::byte>(op.residual_operand());
  auto* to = args.out<std::byte>(Linear::kY);
  pool.parallel_for(ceil_div(op.tokens, kRowsPerTask), [&](int64_t task, int) {
    const int64_t first = task * kRowsPerTask;
    std::memcpy(to + first * row, from + first * row,
                static_cast<size_t>(std::min(kRowsPerTask, op.tokens - first) * row));
  });
}

}  // namespace

std::vector<GemmShape> products_of(const Linear& op) {
  return {forward_product(op)};
}
std::vector<GemmShape> products_of(const LinearDgrad& op) {
  return {dgrad_product(op)};
}
std::vector<GemmShape> products_of(const LinearWgrad& op) {
  return {wgrad_product(op)};
}

Status launch(const Linear& op, const Args& args, const Machine& machine) {
  if (op.rope_heads > 0 && op.head_dim > kMaxHeadDim) {
    return error("head_dim {} is above the limit of {}", op.head_dim, kMaxHeadDim);
  }
  if (op.has_residual) copy_residual(op, args, machine.pool);
  SLUICE_TRY(machine.multiply(forward_product(op), args.in<void>(Linear::kX), args.in<void>(Linear::kW),
                              args.out<void>(Linear::kY), args.workspace));
  if (op.rope_heads > 0) apply_rope(op, args, machine);
  return {};
}

Status launch(const LinearDgrad& op, const Args& args, const Machine& machine) {
  return machine.multiply(dgrad_product(op), args.in<void>(LinearDgrad::kDy), args.in<void>(LinearDgrad::kW),
                          args.out<void>(LinearDgrad::kDx), args.workspace);
}

Status launch(const LinearWgrad& op, const Args& args, const Machine& machine) {
  return machine.multiply(wgrad_product(op), args.in<void>(LinearWgrad::kDy), args.in<void>(LinearWgrad::kX),
                          args.out<void>(LinearWgrad::kDw), args.workspace);
}

}  // namespace sluice::cpu
