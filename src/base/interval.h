// SPDX-License-Identifier: Apache-2.0
// A stretch of time within a step.
#pragma once

namespace sluice::core {

// When a command ran, in nanoseconds from the step's begin.
struct Interval {
  double start_ns = 0, end_ns = 0;
};

}  // namespace sluice::core
