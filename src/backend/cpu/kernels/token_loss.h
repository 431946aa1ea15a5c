// SPDX-License-Identifier: Apache-2.0
// What the loss of a row of logits says.
#pragma once

namespace sluice::core::cpu {

struct TokenLoss {
  double loss;
  bool is_top;  // no token is likelier
};

}  // namespace sluice::core::cpu
