// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"

#define SLUICE_LOOPS "backend/cpu/kernels/swiglu_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kRowsPerTask = 8;

}  // namespace

Status launch(const Swiglu& op, const Args& args, const Machine& machine) {
  with_type(op.dtype, [&](auto type) {
    using T = decltype(type);
    machine.pool.parallel_for(ceil_div(op.tokens, kRowsPerTask), [&](int64_t task, int) {
      const int64_t first = task * kRowsPerTask;
      SLUICE_LOOP(machine.isa, forward, args.in<T>(Swiglu::kGu) + first * op.columns(),
                  args.out<T>(Swiglu::kY) + first * op.dim, std::min(kRowsPerTask, op.tokens - first), op.dim,
                  op.activation, op.plain, op.limit);
    });
  });
  return {};
}

Status launch(const SwigluBwd& op, const Args& args, const Machine& machine) {
  with_type(op.dtype, [&](auto type) {
    using T = decltype(type);
    machine.pool.parallel_for(ceil_div(op.tokens, kRowsPerTask), [&](int64_t task, int) {
      const int64_t first = task * kRowsPerTask, offset = first * op.dim, wide = first * op.columns();
      SLUICE_LOOP(machine.isa, backward, args.in<T>(SwigluBwd::kGu) + wide,
                  args.in<T>(SwigluBwd::kDy) + offset, args.out<T>(SwigluBwd::kDgu) + wide,
                  args.out<T>(SwigluBwd::kY) + offset, std::min(kRowsPerTask, op.tokens - first), op.dim,
                  op.activation, op.plain, op.limit);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
