// SPDX-License-Identifier: Apache-2.0
// The matrix products of a model's step, measured on the machine at hand at the sizes that they have, and at
// those that estimate advises. It shows what the advice is worth here.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "bench/cell.h"
#include "estimate/counts.h"
#include "estimate/sizes.h"
#include "pages/page.h"

namespace sluice::core {

struct MeasuredProduct {
  MatrixProduct product;
  double s = 0;  // of one
};

// All products of a step.
struct MeasuredProducts {
  std::vector<MeasuredProduct> of;

  double s() const;
  double flops_per_s() const;
};

struct MeasuredAdvice {
  SizeAdvice advice;
  MeasuredProducts at_next;  // none: the size is good, or cannot be changed alone
  double beside = 0;         // FLOP/s of the sizes as they are, the mean of just before and just after

  // By how much products are faster, for equal FLOPs. REQUIRES: measured.
  double gain() const { return at_next.flops_per_s() / beside - 1; }
};

struct SizeBench {
  BenchCell cell;
  MeasuredProducts now;
  std::vector<MeasuredAdvice> advice;
};

// Each product as often as the step has it, in their mix, on values like a step's. As machines change their
// speed, what is advised is measured between two runs of what is there. `say` hears what is
// measured. Errors: what a product takes is not there. That of an interruption is Cancelled.
Result<SizeBench> run_sizes(const BenchCell& cell, const Machine& machine,
                            const std::atomic<bool>& interrupted,
                            const std::function<void(const std::string&)>& say);

Page sizes_page(const SizeBench& bench);

}  // namespace sluice::core
