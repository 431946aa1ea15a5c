// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/cast.h"

#define SLUICE_LOOPS "backend/cpu/kernels/cast_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {
constexpr int64_t kBlock = 32 * kKiB;  // elements per task
}

Status launch(const Cast& op, const Args& args, const Machine& machine) {
  with_type(op.in_dtype, [&](auto x_type) {
    with_type(op.dtype, [&](auto y_type) {
      const auto* x = args.in<decltype(x_type)>(Cast::kX);
      auto* y = args.out<decltype(y_type)>(Cast::kY);
      machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
        const int64_t begin = task * kBlock;
        SLUICE_LOOP(machine.isa, convert, x + begin, y + begin, std::min(kBlock, op.elements - begin));
      });
    });
  });
  return {};
}

Status launch(const ScaleBy& op, const Args& args, const Machine& machine) {
  const float s = *args.in<float>(ScaleBy::kS);
  with_type(op.dtype, [&]<class T>(T) {
    machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
      const int64_t begin = task * kBlock;
      SLUICE_LOOP(machine.isa, scale, args.in<T>(ScaleBy::kX) + begin, s, args.out<T>(ScaleBy::kY) + begin,
                  std::min(kBlock, op.elements - begin));
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
