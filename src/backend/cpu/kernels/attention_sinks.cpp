// SPDX-License-Identifier: Apache-2.0
// The gradient of attention's sinks (ops/attention.h). A task owns a head, and adds up its tokens in order.
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "ops/attention.h"

#define SLUICE_LOOPS "backend/cpu/kernels/attention_sinks_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {

Status launch(const SinkGrad& op, const Args& args, const KernelContext& context) {
  const auto* lse = args.in<float>(SinkGrad::kLse);
  with_types(op.dtype, op.grad_dtype, [&]<class T, class G>(T, G) {
    context.pool.parallel_for(op.heads, [&](int64_t head, int) {
      const auto sink = float(args.in<T>(SinkGrad::kSinks)[head]);
      double sum = 0;
      for (int64_t token = 0; token < op.tokens(); ++token) {
        const int64_t row = token / op.q_len, at = (token * op.heads + head) * op.head_dim;
        float dot = 0;
        SLUICE_LOOP(context.isa, dot_of, args.in<T>(SinkGrad::kO) + at, args.in<T>(SinkGrad::kDo) + at,
                    op.head_dim, dot);
        const float share = std::exp(sink - lse[(row * op.heads + head) * op.q_len + token % op.q_len]);
        sum -= double(share) * double(dot);
      }
      G& to = args.out<G>(SinkGrad::kDSinks)[head];
      to = G(float(op.accumulate ? double(float(to)) + sum : sum));
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
