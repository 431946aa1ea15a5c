// SPDX-License-Identifier: Apache-2.0
// A training run as its configuration says it: an engine, what it learns from, and its learning rates.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/data/data.h"
#include "run/loaded/evaluation.h"
#include "run/session/comparison.h"
#include "run/session/distillation.h"
#include "run/session/engine.h"
#include "sluice/schedule.h"

namespace sluice::core {

class Rollout;  // run/session/rollout.h

class Session {
 public:
  // Takes the memory, makes or loads the state, and goes on from the configuration's checkpoint(), if any.
  // Borrows `prepared` and `observer`. REQUIRES: `data` is open_data() of its configuration and model.
  static Result<std::unique_ptr<Session>> open(const Prepared& prepared, RunData data,
                                               Observer& observer = silent_observer());
  // Opens the data first.
  static Result<std::unique_ptr<Session>> open(const Prepared& prepared,
                                               Observer& observer = silent_observer());

  // On an engine that is open, with other rows and learning rates than its configuration's.
  Session(std::shared_ptr<Engine> engine, std::shared_ptr<const RunData> data,
          const sluice::Schedule& schedule)
      : engine_(std::move(engine)), data_(std::move(data)), schedule_(schedule) {
    begin_record(silent_observer());
    engine_->carry(data_->model_texts);
  }

  // As Engine's, on the next rows of the data.
  Result<StepResult> step(std::vector<Interval>* timeline = nullptr);
  // How often the data was gone through; 0: it has no end.
  double epochs_done() const;
  // Whether evaluation was planned and there is held-out data.
  bool evaluates() const;
  // The loss of the schedule's number of held-out rows, or of all if there are fewer; Cancelled as soon as
  // `stop` says so. REQUIRES: evaluates().
  Result<Evaluation> evaluate(const std::function<bool()>& stop = {});
  // The rows of an evaluation. REQUIRES: evaluates().
  RowsCount heldout_rows() const;
  // How often it does, and what that takes of the run, as the plans predict it. REQUIRES: evaluates().
  EvaluationInterval evaluations() const;
  const RunData& data() const { return *data_; }
  // Continues a prompt, as continue_text() does; texts of other numbers are drawn otherwise. REQUIRES:
  // sampling was planned.
  Result<std::string> sample(const std::string& prompt, int64_t tokens, double temperature,
                             int64_t number = 0, const std::function<bool(int64_t)>& more = {});
  // As Engine's.
  Status save(const std::filesystem::path& dir);
  Status save(CheckpointStore& store);

  // The manifest of its checkpoints.
  Manifest manifest() const;
  Engine& engine() { return *engine_; }
  const sluice::Schedule& schedule() const { return schedule_; }
  int64_t steps_done() const { return engine_->steps_done(); }

 private:
  Status load(const RunConfig& config);
  // Makes the reference of a run that learns from answers.
  Status begin_comparison(const RunConfig& config, Observer& observer);
  // Begins the record of held-out losses; losses of other rows are not compared.
  void begin_record(Observer& observer);
  // Decides how often to evaluate, where that is left open: once for a run of so many steps.
  void choose_evaluations();
  double evaluation_seconds() const;
  // The rows of the next step, into own memory.
  const Rows& read_step();

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const RunData> data_;
  std::optional<Comparison> comparison_;        // of answers that are compared
  std::shared_ptr<Rollout> rollout_;            // of answers that have rewards
  std::unique_ptr<Distillation> distillation_;  // of answers that a teacher recorded
  sluice::Schedule schedule_;
  Rows rows_;
};

}  // namespace sluice::core
