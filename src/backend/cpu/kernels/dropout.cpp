// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/dropout.h"
#include "ops/dropout_draws.h"

#define SLUICE_LOOPS "backend/cpu/kernels/dropout_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const Dropout& op, const Args& args, const KernelContext& context) {
  const DropoutDraws draws(*args.in<DropoutArgs>(Dropout::kArgs), op.seq_len, op.first, op.width, op.target,
                           op.rate);
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(op.tokens, [&](int64_t token, int) {
      const int64_t at = token * op.width;
      SLUICE_LOOP(context.isa, drop, draws, draws.counter + uint64_t(token * ceil_div(op.width, 4)),
                  args.in<T>(Dropout::kX) + at, args.out<T>(Dropout::kY) + at, op.width, op.accumulate);
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
