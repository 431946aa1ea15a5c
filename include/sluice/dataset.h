// SPDX-License-Identifier: Apache-2.0
// Rows to learn from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/plan.h"
#include "sluice/status.h"

namespace sluice {

namespace core {
struct RunData;
}

// Whole sequences one after another. Spans that are not empty are of equal lengths.
struct Batch {
  std::span<const int32_t> tokens;
  // The target of each token; -1: does not count.
  std::span<const int32_t> targets;
  // Counted from a document's first token in its sequence; empty: from each sequence's first token.
  std::span<const int32_t> positions;
  // How many times each target's loss counts, of any sign; empty: once. The loss of a step is over the number
  // of its targets.
  std::span<const float> weights = {};
  // Instead of weights, for a loss of one's own: its derivative with respect to log p of each target.
  std::span<const float> seeds = {};
  // StepOptions::top_tokens of each target, for a RoundLoss: other tokens in its place; -1: none. Empty: none
  // of any.
  std::span<const int32_t> top_tokens = {};
};

// A batch with memory of its own.
struct BatchRows {
  std::vector<int32_t> tokens, targets, positions;

  Batch batch() const { return {tokens, targets, positions}; }
};

struct TextOptions {
  std::vector<std::filesystem::path> paths;   // files, directories, or patterns
  std::vector<std::string> include, exclude;  // endings of names inside directories; patterns of paths
  double heldout = 0.05;                      // share of the documents kept back for evaluation
  std::filesystem::path cache;                // a folder that keeps the tokens; needed
  std::vector<std::string> settings = {};     // other keys of data, each "data.learn=all-turns"
};

// Rows by random access: those of a step are a function of the data, the plan's seed and the step, so that a
// run goes on anywhere. A handle on what is open; copies share it.
class Dataset {
 public:
  // Text, records and tokens as docs/data.md says, by the tokenizer beside the model's configuration; of a
  // model without one whose vocabulary is of bytes, as bytes.
  static Result<Dataset> text(const Plan& plan, const TextOptions& options);
  // Random tokens, for trying out shapes, speed and memory.
  static Dataset random(const Plan& plan);

  bool has_heldout() const;
  // Notices on how text became tokens, with places; a sentence each.
  std::vector<std::string> notices() const;
  // The rows that Session::train() learns after so many steps, from 0, for a loop of one's own.
  BatchRows batch(int64_t steps_done) const;

  const std::shared_ptr<const core::RunData>& data() const { return data_; }

 private:
  Dataset(std::shared_ptr<const core::RunData> data, int64_t tokens_per_step)
      : data_(std::move(data)), tokens_per_step_(tokens_per_step) {}

  std::shared_ptr<const core::RunData> data_;
  int64_t tokens_per_step_;
};

}  // namespace sluice
