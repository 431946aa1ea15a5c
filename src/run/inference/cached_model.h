// SPDX-License-Identifier: Apache-2.0
// A model that generates text, in memory under its plans: one for passes that make a token of each text, and
// one for passes over prompts, which runs at the boundary of the other.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "exec/executor.h"
#include "generate/generator.h"
#include "machine/machine.h"
#include "plans/beside.h"
#include "run/passes/text_pass.h"
#include "sluice/observer.h"
#include "state/embedding_rows.h"

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
                                                   const std::filesystem::path& weights, uint64_t seed,
                                                   Observer& observer);

  int64_t rows() const override { return plans_.setup.rows; }
  int64_t capacity() const override { return plans_.setup.capacity; }
  int64_t prompt_tokens() const override { return plans_.setup.prompt_tokens; }
  // An error, too, when a cap is exceeded.
  Result<std::span<const float>> pass(bool prompts, std::span<const RowInput> inputs) override;

  // In use, and the most seen, as driver and operating system say.
  BytesByTier memory();
  const BytesByTier& peak_memory() const { return peak_; }
  // Of all passes that made tokens.
  const LoadedBytes& loaded_bytes() const { return loaded_; }

 private:
  explicit CachedModel(const GenerationPlans& plans) : plans_(plans) {}
  Status start(const Machine& machine, const std::filesystem::path& weights, uint64_t seed,
               Observer& observer);

  const GenerationPlans& plans_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> token_executor_, prompt_executor_;
  std::optional<TextPass> tokens_, prompts_;
  std::optional<EmbeddingRows> embedding_;
  BytesByTier peak_;
  LoadedBytes loaded_;
  int64_t passes_ = 0;
};

}  // namespace sluice::core
