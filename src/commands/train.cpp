// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "commands/describe.h"
#include "commands/outcome.h"
#include "commands/progress_line.h"
#include "commands/working.h"
#include "draw/axis.h"
#include "draw/plot.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "run/history.h"
#include "run/resolve.h"
#include "run/session.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

// The loop over steps and what it leaves in the run directory.
class TrainingRun {
 public:
  TrainingRun(const Prepared& prepared, const std::atomic<bool>& interrupted)
      : p_(prepared), interrupted_(interrupted), dir_(prepared.config.run.dir) {}

  Status run(RunData data);

 private:
  Result<JsonLines> open_metrics();
  Status one_step(JsonLines& metrics);
  Status evaluate(JsonLines& metrics);
  Status finish(JsonLines& metrics);
  std::string progress() const;

  const Prepared& p_;
  const std::atomic<bool>& interrupted_;
  const std::filesystem::path dir_;
  std::unique_ptr<Session> session_;
  ProgressLine line_;
  Series training_, heldout_;  // of the whole run, the part before a resume included
  std::vector<double> step_ns_;
  StepResult last_;
};

std::string TrainingRun::progress() const {
  std::vector<double> recent(step_ns_.end() - std::min<long>(20, long(step_ns_.size())), step_ns_.end());
  std::sort(recent.begin(), recent.end());
  const double ns = recent[recent.size() / 2];
  const MemoryReport memory = session_->memory();
  const int64_t total = p_.config.train.steps, done = session_->steps_done();
  return fmt::format("step {}/{}  loss {:.4f}  norm {:.2f}  {:.0f} tok/s  ETA {}  device {}/{}  host {}/{}",
                     done, total, last_.loss, last_.gradient_norm, double(last_.tokens) / ns * 1e9,
                     format_duration(double(total - done) * ns / 1e9), format_bytes(memory.bytes[kDevice]),
                     format_bytes(p_.config.caps[kDevice]), format_bytes(memory.bytes[kHost]),
                     format_bytes(p_.config.caps[kHost]));
}

Status TrainingRun::one_step(JsonLines& metrics) {
  // The second step is the first that runs warm.
  const bool traced = p_.config.run.trace && step_ns_.size() == 1;
  std::vector<Interval> timeline;
  if (traced) session_->note_activities();
  SLUICE_ASSIGN(last_, session_->step(traced ? &timeline : nullptr));
  step_ns_.push_back(last_.ns);
  const int64_t step = session_->steps_done();
  training_.points.push_back({double(step), last_.loss});
  const MemoryReport memory = session_->memory();
  SLUICE_TRY(metrics.append({{"step", step},
                             {"loss", last_.loss},
                             {"gradient_norm", last_.gradient_norm},
                             {"learning_rate", last_.learning_rate},
                             {"tokens", last_.tokens},
                             {"step_ms", last_.ns / 1e6},
                             {"predicted_ms", p_.stages.training.plan.makespan_ns / 1e6},
                             {"device_bytes", memory.bytes[kDevice]},
                             {"host_bytes", memory.bytes[kHost]}}));
  if (traced) {
    const Stage& s = p_.stages.training;
    SLUICE_TRY(write_file(dir_ / "trace.json",
                          chrome_trace(s.model.program, s.plan, timeline, session_->activities())));
  }
  line_.show(progress(), step == 1 || step == p_.config.train.steps);
  return {};
}

Status TrainingRun::evaluate(JsonLines& metrics) {
  if (!p_.stages.evaluation) return {};
  SLUICE_ASSIGN(const double loss, session_->evaluate());
  heldout_.points.push_back({double(session_->steps_done()), loss});
  SLUICE_TRY(metrics.append({{"step", session_->steps_done()}, {"heldout_loss", loss}}));
  line_.end();
  fmt::print("held-out loss {:.4f} ({:.3f} bits per token) after {} steps\n", loss, loss / std::log(2.0),
             session_->steps_done());
  return {};
}

