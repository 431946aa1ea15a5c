// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/cast.h"
#include "ops/float8.h"

#define SLUICE_LOOPS "backend/cpu/kernels/cast_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {
constexpr int64_t kBlock = 32 * kKiB;  // elements per task

// Elements with a scale for each block, or none at all.
void expand(const Cast& op, const Args& args, const Machine& machine) {
  const auto* x = args.in<uint8_t>(Cast::kX);
  const auto* scales = reinterpret_cast<const float*>(x + op.elements);
  const int64_t block = op.in.block == 0 ? op.elements : int64_t{op.in.block};
  with_type(op.dtype, [&]<class Y>(Y) {
    auto* y = args.out<Y>(Cast::kY);
    machine.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
      const int64_t end = std::min(op.elements, (task + 1) * kBlock);
      for (int64_t at = task * kBlock, count = 0; at < end; at += count) {
        count = std::min(end, (at / block + 1) * block) - at;
        const float scale = op.in.block == 0 ? 1 : scales[at / block];
        SLUICE_LOOP(machine.isa, expand_e4m3, x + at, scale, y + at, count);
      }
    });
  });
}

}  // namespace

Status launch(const Cast& op, const Args& args, const Machine& machine) {
  if (op.in.type == DType::F8E4M3) {
    expand(op, args, machine);
    return {};
  }
  with_type(op.in.type, [&](auto x_type) {
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
