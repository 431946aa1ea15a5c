// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/narrow.h"
#include "ops/norm.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 16;

template <class T>
struct ForwardRows {
  const T *x, *w, *residual;  // residual may be null
  T* y;
  int64_t rows, dim;
  float eps, offset, scale;
};

template <class T>
struct BackwardRows {
  const T *x, *w, *dy, *dres;  // dres may be null
  T* dx;
  float* dw;  // sum over these rows
  int64_t rows, dim;
  float eps, offset, scale;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/rms_norm_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

int64_t workspace_of(const RmsNorm& op) {
  return wide_bytes(op);
}

Status launch(const RmsNorm& op, const Args& args, const KernelContext& context) {
  if (op.narrow) return launch_narrow(op, args, context);
  with_type(op.dtype, [&]<class T>(T) {
    const T* residual = op.has_residual ? args.in<T>(RmsNorm::kResidual) : nullptr;
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      const int64_t offset = first * op.dim;
      const ForwardRows<T> rows{.x = args.in<T>(RmsNorm::kX) + offset,
                                .w = args.in<T>(RmsNorm::kW),
                                .residual = residual ? residual + offset : nullptr,
                                .y = args.out<T>(RmsNorm::kY) + offset,
                                .rows = count,
                                .dim = op.dim,
                                .eps = op.eps,
                                .offset = op.offset,
                                .scale = op.scale};
      SLUICE_LOOP(context.isa, forward, rows);
    });
  });
  return {};
}

int64_t workspace_of(const RmsNormBwd& op) {
  Carver size(nullptr);
  size.take<float>(ceil_div(op.tokens, summed_rows(op.tokens)) * op.dim);
  return size.used();
}

Status launch(const RmsNormBwd& op, const Args& args, const KernelContext& context) {
  const int64_t block = summed_rows(op.tokens), blocks = ceil_div(op.tokens, block);
  auto* partials = Carver(args.workspace).take<float>(blocks * op.dim);
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, block, [&](int64_t first, int64_t count) {
      const int64_t offset = first * op.dim;
      const BackwardRows<T> rows{.x = args.in<T>(RmsNormBwd::kX) + offset,
                                 .w = args.in<T>(RmsNormBwd::kW),
                                 .dy = args.in<T>(RmsNormBwd::kDy) + offset,
                                 .dres = op.has_residual ? args.in<T>(RmsNormBwd::kDres) + offset : nullptr,
                                 .dx = args.out<T>(RmsNormBwd::kDx) + offset,
                                 .dw = partials + first / block * op.dim,
                                 .rows = count,
                                 .dim = op.dim,
                                 .eps = op.eps,
                                 .offset = op.offset,
                                 .scale = op.scale};
      SLUICE_LOOP(context.isa, backward, rows);
    });
  });
  with_type(op.grad_dtype, [&](auto type) {
    SLUICE_LOOP(context.isa, add_partials, partials, blocks, op.dim, op.dim, op.accumulate,
                args.out<decltype(type)>(RmsNormBwd::kDw));
  });
  return {};
}

}  // namespace sluice::core::cpu