Status TrainingRun::finish(JsonLines& metrics) {
  if (heldout_.points.empty() || heldout_.points.back().x != double(session_->steps_done())) {
    SLUICE_TRY(evaluate(metrics));
  }
  line_.end();
  const auto& sample = p_.config.sample;
  if (p_.stages.sampling && sample.tokens > 0 && !interrupted_) {
    SLUICE_ASSIGN(const std::string text, session_->sample(sample.prompt, sample.tokens, sample.temperature));
    fmt::print("sample: {}{}\n", sample.prompt, text);
  }
  SLUICE_TRY(session_->save(dir_ / "checkpoint"));
  SLUICE_TRY(write_file(dir_ / "loss.svg",
                        render({.title = "Loss",
                                .subtitle = fmt::format("{}, {} tokens per step", dir_.filename().string(),
                                                        grouped(double(p_.shape.tokens()), 0)),
                                .x_label = "step",
                                .y_label = "nats per token",
                                .series = {training_, heldout_}})));
  const MemoryReport memory = session_->memory();
  fmt::print("peak memory: device {} of {}, host {} of {}\n", format_bytes(memory.peak_bytes[kDevice]),
             format_bytes(p_.config.caps[kDevice]), format_bytes(memory.peak_bytes[kHost]),
             format_bytes(p_.config.caps[kHost]));
  if (step_ns_.size() > 2) {
    std::vector<double> ns(step_ns_.begin() + 1, step_ns_.end());
    std::sort(ns.begin(), ns.end());
    const double median = ns[ns.size() / 2], predicted = p_.stages.training.plan.makespan_ns;
    fmt::print("step time: median {:.1f} ms, predicted {:.1f} ms ({:+.1f} %); {:.0f} tok/s\n", median / 1e6,
               predicted / 1e6, 100 * (predicted / median - 1), double(p_.shape.tokens()) / median * 1e9);
  }
  fmt::print("run directory: {}\n", dir_.string());
  return {};
}

// A new run begins an empty log. One that resumes goes on with the log beside its checkpoint, up to the
// checkpoint's step.
Result<JsonLines> TrainingRun::open_metrics() {
  History history;
  std::filesystem::path checkpoint = p_.config.run.resume;
  if (!checkpoint.empty()) {
    if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();  // written with a slash at its end
    SLUICE_ASSIGN(history, read_history(checkpoint.parent_path() / "metrics.jsonl", session_->steps_done()));
  }
  training_ = std::move(history.training);
  heldout_ = std::move(history.heldout);
  SLUICE_TRY(write_file(dir_ / "metrics.jsonl", history.lines));
  return JsonLines::open(dir_ / "metrics.jsonl");
}

Status TrainingRun::run(RunData data) {
  fmt::print("{}", describe(p_));
  std::fflush(stdout);
  SLUICE_TRY(save_plan(p_));
  SLUICE_ASSIGN(session_, Session::open(p_, std::move(data)));
  fmt::print("{}", describe(session_->start_up()));
  SLUICE_ASSIGN(JsonLines metrics, open_metrics());
  const auto& c = p_.config;
  while (session_->steps_done() < c.train.steps && !interrupted_) {
    SLUICE_TRY(one_step(metrics));
    const int64_t step = session_->steps_done();
    if (c.eval.every > 0 && step % c.eval.every == 0) SLUICE_TRY(evaluate(metrics));
    if (c.run.checkpoint_every > 0 && step % c.run.checkpoint_every == 0) {
      SLUICE_TRY(session_->save(dir_ / fmt::format("checkpoint-{}", step)));
    }
  }
  if (interrupted_) {
    line_.end();
    fmt::print("interrupted after step {}; go on with --set run.resume={}\n", session_->steps_done(),
               (dir_ / "checkpoint").string());
  }
  return finish(metrics);
}

// What cannot be is refused before the search for a plan, which may take minutes.
Status run_training(const RunRequest& request, const std::atomic<bool>& interrupted) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, request.machine));
  if (!machine.traits().runs_models) {
    return error("run.backend = {}: a simulated machine cannot train; use sluice simulate",
                 machine.backend->name);
  }
  SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
  SLUICE_ASSIGN(RunData data, open_data(config, model.vocab));
  const PlanCache cache = plan_cache_of(config);
  Working working("planning");
  SLUICE_ASSIGN(const Prepared prepared,
                prepare_on(std::move(config), std::move(machine), true, nullptr, &cache));
  working.stop();
  return TrainingRun(prepared, interrupted).run(std::move(data));
}

}  // namespace

Outcome train(const RunRequest& request, const std::atomic<bool>& interrupted) {
  return outcome(run_training(request, interrupted));
}

}  // namespace sluice::core
