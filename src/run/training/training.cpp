// SPDX-License-Identifier: Apache-2.0
#include "run/training/training.h"

#include <fmt/format.h>

#include "base/stopwatch.h"

namespace sluice::core {
namespace {

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

EvaluationEvent event_of(const Session& session, const Evaluation& e, const Judgement& judged,
                         const HeldoutRecord& record) {
  const RowLoss all = e.total();
  EvaluationEvent event{.step = session.steps_done(),
                        .loss = all.mean(),
                        .rows = int64_t(e.rows.size()),
                        .targets = all.targets,
                        .accuracy = double(all.hits) / double(all.targets),
                        .standard_error = e.standard_error(),
                        .lowest_step = record.best_step,
                        .lowest_loss = record.best_loss,
                        .rise = judged.rise,
                        .rise_error = judged.rise_error};
  event.values = e.values;
  const std::vector<std::string>& names = session.data().heldout_names;
  for (size_t p = 0; p < e.paths.size() && p < names.size(); ++p) {
    if (e.paths[p].targets > 0) event.paths.push_back({names[p], e.paths[p].mean(), e.paths[p].targets});
  }
  return event;
}

// Nothing where somebody asked to stop meanwhile.
Result<std::optional<EvaluationEvent>> evaluate(Session& session, Observer& observer,
                                                const TrainingOptions& options) {
  const Stopwatch watch;
  const auto found = session.evaluate(options.stop);
  if (!found.ok() && found.error().kind == ErrorKind::Cancelled) return std::optional<EvaluationEvent>();
  if (!found.ok()) return found.error();
  HeldoutRecord& record = session.engine().heldout();
  const Judgement judged = judge(*found, session.steps_done(), record);
  EvaluationEvent event = event_of(session, *found, judged, record);
  event.seconds = watch.seconds();
  observer.evaluated(event);
  return std::optional(event);
}

// Whether an evaluation belongs to the boundary after so many steps.
bool evaluates_after(const sluice::Schedule& schedule, int64_t step) {
  if (step == 0) return schedule.evaluate_first;
  return is_due(step, schedule.evaluate_every) || step == schedule.steps;
}

bool patience_is_over(Session& session) {
  const int64_t patience = session.schedule().patience;
  return patience > 0 && session.engine().heldout().since >= patience;
}

// Before the first step of a run, or what a run that was asked to stop left out.
Status evaluate_first(Session& session, Observer& observer, const TrainingOptions& options) {
  const int64_t step = session.steps_done(), last = session.engine().heldout().last_step;
  if (!session.evaluates() || last >= step || !evaluates_after(session.schedule(), step)) return {};
  SLUICE_ASSIGN(const std::optional<EvaluationEvent> event, evaluate(session, observer, options));
  if (!event) return {};
  if (options.log_first) SLUICE_TRY(options.log_first(*event));
  return options.saver == nullptr ? Status()
                                  : options.saver->after_evaluation(session, event->loss, event->seconds);
}

// Ends a run that learns nothing any more.
Status no_update(int64_t step, int64_t skipped, const std::string& why, const TrainingOptions& options) {
  std::optional<std::filesystem::path> good;
  if (options.saver != nullptr) {
    SLUICE_TRY(options.saver->wait());
    good = options.saver->last_good();
  }
  Error out = error(
      "step {}: {}; that is the last of {} steps in a row without an update (train.max_skipped). {}. Lower "
      "train.learning_rate, raise train.warmup_steps or set train.clip_norm",
      step, why, skipped,
      good ? fmt::format("The last checkpoint is {}", good->string()) : "There is no checkpoint");
  out.details.emplace_back("of all", "yes");
  return out;
}

}  // namespace

Result<TrainingEnd> train(Session& session, Observer& observer, const TrainingOptions& options) {
  Engine& engine = session.engine();
  const sluice::Schedule& schedule = session.schedule();
  engine.learn_costs();
  int64_t skipped = 0;
  SLUICE_TRY(evaluate_first(session, observer, options));
  for (int64_t taken = 0; session.steps_done() < schedule.steps; ++taken) {
    std::optional<TrainingEnd> end;
    if (patience_is_over(session)) {
      end = TrainingEnd::NoBetter;
    } else if (options.stop()) {
      end = TrainingEnd::Asked;
    }
    if (options.agree) end = options.agree(end);
    if (end) return *end;
    const bool traced = options.trace && taken == 1;
    std::vector<Interval> timeline;
    if (traced) engine.note_activities();
    const double predicted_s = engine.predicted_s();
    SLUICE_ASSIGN(const StepResult r, session.step(traced ? &timeline : nullptr));
    const int64_t step = session.steps_done();
    const StepEvent event{step,
                          r.loss,
                          r.gradient_norm,
                          r.learning_rate,
                          (r.ns + r.before_ns) / 1e9,
                          predicted_s + r.before_ns / 1e9,
                          r.tokens,
                          in_public(engine.memory()),
                          r.skipped,
                          r.targets,
                          session.epochs_done(),
                          double(r.hits) / double(r.targets),
                          r.router,
                          r.values,
                          engine.stages().main.plan.makespan_ns / 1e9,
                          engine.differs()};
    observer.stepped(event);
    if (traced) {
      if (const std::string slow = engine.slow_links(timeline); !slow.empty()) observer.warned(slow);
      SLUICE_TRY(options.trace(timeline, engine.activities()));
    }
    std::optional<EvaluationEvent> heldout;
    if (session.evaluates() && evaluates_after(schedule, step)) {
      SLUICE_ASSIGN(heldout, evaluate(session, observer, options));
    }
    if (options.log) SLUICE_TRY(options.log(event, heldout ? &*heldout : nullptr));
    if (options.sample && is_due(step, options.sample_every) && step < schedule.steps && !options.stop())
      SLUICE_TRY(options.sample(step));
    if (options.replanner != nullptr) {
      if (options.replan && options.replan()) options.replanner->ask();
      SLUICE_TRY(options.replanner->after_step(schedule.steps - step));
    }
    skipped = r.skipped.empty() ? 0 : skipped + 1;
    if (skipped >= schedule.max_skipped) return no_update(step, skipped, r.skipped, options).error();
    if (options.saver == nullptr) continue;
    SLUICE_TRY(options.saver->after_step(session, event.seconds, options.save && options.save()));
    if (heldout) SLUICE_TRY(options.saver->after_evaluation(session, heldout->loss, heldout->seconds));
  }
  return TrainingEnd::Done;
}

}  // namespace sluice::core
