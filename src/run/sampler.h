// SPDX-License-Identifier: Apache-2.0
// Text from a model, a token at a time.
#pragma once

#include <span>
#include <vector>

#include "run/engine.h"

namespace sluice::core {

struct Sampling {
  int64_t tokens = 0;
  double temperature = 0;  // 0: the most likely token
  uint64_t seed = 0;
};

// Continues a prompt. Token i depends on the logits, the seed and i alone. REQUIRES: sampling was planned; a
// prompt that is not empty, of tokens below the vocabulary's size.
Result<std::vector<int32_t>> continue_text(Engine& engine, std::vector<int32_t> prompt,
                                           const Sampling& sampling);

}  // namespace sluice::core
