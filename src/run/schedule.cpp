// SPDX-License-Identifier: Apache-2.0
#include "sluice/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {

double Schedule::rate_at(int64_t step) const {
  if (step <= warmup_steps) return learning_rate * double(step) / double(warmup_steps);
  const double span = double(std::max<int64_t>(1, steps - warmup_steps));
  const double done = std::min(1.0, double(step - warmup_steps) / span);
  return min_learning_rate +
         0.5 * (learning_rate - min_learning_rate) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace sluice
