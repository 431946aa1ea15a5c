// SPDX-License-Identifier: Apache-2.0
// Text from a model, a token at a time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "run/session/engine.h"

namespace sluice::core {

struct Sampling {
  int64_t tokens = 0;
  double temperature = 0;  // 0: the most likely token
  uint64_t seed = 0;
  std::vector<int32_t> ends = {};  // tokens that nothing follows
};

// Tokens, and log p of each as the model has it, at temperature 1.
struct Continuation {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
};

// Continues a prompt. Token i depends on the logits, the seed and i alone; before each, `more` is asked with
// i whether it is still wanted. REQUIRES: sampling was planned; a prompt that is not empty, of tokens below
// the vocabulary's size.
Result<Continuation> continue_text(Engine& engine, std::vector<int32_t> prompt, const Sampling& sampling,
                                   const std::function<bool(int64_t)>& more = {});

}  // namespace sluice::core
