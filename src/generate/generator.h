// SPDX-License-Identifier: Apache-2.0
// Many samples of many prompts through a model that takes a few texts at once: who is in which row, what each
// pass reads, and when a text ends.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generate/sampling.h"
#include "ops/generation.h"

namespace sluice::core {

// New tokens of one row in a pass.
struct RowInput {
  int64_t row = 0;
  int64_t held = 0;  // tokens that the row's cache holds before
  std::span<const int32_t> tokens;
};
// A row whose cache becomes that of another one.
struct RowCopy {
  int64_t from, to;
};

// A model with a cache of keys and values for each of its rows.
class CachedTextModel {
 public:
  virtual ~CachedTextModel() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t capacity() const = 0;       // tokens of a row
  virtual int64_t prompt_rows() const = 0;    // in one pass over prompts
  virtual int64_t prompt_tokens() const = 0;  // of a row in one
  virtual bool copies_rows() const = 0;
  // Whether passes draw tokens; otherwise they give logits.
  virtual bool draws() const = 0;

  // One pass over rows that are different ones, each with new tokens: over prompts, of at most prompt_rows()
  // rows with prompt_tokens() each, or of one token of any row. Behind it caches are copied. What a row gets
  // depends on that row alone. REQUIRES: no copies unless it is over prompts and copies_rows().
  virtual Status pass(bool prompts, std::span<const RowInput> inputs, std::span<const RowCopy> copies) = 0;
  // Logits after the last new token of an input of the last pass, until the next. REQUIRES: !draws()
  virtual std::span<const float> logits(size_t input) const = 0;
  // The same with draws, whose texts are inputs: results are in their order, of at most rows() draws.
  // REQUIRES: draws()
  virtual Result<std::span<const DrawnToken>> pass(bool prompts, std::span<const RowInput> inputs,
                                                   std::span<const RowCopy> copies,
                                                   std::span<const TokenDraw> draws) = 0;
};

struct GenerateOptions {
  SamplingRule rule;
  std::vector<int32_t> stop_tokens;
  bool log_probs = false;  // ChosenToken has them where the model gives logits, too
};

struct GenerationTask {
  std::vector<int32_t> prompt;
  int64_t most_tokens = 0;
  int64_t made = 0;  // of a text that goes on after its row was full: how many were made before
  int64_t samples = 1;
};

struct ChosenToken {
  int32_t token = 0;
  double log_prob = 0;        // as the model has it, at temperature 1
  double log_drawn_prob = 0;  // of the distribution that it was drawn from
};

// Why a text ended.
enum class TextEnd : uint8_t { Length, StopToken, StopString };
std::string_view name_of(TextEnd end);

// Receives the texts. `text` counts samples from 0, those of a task one after the other.
class TextSink {
 public:
  virtual ~TextSink() = default;
  // Returns false when the text is to end here, because of a stop string.
  virtual Result<bool> token(size_t text, const ChosenToken& token) = 0;
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
// Samples of a prompt that begin together read it once. What is drawn is a function of the seed, the task,
// the sample and the token's number. REQUIRES: prompts are not empty and, with what may follow, fit the
// capacity; their tokens are below the vocabulary's size; where the model draws, draws_plainly(rule).
Result<GenerationCounts> generate(CachedTextModel& model, std::span<const GenerationTask> tasks,
                                  const GenerateOptions& options, TextSink& sink);

}  // namespace sluice::core
