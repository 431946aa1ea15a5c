// SPDX-License-Identifier: Apache-2.0
// What DrawTokens is told, and what it says (ops/generation.h). Device code reads it, too.
#pragma once

namespace sluice::core {

// Sums of probabilities are over blocks of so many tokens.
constexpr int kDrawBlock = 1024;

struct TokenDraw {
  double text = -1;            // whose logits; below 0: nothing is drawn
  double u = 0;                // from 0 and below 1
  double per_temperature = 0;  // 1 / t; 0: the first of the largest logits
};

struct DrawnToken {
  double token;           // -1: nothing was to be drawn, or logits are not finite
  double log_prob;        // of the token, by the logits
  double log_drawn_prob;  // by the distribution that it was drawn from
};

}  // namespace sluice::core
