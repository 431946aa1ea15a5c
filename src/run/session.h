// SPDX-License-Identifier: Apache-2.0
// A training run: its memory, its state, and the steps.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "run/data.h"
#include "run/prepare.h"

namespace sluice::core {

struct StepResult {
  double loss = 0;  // mean over targets
  double gradient_norm = 0;
  double learning_rate = 0;
  double ns = 0;  // wall clock
  int64_t tokens = 0;
};

struct MemoryReport {
  BytesByTier bytes;       // in use, as driver and operating system say
  BytesByTier peak_bytes;  // the most seen
};

class Session {
 public:
  // Takes the memory, makes or loads the state. Borrows `prepared`. REQUIRES: `data` is open_data() of its
  // configuration and model.
  static Result<std::unique_ptr<Session>> open(const Prepared& prepared, RunData data);
  // Opens the data first.
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
  Session(const Prepared& prepared, RunData data) : p_(prepared), data_(std::move(data)) {}
  Status start();
  Status fill_state();
  Status apply_pending();
  StepArgs args_for_update(int64_t step) const;
  // Reads `rows` rows of a source into the batch objects of a stage, and counts the targets.
  Result<int64_t> feed(const BatchSource& source, int64_t step, int64_t first_row, const Model& model,
                       const StepShape& shape, Executor& executor);

  const Prepared& p_;
  const RunData data_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> training_, evaluation_, sampling_, flush_;
  int64_t steps_done_ = 0;
  bool pending_ = false;  // the last step's update has not been applied
  MemoryReport memory_;
  StartUp start_up_;
  std::vector<int32_t> tokens_, targets_, positions_, staging_;
};

}  // namespace sluice::core
