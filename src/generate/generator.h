// SPDX-License-Identifier: Apache-2.0
// Many prompts through a model that takes a few texts at once: who is in which row, what each pass reads, and
// when a text ends.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generate/sampling.h"

namespace sluice::core {

// New tokens of one row in a pass.
struct RowInput {
  int64_t held = 0;                 // tokens that the row's cache holds before
  std::span<const int32_t> tokens;  // none: the row rests
};

// A model with a cache of keys and values for each of its rows.
class CachedTextModel {
 public:
  virtual ~CachedTextModel() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t capacity() const = 0;       // tokens of a row
  virtual int64_t prompt_tokens() const = 0;  // of a row in one pass over prompts
  // One pass over all rows; logits after the last new token of each, f32[rows, vocab], valid until the next
  // pass. A row's depend on that row alone. REQUIRES: an input per row; of more than one token if `prompts`,
  // then at most prompt_tokens().
  virtual Result<std::span<const float>> pass(bool prompts, std::span<const RowInput> inputs) = 0;
};

struct GenerateOptions {
  SamplingRule rule;
  std::vector<int32_t> stop_tokens;
};

struct GenerationTask {
  std::vector<int32_t> prompt;
  int64_t most_tokens = 0;
  int64_t made = 0;  // of a text that goes on after its row was full: how many were made before
};

// Why a text ended.
enum class TextEnd : uint8_t { Length, StopToken, StopString };
std::string_view name_of(TextEnd end);

// Receives the texts. `text` counts from 0, in the order of the tasks.
class TextSink {
 public:
  virtual ~TextSink() = default;
  // Returns false when the text is to end here, because of a stop string.
  virtual Result<bool> token(size_t text, int32_t token) = 0;
  virtual Status ended(size_t text, TextEnd end) = 0;
  // Before every pass; true: no more passes.
  virtual bool stop() { return false; }
};

struct GenerationCounts {
  int64_t prompt_tokens = 0, prompt_passes = 0;
  int64_t new_tokens = 0, in_token_passes = 0, token_passes = 0;  // the first of a text is of a prompt pass
  double prompt_s = 0, token_s = 0;
};

// Texts take rows in their order, and a row that one leaves is the next one's. Prompts go through in passes
// of their own, in which the other rows rest: what a text becomes does not depend on what is beside it.
// REQUIRES: prompts are not empty and, with what may follow, fit the capacity; their tokens are below the
// vocabulary's size.
Result<GenerationCounts> generate(CachedTextModel& model, std::span<const GenerationTask> tasks,
                                  const GenerateOptions& options, TextSink& sink);

}  // namespace sluice::core
