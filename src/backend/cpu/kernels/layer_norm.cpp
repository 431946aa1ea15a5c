// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/layer_norm.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

// The common part of both directions, from the first of `rows` rows on.
template <class T>
struct LayerNormRows {
  const T *x, *w, *bias;  // w and bias may be null
  int64_t rows, dim;
  float eps, scale;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/layer_norm_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const LayerNorm& op, const Args& args, const KernelContext& context) {
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      const LayerNormRows<T> rows{.x = args.in<T>(LayerNorm::kX) + first * op.dim,
                                  .w = op.has_weight ? args.in<T>(LayerNorm::kW) : nullptr,
                                  .bias = op.has_bias ? args.in<T>(LayerNorm::kBias) : nullptr,
                                  .rows = count,
                                  .dim = op.dim,
                                  .eps = op.eps,
                                  .scale = op.scale};
      SLUICE_LOOP(context.isa, forward, rows, args.out<T>(LayerNorm::kY) + first * op.dim);
    });
  });
  return {};
}

int64_t workspace_of(const LayerNormBwd& op) {
  const int64_t sums = ceil_div(op.tokens, summed_rows(op.tokens)) * op.dim;
  Carver size(nullptr);
  if (op.has_weight) size.take<float>(sums);
  if (op.has_bias) size.take<float>(sums);
  return size.used();
}

Status launch(const LayerNormBwd& op, const Args& args, const KernelContext& context) {
  const int64_t block = summed_rows(op.tokens), blocks = ceil_div(op.tokens, block);
  Carver workspace(args.workspace);
  float* dw = op.has_weight ? workspace.take<float>(blocks * op.dim) : nullptr;
  float* dbias = op.has_bias ? workspace.take<float>(blocks * op.dim) : nullptr;
  with_type(op.dtype, [&]<class T>(T) {
    const T* dres = op.has_residual ? args.in<T>(op.dres_operand()) : nullptr;
    context.for_rows(op.tokens, block, [&](int64_t first, int64_t count) {
      const int64_t offset = first * op.dim;
      const LayerNormRows<T> rows{.x = args.in<T>(LayerNormBwd::kX) + offset,
                                  .w = op.has_weight ? args.in<T>(op.w_operand()) : nullptr,
                                  .bias = nullptr,
                                  .rows = count,
                                  .dim = op.dim,
                                  .eps = op.eps,
                                  .scale = op.scale};
      SLUICE_LOOP(context.isa, backward, rows, args.in<T>(LayerNormBwd::kDy) + offset,
                  dres ? dres + offset : nullptr, args.out<T>(LayerNormBwd::kDx) + offset,
                  dw ? dw + first / block * op.dim : nullptr,
                  dbias ? dbias + first / block * op.dim : nullptr);
    });
  });
  with_type(op.grad_dtype, [&](auto type) {
    using G = decltype(type);
    if (dw) {
      SLUICE_LOOP(context.isa, add_partials, dw, blocks, op.dim, op.dim, op.accumulate_dw,
                  args.out<G>(op.dw_operand()));
    }
    if (dbias) {
      SLUICE_LOOP(context.isa, add_partials, dbias, blocks, op.dim, op.dim, op.accumulate_dbias,
                  args.out<G>(op.dbias_operand()));
    }
  });
  return {};
}

}  // namespace sluice::core::cpu
