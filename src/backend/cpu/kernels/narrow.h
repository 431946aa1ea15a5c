// SPDX-License-Identifier: Apache-2.0
// Ops whose results are rounded once more, to 8 bits (NarrowResult of ops/cast.h): they run as they are
// without that, into the workspace, and what they wrote there is quantized.
#pragma once

#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "ops/cast.h"

namespace sluice::core::cpu {

template <class O>
O wide(O op) {
  op.narrow = false;
  return op;
}

template <class O>
int64_t wide_bytes(const O& op) {
  if (!op.narrow) return 0;
  Carver size(nullptr);
  const Operands schema = wide(op).operands();
  for (const NarrowResult& result : op.narrow_results())
    size.take<std::byte>(schema[size_t(result.wide)].bytes());
  return size.used();
}

// REQUIRES: op.narrow; the op without it needs no workspace.
template <class O>
Status launch_narrow(const O& op, const Args& args, const KernelContext& context) {
  const Operands schema = wide(op).operands();
  std::vector<Buffer> operands(args.operands.begin(), args.operands.begin() + std::ssize(schema));
  Carver carver(args.workspace);
  const NarrowResults results = op.narrow_results();
  for (const NarrowResult& result : results) {
    const int64_t bytes = schema[size_t(result.wide)].bytes();
    operands[size_t(result.wide)] = {carver.take<std::byte>(bytes), bytes};
  }
  SLUICE_TRY(launch(wide(op), {operands, nullptr}, context));
  for (const NarrowResult& result : results) {
    std::vector<Buffer> copies{operands[size_t(result.wide)]};
    if (result.op.by_row) copies.push_back(args.operands[size_t(result.by_row)]);
    if (result.op.by_column) copies.push_back(args.operands[size_t(result.turned)]);
    SLUICE_TRY(launch(result.op, {copies, nullptr}, context));
  }
  return {};
}

}  // namespace sluice::core::cpu
