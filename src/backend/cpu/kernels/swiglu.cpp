// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/narrow.h"
#include "ops/experts.h"
#include "ops/mlp.h"

namespace sluice::core::cpu {
namespace {

// ExpertGluBwd's operands, and its sizes.
template <class T>
struct GluRows {
  const T *gu, *dy;
  const float* gates;
  const int32_t *begin, *choice;
  T *dgu, *gated;
  float* dgates;
  const T *bias, *dout;  // null: there is no bias
  int64_t biased, top_k, dim;
};

}  // namespace
}  // namespace sluice::core::cpu

#define SLUICE_LOOPS "backend/cpu/kernels/swiglu_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 8;

}  // namespace

int64_t workspace_of(const Swiglu& op) {
  return wide_bytes(op);
}

Status launch(const Swiglu& op, const Args& args, const KernelContext& context) {
  if (op.narrow) return launch_narrow(op, args, context);
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      const T* gu = args.in<T>(Swiglu::kGu) + first * op.columns();
      const T* up = op.plain ? nullptr : op.apart ? args.in<T>(Swiglu::kUp) + first * op.dim : gu + op.dim;
      SLUICE_LOOP(context.isa, forward, gu, up, op.columns(), args.out<T>(Swiglu::kY) + first * op.dim, count,
                  op.dim, op.activation, op.limit);
    });
  });
  return {};
}

int64_t workspace_of(const SwigluBwd& op) {
  return wide_bytes(op);
}

Status launch(const SwigluBwd& op, const Args& args, const KernelContext& context) {
  if (op.narrow) return launch_narrow(op, args, context);
  with_type(op.dtype, [&]<class T>(T) {
    context.for_rows(op.tokens, kRowsPerTask, [&](int64_t first, int64_t count) {
      const int64_t offset = first * op.dim, wide = first * op.columns();
      const T* gu = args.in<T>(SwigluBwd::kGu) + wide;
      T* dgu = args.out<T>(SwigluBwd::kDgu) + wide;
      const bool apart = op.apart, plain = op.plain;
      const T* up = plain ? nullptr : apart ? args.in<T>(SwigluBwd::kUp) + offset : gu + op.dim;
      T* dup = plain ? nullptr : apart ? args.out<T>(SwigluBwd::kDup) + offset : dgu + op.dim;
      SLUICE_LOOP(context.isa, backward, gu, up, args.in<T>(SwigluBwd::kDy) + offset, dgu, dup, op.columns(),
                  args.out<T>(SwigluBwd::kY) + offset, count, op.dim, op.activation, op.limit);
    });
  });
  return {};
}

Status launch(const ExpertGluBwd& op, const Args& args, const KernelContext& context) {
  const int64_t rows = op.mixture.rows();
  const auto* routing = args.in<int32_t>(ExpertGluBwd::kRouting);
  with_type(op.dtype, [&]<class T>(T) {
    const GluRows<T> all{.gu = args.in<T>(ExpertGluBwd::kGu),
                         .dy = args.in<T>(ExpertGluBwd::kDy),
                         .gates = args.in<float>(ExpertGluBwd::kGates),
                         .begin = routing,
                         .choice = routing + RoutingLayout{op.mixture.experts, rows}.choice(),
                         .dgu = args.out<T>(ExpertGluBwd::kDgu),
                         .gated = args.out<T>(ExpertGluBwd::kGated),
                         .dgates = args.out<float>(ExpertGluBwd::kDgates),
                         .bias = op.biased > 0 ? args.in<T>(ExpertGluBwd::kBias) : nullptr,
                         .dout = op.biased > 0 ? args.in<T>(ExpertGluBwd::kDout) : nullptr,
                         .biased = op.biased,
                         .top_k = op.mixture.top_k,
                         .dim = op.dim};
    context.for_rows(rows, kRowsPerTask, [&](int64_t first, int64_t count) {
      SLUICE_LOOP(context.isa, expert_backward, all, first, first + count, op.activation, op.limit);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
