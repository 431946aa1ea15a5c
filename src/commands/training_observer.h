// SPDX-License-Identifier: Apache-2.0
// What people see of a run in training, and what it leaves for them.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "commands/console.h"
#include "draw/plot.h"
#include "io/event_file.h"
#include "io/jsonl.h"
#include "run/directory/history.h"
#include "run/directory/run_directory.h"
#include "run/session/session.h"
#include "run/training/sample_budget.h"
#include "run/training/saver.h"

namespace sluice::core {

// Writes a run's console lines, and the files beside its checkpoints: metrics.jsonl, TensorBoard's events,
// loss.svg and, of a model with experts, routers.html.
class TrainingObserver : public Console {
 public:
  // `bytes_per_token`: of held-out text, as RunData has it.
  TrainingObserver(const Prepared& p, const RunDirectory& directory, double bytes_per_token);

  // A run that begins has an empty log. One that goes on keeps what its own, or that of the run it began at,
  // has up to the checkpoint's step.
  Status open_metrics(int64_t steps_done);
  // loss.svg and routers.html. The errors of this and of what follows are that the run directory is gone;
  // what cannot be written there is said once, and tried again.
  Status draw();
  void summarize(const Prepared& p, const MemoryReport& memory);
  void end_line() { steps_line_.end(); }

  void warned(const std::string& message) override;
  void stepped(const StepEvent& e) override;
  void evaluated(const EvaluationEvent& e) override;
  void saved(const SaveEvent& e) override;
  void adopted(const AdoptionEvent& e) override;
  // Draws texts from the model as it is, as many as there is time for; a line of samples.jsonl. The run goes
  // on, or is done, without.
  Status sample(Session& session, const std::atomic<bool>& asked, bool at_end);
  // A line of metrics.jsonl; `heldout`: what an evaluation after the step found, or null.
  Status add(const StepEvent& e, const EvaluationEvent* heldout);
  // The same of an evaluation before the first step that is made here: of step 0, or of the last one that was
  // made before, which has its line.
  Status add_first(const EvaluationEvent& heldout);
  void flush() { report(metrics_->flush()); }
  // A report that could not be written ends no run: it is said once.
  void report(const Status& written);
  // Which step was best, and which is kept.
  void summarize_heldout(const HeldoutRecord& record, const KeptBest& kept) const;

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;
  std::string line_of(const StepEvent& e) const;
  Status add_heldout(const EvaluationEvent& e, nlohmann::ordered_json& line, Scalars& scalars);
  Status add_scalars(double now, int64_t step, const Scalars& scalars);
  // Seconds of a step, in the mean.
  double step_s() const;
  double bits_per_byte(double loss) const;

  const RunConfig& c_;
  const RunDirectory& directory_;
  const double bytes_per_token_;
  const std::filesystem::path dir_;
  const double model_flops_, peak_flops_, predicted_step_s_, predicted_text_s_;
  SampleBudget budget_;
  bool texts_left_out_ = false;
  ProgressLine steps_line_;
  std::optional<JsonLines> metrics_, samples_;
  std::optional<EventFile> events_;
  Series training_, heldout_;  // of the whole run, the part before a resume included
  RouterHistory router_;       // the same of routers
  std::optional<std::pair<int64_t, ExpertLoad>> last_router_;  // of the last step that was made here
  std::string last_line_;                                      // of metrics.jsonl when it was opened
  std::vector<double> step_s_;
  std::set<std::string> unwritten_;  // what was said of it
  int64_t skipped_ = 0;
  std::optional<EvaluationEvent> evaluated_;  // last
  std::optional<AdoptionEvent> adopted_;      // since the last line of metrics.jsonl
  // What the plan that runs predicts, how many steps were made before it, and the step after which it came.
  struct Now {
    double step_s;
    size_t before = 1;  // the first step is slower
    int64_t since = 0;  // 0: it is the first plan
  } now_{predicted_step_s_};
};

}  // namespace sluice::core
