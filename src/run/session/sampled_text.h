// SPDX-License-Identifier: Apache-2.0
// Text from a model in training, as it is between two steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generate/text_stream.h"
#include "run/session/engine.h"

namespace sluice::core {

struct SampleRequest {
  int64_t tokens = 0;
  double temperature = 0;  // 0: the most likely token
  uint64_t seed = 0;
  std::vector<int32_t> ends = {};  // tokens that nothing follows
};

// Tokens, the one that ends them with them, and log p of each as the model has it, at temperature 1.
struct SampledText {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
  std::vector<float> log_drawn_probs = {};  // by the distribution that it was drawn from
  TextEnd end = TextEnd::Length;
  std::string text = {};  // with SamplesRequest::decode
};

// Continues a prompt. Token i depends on the model, the text before it, the seed and i alone. Before each
// pass, `more` is asked with how many tokens are there whether another one is wanted. Of a text that is
// longer than the engine's window the last half window is read anew. REQUIRES: sampling was planned; a prompt
// that is not empty, of tokens below the vocabulary's size.
Result<SampledText> sample_text(Engine& engine, std::vector<int32_t> prompt, const SampleRequest& request,
                                const std::function<bool(int64_t)>& more = {});

struct SamplesRequest : SampleRequest {
  int64_t samples = 1;  // of each prompt
  Decode decode = {};   // empty: SampledText::text is not made. REQUIRES: none only without stop strings
  std::vector<std::string> stops = {};
};

// Samples of every prompt, one prompt after the other. What a sample becomes depends on the model, its
// prompt, the prompt's number, its own, and the request. `more` as above, of all tokens. REQUIRES: as above;
// a prompt and its tokens fit the window.
Result<std::vector<SampledText>> sample_texts(Engine& engine, std::vector<std::vector<int32_t>> prompts,
                                              const SamplesRequest& request,
                                              const std::function<bool(int64_t)>& more = {});

}  // namespace sluice::core
