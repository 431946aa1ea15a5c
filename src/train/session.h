// A training run: data, machine, plans and state brought together, and the steps.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/batches.h"
#include "train/config.h"
#include "train/plans.h"
#include "train/setup.h"

namespace sluice {

// Where the time before the first step went, in seconds.
struct StartUp {
  double measure_s = 0;  // costs of ops and links that were not in the cache
  double plan_s = 0;
  double reserve_s = 0;     // taking both arenas
  double prepare_s = 0;     // kernels and library plans
  double initialize_s = 0;  // making or loading the state
  double pin_s = 0;         // what was left of pinning the host arena then

  double total_s() const { return measure_s + plan_s + reserve_s + prepare_s + initialize_s + pin_s; }
};

struct CalibrateOptions;

// Everything decided before memory is taken: what `sluice plan` shows.
struct Prepared {
  RunConfig config;
  LlamaConfig model;
  Numerics numerics;
  OptimizerConfig optimizer;
  StepShape shape;
  std::string why_shape;
  Machine machine;
  Machine resolved;  // the machine before costs were measured: what the shape was chosen for
  Stages stages;
  StartUp start_up;                             // up to the plan
  std::unique_ptr<BatchSource> train, heldout;  // heldout may be null
};
// `preset`: plan for that machine instead of this one. `between_steps`: also plan evaluation and sampling.
// `passes`: what runs the planner's passes for training; null: all run, unseen.
Result<Prepared> prepare(RunConfig config, const std::string& preset, bool between_steps,
                         PassRunner* passes = nullptr);
// The same on a machine that is resolved already. Several threads may prepare for one that is only simulated.
Result<Prepared> prepare_on(RunConfig config, Machine machine, bool between_steps,
                            PassRunner* passes = nullptr, const PlanCache* cache = nullptr);
// Whether prepare_on(config, machine, false) finds plans, without the search for the fastest. A refusal names
// the tier and nothing else.
Status check_fit(RunConfig config, Machine machine);
// How the costs of its steps are measured and learnt.
CalibrateOptions calibration_of(const Prepared& p);

struct StepResult {
  double loss = 0;  // mean over targets
  double gradient_norm = 0;
  double learning_rate = 0;
  double ns = 0;  // wall clock
  int64_t tokens = 0;
};

struct MemoryReport {
  int64_t device_bytes = 0, host_bytes = 0;            // in use, as driver and operating system say
  int64_t device_peak_bytes = 0, host_peak_bytes = 0;  // the most seen
};

class Session {
 public:
  // Takes the memory, makes or loads the state. Borrows `prepared`.
  static Result<std::unique_ptr<Session>> open(const Prepared& prepared);

  // One optimizer step; with `timeline`, when every action ran. An error leaves the state undefined.
  Result<StepResult> step(std::vector<Interval>* timeline = nullptr);
  // Has the next step note what runs on the device, if run.trace_kernels says so; where that is not possible,
  // a warning says why.
  void note_activities();
  // What it noted; nothing is there a second time.
  std::vector<DeviceActivity> activities();
  // Mean loss over the held-out rows. REQUIRES: evaluation was planned and there is held-out data.
  Result<double> evaluate();
  // Continues a prompt of bytes. REQUIRES: sampling was planned.
  Result<std::string> sample(const std::string& prompt, int64_t tokens, double temperature);
  Status save(const std::filesystem::path& dir);

  int64_t steps_done() const { return steps_done_; }
  const StartUp& start_up() const { return start_up_; }
  MemoryReport memory();
  // An error when a cap is exceeded.
  Status check_caps();
  Executor& training() { return *training_; }

 private:
  explicit Session(const Prepared& prepared) : p_(prepared) {}
  Status start();
  Status fill_state();
  Status apply_pending();
  StepArgs args_for_update(int64_t step) const;
  // Reads `rows` rows of a source into the batch objects of a stage, and counts the targets.
  Result<int64_t> feed(const BatchSource& source, int64_t step, int64_t first_row, const Model& model,
                       const StepShape& shape, Executor& executor);

  const Prepared& p_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> training_, evaluation_, sampling_, flush_;
  int64_t steps_done_ = 0;
  bool pending_ = false;  // the last step's update has not been applied
  MemoryReport memory_;
  StartUp start_up_;
  std::vector<int32_t> tokens_, targets_, positions_, staging_;
};

}  // namespace sluice
