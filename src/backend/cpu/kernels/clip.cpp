// SPDX-License-Identifier: Apache-2.0
// The global gradient norm and the clip factor that follows from it.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/kernels.h"
#include "ops/clip_norm.h"
#include "ops/update.h"

#define SLUICE_LOOPS "backend/cpu/kernels/clip_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {

constexpr int64_t kBlock = 64 * kKiB;  // elements per partial sum

}  // namespace

int64_t workspace_of(const SumSq& op) {
  Carver size(nullptr);
  size.take<double>(ceil_div(op.elements, kBlock));
  return size.used();
}

Status launch(const SumSq& op, const Args& args, const KernelContext& context) {
  const int64_t blocks = ceil_div(op.elements, kBlock);
  auto* partials = Carver(args.workspace).take<double>(blocks);
  with_type(op.dtype, [&](auto type) {
    const auto* g = args.in<decltype(type)>(SumSq::kG);
    context.pool.parallel_for(blocks, [&](int64_t b, int) {
      partials[b] = SLUICE_LOOP(context.isa, sum_of_squares, g + b * kBlock,
                                std::min(kBlock, op.elements - b * kBlock));
    });
  });
  auto* sums = args.out<double>(SumSq::kSums);
  if (op.first) std::fill_n(sums, op.slots, 0.0);
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += partials[b];
  sums[op.slot] = total;
  return {};
}

Status launch(const ClipScale& op, const Args& args, const KernelContext&) {
  const auto* sums = args.in<double>(ClipScale::kSums);
  double total = 0;
  for (int64_t i = 0; i < op.slots; ++i) total += sums[i];
  const double norm = std::sqrt(total);
  auto& clip = *args.out<Clip>(ClipScale::kClip);
  clip = {static_cast<float>(norm), 1};
  if (!std::isfinite(clip.norm)) {
    clip = {norm_that_blames(slot_to_blame(sums, op.slots)), 0};
  } else if (op.max_norm > 0) {
    clip.scale = static_cast<float>(std::min(1.0, double{op.max_norm} / (norm + 1e-6)));
  }
  return {};
}

}  // namespace sluice::core::cpu
