// SPDX-License-Identifier: Apache-2.0
// What replicas exchange: sums of gradients, those of this process and those of all, and weights.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels/kernels.h"
#include "ops/cast.h"
#include "ops/exchange.h"
#include "ops/update.h"

#define SLUICE_LOOPS "backend/cpu/kernels/exchange_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kSumBlock = 32 * kKiB;  // elements per task

SumSq squares_of(const SumOverProcesses& op) {
  return {.elements = op.elements, .slot = op.slot, .slots = op.slots, .dtype = op.dtype, .first = op.first};
}

Status check_processes(int64_t planned, const KernelContext& context) {
  const int processes = context.network == nullptr ? 1 : context.network->size();
  if (processes == planned) return {};
  return error(ErrorKind::Internal, "an exchange of {} processes in a job of {}", planned, processes);
}

}  // namespace

Status launch(const AddGradients& op, const Args& args, const KernelContext& context) {
  with_type(op.left, [&](auto left) {
    with_type(op.right, [&](auto right) {
      with_type(op.dtype, [&](auto type) {
        const auto* x = args.in<decltype(left)>(AddGradients::kLeft);
        const auto* y = args.in<decltype(right)>(AddGradients::kRight);
        auto* z = args.out<decltype(type)>(AddGradients::kSum);
        context.pool.parallel_for(ceil_div(op.elements, kSumBlock), [&](int64_t task, int) {
          const int64_t begin = task * kSumBlock;
          SLUICE_LOOP(context.isa, add_up, x + begin, y + begin, z + begin,
                      std::min(kSumBlock, op.elements - begin));
        });
      });
    });
  });
  return {};
}

int64_t workspace_of(const SumOverProcesses& op) {
  return workspace_of(squares_of(op));
}

Status launch(const SumOverProcesses& op, const Args& args, const KernelContext& context) {
  const Buffer& g = args.operands[SumOverProcesses::kG];
  const Buffer& own = op.apart ? args.operands[SumOverProcesses::kOwn] : g;
  SLUICE_TRY(check_processes(op.processes, context));
  if (op.processes > 1) {
    const DType dtype = op.apart ? DType::F32 : op.dtype;
    SLUICE_TRY(context.network->sum({own.data, size_t(own.bytes)}, dtype));
  }
  if (op.apart) {
    const std::array<Buffer, 2> operands{own, g};
    SLUICE_TRY(launch(Cast{op.elements, DType::F32, op.dtype}, {operands, nullptr}, context));
  }
  const std::array<Buffer, 2> operands{g, args.operands[SumOverProcesses::kSums]};
  return launch(squares_of(op), {operands, args.workspace}, context);
}

Status launch(const ShareWeight& op, const Args& args, const KernelContext& context) {
  SLUICE_TRY(check_processes(op.processes, context));
  if (op.processes == 1) return {};
  const Buffer& p = args.operands[ShareWeight::kP];
  return context.network->broadcast({p.data, size_t(p.bytes)}, int(op.owner));
}

}  // namespace sluice::core::cpu
