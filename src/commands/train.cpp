// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "draw/axis.h"
#include "draw/plot.h"
#include "explain/describe.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "run/checks.h"
#include "run/history.h"
#include "run/resolve.h"
#include "run/training.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

// What a run says on the console, and what it writes beside its checkpoints: metrics.jsonl and loss.svg.
class TrainingObserver : public Console {
 public:
  TrainingObserver(const RunConfig& config) : c_(config), dir_(config.run.dir), steps_line_(stdout) {}

  // A new run begins an empty log. One that resumes goes on with the log beside its checkpoint, up to the
  // checkpoint's step.
  Status open_metrics(int64_t steps_done);
  // Of the first file that could not be written.
  const Status& written() const { return written_; }
  Status draw_losses() const;
  void summarize(const Prepared& p, const MemoryReport& memory);
  void end_line() { steps_line_.end(); }

  void stepped(const StepEvent& e) override;
  void evaluated(const EvaluationEvent& e) override;
  void saved(const SaveEvent& e) override;

 private:
  void append(const nlohmann::ordered_json& line) {
    if (written_.ok()) written_ = metrics_->append(line);
  }
  std::string line_of(const StepEvent& e) const;

  const RunConfig& c_;
  const std::filesystem::path dir_;
  ProgressLine steps_line_;
  std::optional<JsonLines> metrics_;
  Status written_;
  Series training_, heldout_;  // of the whole run, the part before a resume included
  std::vector<double> step_s_;
  int64_t skipped_ = 0;
};

Status TrainingObserver::open_metrics(int64_t steps_done) {
  History history;
  std::filesystem::path checkpoint = c_.run.resume;
  if (!checkpoint.empty()) {
    if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();  // written with a slash at its end
    SLUICE_ASSIGN(history,
                  read_history(checkpoint.parent_path().parent_path() / "metrics.jsonl", steps_done));
  }
  training_ = std::move(history.training);
  heldout_ = std::move(history.heldout);
  SLUICE_TRY(write_file(dir_ / "metrics.jsonl", history.lines));
  SLUICE_ASSIGN(metrics_, JsonLines::open(dir_ / "metrics.jsonl"));
  return {};
}

std::string TrainingObserver::line_of(const StepEvent& e) const {
  std::vector<double> recent(step_s_.end() - std::min<long>(20, long(step_s_.size())), step_s_.end());
  std::sort(recent.begin(), recent.end());
  const double s = recent[recent.size() / 2];
  return fmt::format("step {}/{}  loss {:.4f}  norm {:.2f}  {:.0f} tok/s  ETA {}  device {}/{}  host {}/{}",
                     e.step, c_.train.steps, e.loss, e.gradient_norm, double(e.tokens) / s,
                     format_duration(double(c_.train.steps - e.step) * s),
                     format_bytes(e.memory.device_bytes), format_bytes(c_.caps[kDevice]),
                     format_bytes(e.memory.host_bytes), format_bytes(c_.caps[kHost]));
}

void TrainingObserver::stepped(const StepEvent& e) {
  step_s_.push_back(e.seconds);
  training_.points.push_back({double(e.step), e.loss});
  if (!e.skipped.empty()) {
    ++skipped_;
    steps_line_.end();
    warned(fmt::format("step {}: {}; no update was made", e.step, e.skipped));
  }
  append({{"step", e.step},
          {"skipped", !e.skipped.empty()},
          {"loss", e.loss},
          {"gradient_norm", e.gradient_norm},
          {"learning_rate", e.learning_rate},
          {"tokens", e.tokens},
          {"step_ms", e.seconds * 1e3},
          {"predicted_ms", e.predicted_seconds * 1e3},
          {"device_bytes", e.memory.device_bytes},
          {"host_bytes", e.memory.host_bytes}});
  stop();
  steps_line_.show(line_of(e), e.step == 1 || e.step == c_.train.steps);
}

void TrainingObserver::evaluated(const EvaluationEvent& e) {
  heldout_.points.push_back({double(e.step), e.loss});
  append({{"step", e.step}, {"heldout_loss", e.loss}});
  steps_line_.end();
  say("held-out loss {:.4f} ({:.3f} bits per token) after {} steps\n", e.loss, e.loss / std::log(2.0),
      e.step);
}

void TrainingObserver::saved(const SaveEvent& e) {
  steps_line_.end();
  say("{}", describe(e));
}

Status TrainingObserver::draw_losses() const {
  return write_file(dir_ / "loss.svg",
                    render({.title = "Loss",
                            .subtitle = fmt::format("{}, {} tokens per step", dir_.filename().string(),
                                                    grouped(double(c_.train.tokens_per_step), 0)),
                            .x_label = "step",
                            .y_label = "nats per token",
                            .series = {training_, heldout_}}));
}

