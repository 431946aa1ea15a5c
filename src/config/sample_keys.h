// SPDX-License-Identifier: Apache-2.0
// The table of [sample]: sampled texts.
#pragma once

#include <string>

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

struct SampleKeys {
  int64_t tokens = 128, texts = 1, every = 0;
  std::string prompt = "auto";
  double temperature = 0.8;
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_sample_keys(Keys& c, F&& key) {
  key("sample.tokens", c.tokens, Tokens{{0, 65536}}, {"tokens of a sampled text; 0: none is sampled"});
  key("sample.texts", c.texts, Range{1, 100}, {"how many texts to sample each time"});
  key("sample.every", c.every, kCountsOfSteps, {"steps between samples; 0: at the end only"});
  key("sample.prompt", c.prompt, nullptr,
      {"text to continue; auto: what comes before the first answer that is held out, as the chat template "
       "has it"});
  key("sample.temperature", c.temperature, Range{0, 100}, {"0: the most likely token"});
}

}  // namespace sluice::core
