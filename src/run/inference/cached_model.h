// SPDX-License-Identifier: Apache-2.0
// A model that generates text, in memory under its plans: one for passes that make a token of each text, and
// one for passes over prompts, which runs at the boundary of the other.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "generate/generator.h"
#include "machine/machine.h"
#include "run/passes/loaded.h"
#include "run/passes/text_pass.h"
#include "state/embedding_rows.h"
#include "state/weights.h"

namespace sluice::core {

struct GenerationSetup {
  ModelSpec model;
  Numerics numerics;
  int64_t rows = 1;            // texts at once
  int64_t capacity = 0;        // tokens of each, prompt and all
  int64_t prompt_tokens = 64;  // of each in a pass over prompts
  BytesByTier caps = BytesByTier(kUnlimited);
};

// The name of passes over prompts.
inline constexpr std::string_view kPrompts = "prompts";

struct GenerationPlans {
  GenerationSetup setup;
  Stages stages;  // passes that make a token of each text, and beside them kPrompts
};

// Costs are the profile's. Where no plan fits the error names the smallest cap that works.
Result<GenerationPlans> plan_generation(GenerationSetup setup, const Profile& profile);

class CachedModel : public CachedTextModel {
 public:
  // Takes the memory and loads the weights of a checkpoint; without a path they are random, by the seed.
  // Borrows the plans.
  static Result<std::unique_ptr<CachedModel>> open(const GenerationPlans& plans, const Machine& machine,
                                                   const WeightsFrom& weights, uint64_t seed,
                                                   Observer& observer);

  int64_t rows() const override { return plans_.setup.rows; }
  int64_t capacity() const override { return plans_.setup.capacity; }
  int64_t prompt_tokens() const override { return plans_.setup.prompt_tokens; }
  // An error, too, when a cap is exceeded.
  Result<std::span<const float>> pass(bool prompts, std::span<const RowInput> inputs) override;

  // The most seen, as driver and operating system say.
  const BytesByTier& peak_memory() const { return loaded_.peak_bytes(); }
  // Loads of all passes that made tokens.
  const LoadedBytes& loaded_bytes() const { return loads_; }

 private:
  CachedModel(const GenerationPlans& plans, EmbeddingRows embedding, Loaded loaded);

  const GenerationPlans& plans_;
  EmbeddingRows embedding_;
  Loaded loaded_;
  TextPass tokens_, prompts_;
  LoadedBytes loads_;
  int64_t passes_ = 0;
};

}  // namespace sluice::core