void TrainingObserver::summarize(const Prepared& p, const MemoryReport& memory) {
  say("peak memory: device {} of {}, host {} of {}\n", format_bytes(memory.peak_bytes[kDevice]),
      format_bytes(c_.caps[kDevice]), format_bytes(memory.peak_bytes[kHost]), format_bytes(c_.caps[kHost]));
  if (skipped_ > 0) say("steps without an update: {} of {}\n", skipped_, step_s_.size());
  if (step_s_.size() > 2) {
    std::vector<double> s(step_s_.begin() + 1, step_s_.end());
    std::sort(s.begin(), s.end());
    const double median = s[s.size() / 2], predicted = p.stages.training.plan.makespan_ns / 1e9;
    say("step time: median {:.1f} ms, predicted {:.1f} ms ({:+.1f} %); {:.0f} tok/s\n", median * 1e3,
        predicted * 1e3, 100 * (predicted / median - 1), double(p.shape.tokens()) / median);
  }
  say("run directory: {}\n", dir_.string());
}

Result<Ending> run(const Prepared& p, RunData data, TrainingObserver& observer, Requests& asked) {
  const std::filesystem::path dir = p.config.run.dir;
  say("{}", describe(p));
  if (!data.notice.empty()) say("{}\n", data.notice);
  std::fflush(stdout);
  SLUICE_TRY(save_plan(p));
  const SaveSchedule saves = save_schedule_of(p.config);
  SLUICE_ASSIGN(CheckpointStore store, CheckpointStore::open(checkpoints_in(dir), saves.keep));
  SLUICE_ASSIGN(Saver saver, Saver::open(p, std::move(store), saves, p.config.train.steps, observer));
  say("{}", describe(saver.forecast()));
  std::fflush(stdout);
  SLUICE_ASSIGN(const std::unique_ptr<Session> session, Session::open(p, std::move(data), observer));
  observer.stop();
  say("{}", describe(session->engine().start_up()));
  std::fflush(stdout);
  SLUICE_TRY(observer.open_metrics(session->steps_done()));
  TrainingOptions options;
  options.saver = &saver;
  options.save = [&] { return asked.save.exchange(false); };
  options.stop = [&] { return asked.stop || !observer.written().ok(); };
  if (p.config.run.trace) {
    options.trace = [&](std::span<const Interval> timeline, std::vector<DeviceActivity> activities) {
      const Stage& s = p.stages.training;
      return write_file(dir / "trace.json", chrome_trace(s.model.program, s.plan, timeline, activities));
    };
  }
  const int64_t steps_before = session->steps_done();
  asked.heeded = true;
  SLUICE_TRY(train(*session, observer, options));
  SLUICE_TRY(observer.written());
  observer.end_line();
  const bool interrupted = session->steps_done() < p.config.train.steps;
  if (interrupted && session->steps_done() == steps_before)
    return steps_before > 0 ? Ending::Interrupted : Ending::Stopped;
  if (interrupted) {
    say("interrupted after step {}; go on with --set run.resume={}\n", session->steps_done(),
        (saver.store().dir() / "latest").string());
  }
  const auto& sample = p.config.sample;
  if (p.stages.sampling && sample.tokens > 0 && !interrupted) {
    SLUICE_ASSIGN(const std::string text, session->sample(sample.prompt, sample.tokens, sample.temperature));
    say("sample: {}{}\n", sample.prompt, text);
  }
  SLUICE_TRY(saver.finish(*session));
  SLUICE_TRY(observer.draw_losses());
  observer.summarize(p, session->engine().memory());
  return interrupted ? Ending::Interrupted : Ending::Done;
}

// What cannot be is refused before the search for a plan, which may take minutes.
Result<Ending> run_training(const RunRequest& request, Requests& asked) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, request.machine));
  if (!machine.traits().runs_models) {
    return error("run.backend = {}: a simulated machine cannot train; use sluice simulate",
                 machine.backend->name);
  }
  SLUICE_TRY(check_directory("run.dir", config.run.dir));
  SLUICE_TRY(check_early(config, machine));
  SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
  SLUICE_ASSIGN(RunData data, open_data(config, model.vocab));
  const PlanCache cache = plan_cache_of(config);
  Console console;
  SLUICE_ASSIGN(const Prepared prepared,
                prepare_on(std::move(config), std::move(machine), true, {nullptr, &cache, &console}));
  console.stop();
  TrainingObserver observer(prepared.config);
  return run(prepared, std::move(data), observer, asked);
}

}  // namespace

Outcome train(const RunRequest& request, Requests& asked) {
  return outcome(run_training(request, asked));
}

}  // namespace sluice::core
