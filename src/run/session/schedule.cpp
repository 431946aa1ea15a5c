// SPDX-License-Identifier: Apache-2.0
#include "sluice/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {

double Schedule::rate_at(int64_t step) const {
  if (step <= warmup_steps) return learning_rate * double(step) / double(warmup_steps);
  const int64_t last = decay_steps > 0 ? decay_steps : steps / 10;
  const int64_t begin = decay == Decay::Wsd ? std::max(warmup_steps, steps - last) : warmup_steps;
  const double span = double(std::max<int64_t>(1, steps - begin));
  const double done = std::clamp(double(step - begin) / span, 0.0, 1.0);
  const double lowest = lowest_rate();
  switch (decay) {
    case Decay::Constant:
      return learning_rate;
    case Decay::Linear:
    case Decay::Wsd:
      return learning_rate + (lowest - learning_rate) * done;
    case Decay::Cosine:
      break;
  }
  return lowest + 0.5 * (learning_rate - lowest) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace sluice
