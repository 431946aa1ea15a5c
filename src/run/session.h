// SPDX-License-Identifier: Apache-2.0
// A training run as its configuration says it: an engine, what it learns from, and its learning rates.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/data.h"
#include "run/engine.h"
#include "sluice/schedule.h"

namespace sluice::core {

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
      : engine_(std::move(engine)), data_(std::move(data)), schedule_(schedule) {}

  // As Engine's, on the next rows of the data.
  Result<StepResult> step(std::vector<Interval>* timeline = nullptr);
  // Whether evaluation was planned and there is held-out data.
  bool evaluates() const;
  // Mean loss over the schedule's number of held-out rows; Cancelled as soon as `stop` says so. REQUIRES:
  // evaluates().
  Result<double> evaluate(const std::function<bool()>& stop = {});
  // Continues a prompt, as continue_text() does; texts of other numbers are drawn otherwise. REQUIRES:
  // sampling was planned.
  Result<std::string> sample(const std::string& prompt, int64_t tokens, double temperature,
                             int64_t number = 0, const std::function<bool(int64_t)>& more = {});
  // As Engine's.
  Status save(const std::filesystem::path& dir);
  Status save(CheckpointStore& store);

  // What its checkpoints say the run is.
  Manifest manifest() const;
  Engine& engine() { return *engine_; }
  const sluice::Schedule& schedule() const { return schedule_; }
  int64_t steps_done() const { return engine_->steps_done(); }

 private:
  Status load(const RunConfig& config);
  // Rows of a source, from `first` on, into own memory.
  Rows read(const BatchSource& source, int64_t step, int64_t first, const StepShape& shape);

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const RunData> data_;
  const sluice::Schedule schedule_;
  std::vector<int32_t> tokens_, targets_, positions_;
};

}  // namespace sluice::core
