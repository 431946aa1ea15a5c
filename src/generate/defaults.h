// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of generating text: when it ends, how long it may be, and how tokens are drawn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "generate/sampling.h"

namespace sluice::core {

struct GenerationDefaults {
  SamplingRule rule;                      // the most likely token, unless the checkpoint says do_sample
  std::vector<int32_t> stop_tokens;       // eos_token_id
  std::vector<std::string> stop_strings;  // stop_strings
  std::optional<int64_t> new_tokens;      // max_new_tokens
  std::optional<int64_t> length;          // max_length: of a text, prompt and all
  // Settings of generation_config.json that change texts and are not done here: key, and value as JSON.
  std::vector<std::pair<std::string, std::string>> not_done;
  // Keys there that nobody knows, in a sentence; empty: none.
  std::string passed_over;
};

// From the texts of config.json and generation_config.json; empty: it is not there. The latter wins. Where it
// samples, what it does not name is as transformers has it: temperature 1, top_k 50, top_p 1, min_p 0. Errors
// name the key, its value and what is allowed.
Result<GenerationDefaults> parse_generation_defaults(std::string_view config,
                                                     std::string_view generation_config);

}  // namespace sluice::core
