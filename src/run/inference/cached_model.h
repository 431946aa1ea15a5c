// SPDX-License-Identifier: Apache-2.0
// A model that generates text, in memory under its plans. One is for passes that make a token of each text.
// One is for passes over prompts, and runs at the boundary of the other.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/embedding_rows.h"
#include "checkpoint/weights.h"
#include "generate/generator.h"
#include "machine/machine.h"
#include "run/loaded/loaded.h"
#include "run/loaded/text_pass.h"

namespace sluice::core {

struct GenerationSetup {
  ModelSpec model;
  Numerics numerics;
  int64_t rows = 1;            // texts at once
  int64_t capacity = 0;        // tokens of each, prompt and all
  int64_t prompt_tokens = 64;  // of each in a pass over prompts
  bool copies = false;         // samples of a prompt share it
  bool draws = false;          // the model draws tokens; else it gives logits
  BytesByTier caps = BytesByTier(kUnlimited);

  // Texts in a pass over prompts. More of them would hold up those whose prompts have been read.
  int64_t prompt_rows() const { return rows < 8 ? rows : 8; }
};

// The name of passes over prompts.
inline constexpr std::string_view kPrompts = "prompts";

struct GenerationPlans {
  GenerationSetup setup;
  Stages stages;  // passes that make a token of each text, and beside them kPrompts
};

// Costs are the profile's. Where no plan fits the error names the smallest cap that works.
Result<GenerationPlans> plan_generation(GenerationSetup setup, const Profile& profile);

class CachedModel {
 public:
  // Takes the memory and loads the weights. Borrows the plans.
  static Result<std::unique_ptr<CachedModel>> open(const GenerationPlans& plans, const Machine& machine,
                                                   const WeightsFrom& weights, Observer& observer);

  // A pass is an error, too, when a cap is exceeded.
  CachedTextModel& texts() { return texts_; }
  // The most seen, as driver and operating system say.
  const BytesByTier& peak_memory() const { return loaded_.peak_bytes(); }
  // Loads of all passes that made tokens.
  const LoadedBytes& loaded_bytes() const { return loads_; }
  // As Backend::take_note().
  std::string take_note() { return loaded_.backend().take_note(); }
  // Seconds that the program of passes that make tokens took.
  double program_s() const { return texts_.program_s(); }

 private:
  CachedModel(const GenerationPlans& plans, EmbeddingRows embedding, Loaded loaded);
  Status note_pass(bool prompts);

  EmbeddingRows embedding_;
  Loaded loaded_;
  TextPasses texts_;
  LoadedBytes loads_;
  int64_t passes_ = 0;
};

}  // namespace sluice::core
