// SPDX-License-Identifier: Apache-2.0
#include "run/training.h"

#include <fmt/format.h>

namespace sluice::core {
namespace {

Status evaluate(Session& session, Observer& observer) {
  SLUICE_ASSIGN(const double loss, session.evaluate());
  observer.evaluated({session.steps_done(), loss});
  return {};
}

// What ends a run that learns nothing any more.
Status no_update(int64_t step, int64_t skipped, const std::string& why, const TrainingOptions& options) {
  std::optional<std::filesystem::path> good;
  if (options.saver != nullptr) {
    SLUICE_TRY(options.saver->wait());
    good = options.saver->last_good();
  }
  return error(
      "step {}: {}; that is the last of {} steps in a row without an update (train.max_skipped). {}. Lower "
      "train.learning_rate, raise train.warmup_steps or set train.clip_norm",
      step, why, skipped,
      good ? fmt::format("The last checkpoint is {}", good->string()) : "There is no checkpoint");
}

}  // namespace

Status train(Session& session, Observer& observer, const TrainingOptions& options) {
  Engine& engine = session.engine();
  const sluice::Schedule& schedule = session.schedule();
  const double predicted_s = engine.prepared().stages.training.plan.makespan_ns / 1e9;
  int64_t evaluated_at = -1, skipped = 0;
  for (int64_t taken = 0; session.steps_done() < schedule.steps && !options.stop(); ++taken) {
    const bool traced = options.trace && taken == 1;
    std::vector<Interval> timeline;
    if (traced) engine.note_activities();
    SLUICE_ASSIGN(const StepResult r, session.step(traced ? &timeline : nullptr));
    const int64_t step = session.steps_done();
    observer.stepped({step, r.loss, r.gradient_norm, r.learning_rate, r.ns / 1e9, predicted_s, r.tokens,
                      in_public(engine.memory()), r.skipped});
    skipped = r.skipped.empty() ? 0 : skipped + 1;
    if (skipped >= schedule.max_skipped) return no_update(step, skipped, r.skipped, options);
    if (traced) SLUICE_TRY(options.trace(timeline, engine.activities()));
    if (session.evaluates() && schedule.evaluate_every > 0 && step % schedule.evaluate_every == 0) {
      SLUICE_TRY(evaluate(session, observer));
      evaluated_at = step;
    }
    if (options.saver != nullptr)
      SLUICE_TRY(options.saver->after_step(session, r.ns / 1e9, options.save && options.save()));
  }
  // Whoever asks to stop does not wait for it.
  if (session.evaluates() && evaluated_at != session.steps_done() && !options.stop())
    return evaluate(session, observer);
  return {};
}

}  // namespace sluice::core
