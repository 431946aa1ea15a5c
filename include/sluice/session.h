// SPDX-License-Identifier: Apache-2.0
// A model in memory: trained, evaluated, asked, saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "sluice/dataset.h"
#include "sluice/observer.h"
#include "sluice/plan.h"
#include "sluice/schedule.h"
#include "sluice/status.h"

namespace sluice {

struct GenerateOptions {
  int64_t tokens = 64;
  double temperature = 0;  // 0: the most likely token
  uint64_t seed = 1;
};

// Owns the memory that its plan asks for, and gives it back when it is destroyed. Under the plan's caps all
// of its life. One thread at a time.
class Session {
 public:
  // Takes the memory, makes the state or loads the model's weights. The observer outlives the session.
  // Errors: a plan for a machine that is not here (Invalid), memory that cannot be had (Device, DoesNotFit),
  // weights that do not match (Invalid, NotFound, Io).
  static Result<Session> open(const Plan& plan, Observer& observer = silent_observer());
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // One optimizer step on a batch of Plan::tokens_per_step() tokens. An error that comes from running it
  // leaves the state undefined: restore() before the next.
  Result<StepEvent> step(const Batch& batch, double learning_rate);
  // log p of the targets of the last step's batch before its update, 0 where none counts. REQUIRES:
  // StepOptions::log_probabilities. An error before there was a step.
  Result<std::vector<float>> log_probabilities() const;
  // Mean loss over the targets of any whole number of sequences. REQUIRES: StepOptions::evaluate.
  Result<double> evaluate(const Batch& batch);

  // Steps up to the schedule's last one, with evaluations between; those of Schedule::checkpoint_every go to
  // `directory`/step-N, of which the two newest stay, and the link `directory`/latest names the newest. None
  // are made without a directory. When asked to stop it ends after the step in progress, and may be called
  // again to go on.
  Status train(const Dataset& data, const Schedule& schedule, const std::filesystem::path& directory = {},
               std::stop_token stop = {});

  // Continues a prompt of one or more tokens. REQUIRES: StepOptions::generate_window.
  Result<std::vector<int32_t>> generate(std::span<const int32_t> prompt, const GenerateOptions& options = {});

  // A folder with weights (transformers loads it), optimizer state and what the run is. It appears whole; one
  // that is there already is an error (Io).
  Status save(const std::filesystem::path& directory);
  // Goes on from what save() wrote. Refused when results would become others than the saved run's (Invalid,
  // with every difference).
  Status restore(const std::filesystem::path& directory);

  int64_t steps_done() const;
  MemoryUse memory() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
