// SPDX-License-Identifier: Apache-2.0
#include "run/training.h"

#include <fmt/format.h>

namespace sluice::core {
namespace {

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// Nothing where somebody asked to stop meanwhile.
Result<std::optional<double>> evaluate(Session& session, Observer& observer,
                                       const std::function<bool()>& stop) {
  const auto loss = session.evaluate(stop);
  if (!loss.ok() && loss.error().kind == ErrorKind::Cancelled) return std::optional<double>();
  if (!loss.ok()) return loss.error();
  observer.evaluated({session.steps_done(), *loss});
  return std::optional(*loss);
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
  int64_t skipped = 0;
  for (int64_t taken = 0; session.steps_done() < schedule.steps && !options.stop(); ++taken) {
    const bool traced = options.trace && taken == 1;
    std::vector<Interval> timeline;
    if (traced) engine.note_activities();
    SLUICE_ASSIGN(const StepResult r, session.step(traced ? &timeline : nullptr));
    const int64_t step = session.steps_done();
    const StepEvent event{step,       r.loss,      r.gradient_norm, r.learning_rate,
                          r.ns / 1e9, predicted_s, r.tokens,        in_public(engine.memory()),
                          r.skipped};
    observer.stepped(event);
    if (traced) {
      if (const std::string slow = engine.slow_links(timeline); !slow.empty()) observer.warned(slow);
      SLUICE_TRY(options.trace(timeline, engine.activities()));
    }
    std::optional<double> heldout_loss;
    if (session.evaluates() && (is_due(step, schedule.evaluate_every) || step == schedule.steps)) {
      SLUICE_ASSIGN(heldout_loss, evaluate(session, observer, options.stop));
    }
    if (options.log) SLUICE_TRY(options.log(event, heldout_loss));
    if (options.sample && is_due(step, options.sample_every) && step < schedule.steps && !options.stop())
      SLUICE_TRY(options.sample(step));
    skipped = r.skipped.empty() ? 0 : skipped + 1;
    if (skipped >= schedule.max_skipped) return no_update(step, skipped, r.skipped, options);
    if (options.saver != nullptr)
      SLUICE_TRY(options.saver->after_step(session, r.ns / 1e9, options.save && options.save()));
  }
  return {};
}

}  // namespace sluice::core
