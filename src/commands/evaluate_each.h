// SPDX-License-Identifier: Apache-2.0
// Lines of JSON that are evaluated one by one, as harnesses ask for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "run/loaded/counted_texts.h"

namespace sluice::core {

struct EachRequest {
  std::string path;          // "-": the standard input
  std::string tokenizer;     // tokenizer.json; empty: text is bytes
  int64_t seq_len = 0;       // tokens of a row
  int64_t vocab = 0;         // of the model
  bool cut_prompts = false;  // what does not fit a row loses the beginning of its prompt
};

// What the lines say, in their order. A text that is longer than a row is several.
struct EachTexts {
  std::vector<CountedText> texts;
  std::vector<size_t> line_of;  // by text: which of the lines it is of
  size_t lines = 0;
  int64_t cut = 0;  // lines whose prompt was cut

  int64_t tokens() const;  // that the model reads
};

// A line is {"prompt": TEXT, "completion": TEXT}, whose completion's tokens count, or {"text": TEXT}, whose
// tokens all do. Tokens are those that lm-eval makes. Prompt and completion are one text, between the tokens
// that the tokenizer puts around one; spaces at the end of a prompt belong to the completion. In front of a
// text, and of a completion without a prompt, stands the tokenizer's first token, or else its last.
// A text that is longer than a row is counted in windows of a row each. The first token of a window sees one
// token before it; the last window reaches back as far as a row does. Errors name the line.
Result<EachTexts> read_each(const EachRequest& request);

// A line of JSON for each: "log_likelihood" of what counts, "tokens" of that, and whether all of them are
// those that the model finds likeliest ("greedy").
std::string each_as_json(const EachTexts& each, std::span<const TextScore> scores);

}  // namespace sluice::core
