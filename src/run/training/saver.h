// SPDX-License-Identifier: Apache-2.0
// When a run saves checkpoints, what that costs it, and where they are written. A thread beside the run
// writes them from a copy of the state where the host cap has room for one; else the run waits.
#pragma once

#include <functional>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "base/stopwatch.h"
#include "checkpoint/store.h"
#include "run/session/session.h"

namespace sluice::core {

// Whether the model with the lowest held-out loss is kept.
enum class KeepBest : uint8_t {
  Off,
  Auto,  // where that takes less than Saver::kMostShare of the run
  On,    // every one
};

// After which steps there is a checkpoint; any reason will do.
struct SaveSchedule {
  int64_t every_steps = 0;  // 0: not for this reason
  // After so many minutes, and later where saving would take more than kMostShare of the run; 0: not for this
  // reason.
  double minutes = 0;
  Retention keep;  // those that stay for good are saved for that reason, too
  KeepBest best = KeepBest::Off;
};
// As the keys run.* say.
SaveSchedule save_schedule_of(const RunConfig& config);

// The forecast of a checkpoint.
struct SaveForecast {
  int64_t bytes = 0;            // of its tensors
  double disk_bytes_per_s = 0;  // 0: a checkpoint is so small that it was not measured
  bool beside_run = false;      // from a copy
  bool in_parts = false;        // of several processes, which write it themselves, or have process 0 do so
  bool each_writes = false;
  double waited_s = 0;    // in which the run waits; without the disk's rate: of the copy alone
  double interval_s = 0;  // between those by time, so that they take less than kMostShare; 0: none
};

// Where a process was stopped after the save of a step whose loss is the lowest, before that was kept as the
// best model: keeps it, which costs nothing. `best`: whether one is to be kept.
Status keep_best_of_newest(CheckpointStore& store, KeepBest best);

// The best model that a run keeps.
struct KeptBest {
  std::optional<int64_t> step;  // nothing: none
  double loss = std::numeric_limits<double>::infinity();
  // The best model that was not kept, as that would have taken this share of the run.
  std::optional<int64_t> missed_step;
  double missed_share = 0;
};

class Saver {
 public:
  // The share of the run's time that checkpoints by time may take.
  static constexpr double kMostShare = 0.02;

  // An error if the disk has no room for the checkpoints that will be there at once. Where it has room but
  // for the best model, KeepBest::Auto keeps none, and the observer is told. Measures the disk for a second
  // at most, if checkpoints are large. The saver borrows `prepared` and `observer`.
  static Result<Saver> open(const Prepared& prepared, CheckpointStore store, const SaveSchedule& schedule,
                            int64_t last_step, Observer& observer);

  const SaveForecast& forecast() const { return forecast_; }
  const CheckpointStore& store() const { return store_; }

  // After every step, which took `step_s`. Saves if it is time or if that was `asked` for. Errors of a save
  // that went on beside come out here, at the next step; they name the last good checkpoint. Where a tensor
  // of the state is refused (check_values) they have the detail "unsaved": its name.
  Status after_step(Session& session, double step_s, bool asked);
  // After every evaluation, which took so long and found this loss, when the step is saved if it is to be.
  // Keeps the model if it is better than the one that is kept.
  Status after_evaluation(Session& session, double loss, double evaluation_s);
  const KeptBest& best() const { return kept_; }
  // Called before each checkpoint is begun, in the thread of the run; an error keeps it from being made.
  void before_each(std::function<Status()> call) { before_each_ = std::move(call); }
  // Waits for a save that goes on beside.
  Status wait();
  // The newest checkpoint that is known to be whole.
  std::optional<std::filesystem::path> last_good() const;
  // Saves what there is, if it is not saved already, and waits. What it saves is the best model where that is
  // better than the one that is kept: it costs nothing.
  Status finish(Session& session);

 private:
  // A save that was begun.
  struct Written {
    Status status;
    double seconds = 0;
  };

  Saver(const Prepared& prepared, CheckpointStore store, const SaveSchedule& schedule, Observer& observer)
      : p_(&prepared), store_(std::move(store)), schedule_(schedule), observer_(&observer) {}
  // The most bytes of a checkpoint.
  int64_t disk_bytes() const { return forecast_.bytes + other_bytes_; }
  Status check_space(int64_t last_step);
  Status forecast_cost();
  bool is_due(int64_t step) const;
  Status save(Session& session, bool beside);
  // Writes a checkpoint or the best model, if the step has none yet.
  Status begin(Session& session, bool best, bool beside);
  // The share of the run's time that best models have taken, with one more now.
  double share_with_best() const;
  // Whether the model of this step was evaluated, and is better than the one that is kept.
  bool is_better(int64_t step) const;
  // Keeps that of the newest checkpoint, if it is better.
  Status link_best();
  Status written(const Written& done);
  Error failed(const Error& why) const;

  const Prepared* p_;
  CheckpointStore store_;  // the other thread's while `beside_` is valid
  SaveSchedule schedule_;
  Observer* observer_;
  SaveForecast forecast_;
  int64_t best_bytes_ = 0;   // of the weights alone; 0: no best model is kept
  int64_t other_bytes_ = 0;  // of what is no tensor
  std::function<Status()> before_each_;

  double best_cost_s_ = 0, best_waited_s_ = 0;  // what keeping a best model takes, and took so far
  double planned_s_ = 0;                        // the run's steps, as predicted
  KeptBest kept_;
  std::string kept_of_;               // the rows that its loss is of
  std::map<int64_t, double> losses_;  // that evaluations found in this process, by step
  int64_t last_step_ = 0;             // of the run

  std::future<Written> beside_;
  SaveEvent saving_;                   // what is told of the save in progress
  std::optional<int64_t> last_good_;   // step
  double interval_s_ = 0;              // by time; 0: none
  double run_s_ = 0, saved_at_s_ = 0;  // steps and waiting, until now and until the last save began
  double waited_s_ = 0;                // of that, what saves took
  double typical_step_s_ = 0;          // of steps with no save beside them
};

}  // namespace sluice::core
