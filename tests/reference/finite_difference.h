// SPDX-License-Identifier: Apache-2.0
// Gradients against differences of a loss.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "equivalence/rig/rig.h"

namespace sluice::core {

// Step and tolerance. Each element of a weight moves by +-h, h = 1e-3, where weights are about 0.3 (norms:
// 1). Along such a direction the loss changes by about h ||g||. The central difference errs by h^2 / 6 times
// the third derivative: the direction's length is h / 0.3 of the weight's, so relative to the slope about (h
// / 0.3)^2 = 1e-5, times the number of weights that act together (at most tens): below 1e-3. The f32 loss is
// a mean of 32 logarithms with an error of about 4 u each, that is 4 * 2^-24 * loss (3) / sqrt(32) = 1.3e-7,
// over 2 h: 6e-5. Both are far below 1 % of ||g||, which is asked for, and a wrong sign, factor or missing
// term is of the order of ||g||.
inline constexpr float kStep = 1e-3f;

// Moves the weight that every gradient is named after along four random directions; `id_of` finds it, and
// `loss` is that of what the executor holds.
template <class IdOf, class Loss>
void expect_slopes(Executor& run, const std::map<std::string, std::vector<float>>& gradients, IdOf&& id_of,
                   Loss&& loss) {
  std::mt19937_64 random(11);
  for (const auto& [name, gradient] : gradients) {
    const ObjectId id = id_of(name);
    const std::vector<float> weights = rig::read_floats(run, id);
    double norm = 0;
    for (const float g : gradient) norm += double(g) * g;
    norm = std::sqrt(norm);
    EXPECT_GT(norm, 1e-2) << name << ": too flat to test";
    for (int direction = 0; direction < 4; ++direction) {
      std::vector<float> ahead = weights, behind = weights;
      double slope = 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        const float step = random() % 2 == 0 ? kStep : -kStep;
        ahead[i] += step, behind[i] -= step;
        slope += double(gradient[i]) * (double(ahead[i]) - behind[i]) / (2 * double(kStep));
      }
      rig::write_floats(run, id, ahead);
      const double above = loss();
      rig::write_floats(run, id, behind);
      const double below = loss();
      EXPECT_NEAR((above - below) / (2 * double(kStep)), slope, 0.01 * norm) << name;
    }
    rig::write_floats(run, id, weights);
  }
}

}  // namespace sluice::core
