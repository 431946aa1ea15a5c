// SPDX-License-Identifier: Apache-2.0
#include "run/training/saver.h"

#include <algorithm>
#include <cmath>

#include "host/host_memory.h"
#include "io/disk.h"
#include "io/file.h"
#include "run/data/data.h"
#include "run/inputs/resolve.h"
#include "run/prepare/manifest.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Smaller checkpoints are not worth a measurement of the disk.
constexpr int64_t kWorthMeasuring = 256 << 20;
constexpr double kProbeSeconds = 1;
constexpr double kNoLoss = std::numeric_limits<double>::infinity();

// Where the file system has no links there is none.
Status link_best_of(CheckpointStore& store, int64_t step, double loss) {
  Status linked;
  const Status kept = store.save_best(step, [&](const fs::path& to) {
    linked = link_weights(store.at(step), to);
    return linked.ok() ? set_own_loss(to, loss) : linked;
  });
  return linked.ok() ? kept : Status();
}

}  // namespace

Status keep_best_of_newest(CheckpointStore& store, KeepBest best) {
  if (best == KeepBest::Off || !store.latest()) return {};
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(store.at(*store.latest())));
  const int64_t step = info.heldout.best_step;
  const bool is_lowest = step == info.step && store.best() != step;
  return is_lowest ? link_best_of(store, step, info.heldout.best_loss) : Status();
}

SaveSchedule save_schedule_of(const RunConfig& c) {
  const bool may = holds_out(c) && c.eval.rows > 0;
  const KeepBest best = !may || c.run.keep_best == false ? KeepBest::Off
                        : c.run.keep_best == true        ? KeepBest::On
                                                         : KeepBest::Auto;
  return {c.run.checkpoint_every, c.run.checkpoint_minutes, {c.run.keep_last, c.run.keep_every}, best};
}

Result<Saver> Saver::open(const Prepared& prepared, CheckpointStore store, const SaveSchedule& schedule,
                          int64_t last_step, Observer& observer) {
  Saver saver(prepared, std::move(store), schedule, observer);
  saver.last_good_ = saver.store_.latest();
  const CheckpointLayout layout = saved_layout(prepared);
  saver.forecast_.bytes = layout.file_bytes;
  SLUICE_ASSIGN(const ModelFiles files, model_files_of(prepared.config));
  saver.other_bytes_ = files.bytes() + layout.other_bytes();
  if (schedule.best != KeepBest::Off) saver.best_bytes_ = weights_only(layout).file_bytes;
  saver.last_step_ = last_step;
  SLUICE_TRY(keep_best_of_newest(saver.store_, schedule.best));
  if (const auto step = saver.store_.best()) {
    SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(saver.store_.best_at(*step)));
    saver.kept_ = {.step = step, .loss = info.heldout.best_loss};
    saver.kept_of_ = info.heldout.of;
  }
  saver.planned_s_ = double(last_step) * prepared.stages.main.plan.makespan_ns / 1e9;
  SLUICE_TRY(saver.check_space(last_step));
  SLUICE_TRY(saver.forecast_cost());
  return saver;
}

// Those that will be there at once: one is written before an older one goes.
Status Saver::check_space(int64_t last_step) {
  const int64_t done = store_.latest().value_or(0), there = int64_t(store_.steps().size());
  const int64_t steps = std::max<int64_t>(0, last_step - done);
  const auto among = [&](int64_t every) { return every > 0 ? last_step / every - done / every : 0; };
  const double steps_s = double(steps) * p_->stages.main.plan.makespan_ns / 1e9;
  const double by_time = schedule_.minutes > 0 ? steps_s / (60 * schedule_.minutes) : 0;
  const int64_t saves = 1 + among(schedule_.every_steps) + int64_t(std::min(by_time, 1e6));
  const int64_t for_good = among(schedule_.keep.every);
  const int64_t more = for_good + std::clamp<int64_t>(schedule_.keep.last + 1 - there, 1, saves);
  SLUICE_ASSIGN(const int64_t free, free_disk_bytes(store_.dir()));
  const double models = store_.best() ? 1 : 2;
  const double best = best_bytes_ > 0 ? models * double(best_bytes_ + other_bytes_) : 0;
  const double need = double(disk_bytes()) * double(more);
  if (need + best <= double(free)) return {};
  const auto bytes = [](double value) { return format_bytes_up(int64_t(std::min(value, 9e18))); };
  if (need <= double(free) && schedule_.best == KeepBest::Auto) {
    observer_->warned(
        fmt::format("{}: the model with the lowest held-out loss is not kept: beside {} of checkpoints it "
                    "needs {}, {} are free "
                    "there (run.keep_best)",
                    store_.dir().string(), bytes(need), bytes(best), format_bytes(free)));
    schedule_.best = KeepBest::Off;
    best_bytes_ = 0;
    return {};
  }
  return error(
      ErrorKind::Io,
      "{}: {} checkpoints of {}{} need {}, {} are free there; make room, lower run.keep_last (now {}) "
      "or raise run.keep_every (now {})",
      store_.dir().string(), more, format_bytes(disk_bytes()),
      best > 0 ? fmt::format(" and the best model (run.keep_best), {},", bytes(best)) : "",
      bytes(need + best), format_bytes(free), schedule_.keep.last, schedule_.keep.every);
}

Status Saver::forecast_cost() {
  const CheckpointLayout layout = saved_layout(*p_);
  const BytesByTier arenas = p_->stages.arena_bytes();
  const int64_t taken = p_->machine.traits().shares_cores ? sum(arenas) : arenas[kHost];
  forecast_.beside_run =
      !p_->optimizer.sharded.is() && room_for_copy(*p_, 0, available_bytes() - taken) >= layout.part_bytes;
  forecast_.in_parts = p_->optimizer.sharded.is();
  forecast_.each_writes = p_->config.all_see_dir;
  if (forecast_.bytes >= kWorthMeasuring) {
    SLUICE_TRY(make_own_directory(store_.dir()));
    SLUICE_ASSIGN(forecast_.disk_bytes_per_s, measure_disk(store_.dir(), kWorthMeasuring, kProbeSeconds));
  }
  forecast_.waited_s = double(layout.part_bytes) / p_->machine.profile.bytes_per_s(kDevice, kHost);
  if (!forecast_.beside_run && forecast_.disk_bytes_per_s > 0)
    forecast_.waited_s += double(forecast_.bytes) / forecast_.disk_bytes_per_s;
  best_cost_s_ = forecast_.waited_s * double(best_bytes_) / double(std::max<int64_t>(1, forecast_.bytes));
  if (schedule_.minutes > 0) interval_s_ = std::max(60 * schedule_.minutes, forecast_.waited_s / kMostShare);
  forecast_.interval_s = interval_s_;
  return {};
}

bool Saver::is_due(int64_t step) const {
  const auto by = [&](int64_t every) { return every > 0 && step % every == 0; };
  return by(schedule_.every_steps) || by(schedule_.keep.every);
}

Status Saver::after_step(Session& session, double step_s, bool asked) {
  run_s_ += step_s;
  if (beside_.valid()) {
    // Its slowdown of steps counts as waiting.
    saving_.waited_seconds += step_s - typical_step_s_;
    if (beside_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) SLUICE_TRY(wait());
  } else {
    typical_step_s_ = typical_step_s_ == 0 ? step_s : typical_step_s_ + (step_s - typical_step_s_) / 8;
  }
  if (asked || is_due(session.steps_done())) {
    SLUICE_TRY(wait());
    return save(session, true);
  }
  const bool time = interval_s_ > 0 && run_s_ - saved_at_s_ >= interval_s_;
  return time && !beside_.valid() ? save(session, true) : Status();
}

Status Saver::after_evaluation(Session& session, double loss, double evaluation_s) {
  run_s_ += evaluation_s;
  const int64_t step = session.steps_done();
  losses_[step] = loss;
  const HeldoutRecord& record = session.engine().heldout();
  if (std::exchange(kept_of_, record.of) != record.of) kept_.loss = kNoLoss;
  // The model that a run began with stays at its source.
  if (record.best_step == 0) kept_.loss = std::min(kept_.loss, record.best_loss);
  // The last one shares the files of the last checkpoint: see finish().
  if (schedule_.best == KeepBest::Off || !is_better(step) || step == last_step_) return {};
  if (schedule_.best == KeepBest::Auto && (beside_.valid() || share_with_best() > kMostShare)) {
    // One that is written anyway is the best model at once.
    if (!beside_.valid()) SLUICE_TRY(link_best());
    if (is_better(step) && (!kept_.missed_step || loss < losses_.at(*kept_.missed_step)))
      kept_.missed_step = step, kept_.missed_share = share_with_best();
    return {};
  }
  SLUICE_TRY(wait());
  SLUICE_TRY(link_best());
  return is_better(step) ? begin(session, true, true) : Status();
}

// The first one may come early in a run that is long enough.
double Saver::share_with_best() const {
  const double run_s = best_waited_s_ == 0 ? std::max(run_s_, planned_s_) : run_s_;
  return (best_waited_s_ + best_cost_s_) / std::max(run_s, 1e-9);
}

bool Saver::is_better(int64_t step) const {
  const auto found = losses_.find(step);
  return found != losses_.end() && found->second < kept_.loss;
}

Status Saver::finish(Session& session) {
  SLUICE_TRY(wait());
  SLUICE_TRY(save(session, false));
  SLUICE_TRY(link_best());
  if (schedule_.best == KeepBest::Off || !is_better(session.steps_done())) return {};
  if (schedule_.best == KeepBest::Auto && share_with_best() > kMostShare) return {};
  return begin(session, true, false);
}

// REQUIRES: no save is in progress.
Status Saver::link_best() {
  const std::optional<int64_t> step = store_.latest();
  if (schedule_.best == KeepBest::Off || !step || !is_better(*step)) return {};
  const double loss = losses_.at(*step);
  SLUICE_TRY(link_best_of(store_, *step, loss));
  if (store_.best() == step) kept_.step = step, kept_.loss = loss;
  return {};
}

Status Saver::wait() {
  if (!beside_.valid()) return {};
  const Stopwatch watch;
  const Written done = beside_.get();
  saving_.waited_seconds += watch.seconds();
  run_s_ += watch.seconds();
  return written(done);
}

Status Saver::save(Session& session, bool beside) {
  if (store_.latest() == session.steps_done()) return {};
  saved_at_s_ = run_s_;
  return begin(session, false, beside);
}

// REQUIRES: no other save is in progress.
Status Saver::begin(Session& session, bool best, bool beside) {
  const int64_t step = session.steps_done();
  if (before_each_) SLUICE_TRY(before_each_());
  const Stopwatch watch;
  saving_ = {};
  saving_.step = step;
  saving_.best = best;
  saving_.directory = best ? store_.best_at(step) : store_.at(step);
  saving_.bytes = best ? best_bytes_ : forecast_.bytes;
  const int64_t disk_bytes = saving_.bytes + other_bytes_;
  SLUICE_ASSIGN(const int64_t free, free_disk_bytes(store_.dir()));
  if (free < disk_bytes) {
    return failed(error(ErrorKind::Io, "{}: it needs {}, {} are free there", saving_.directory.string(),
                        format_bytes_up(disk_bytes), format_bytes(free)));
  }
  Engine& engine = session.engine();
  const Manifest manifest = session.manifest();
  const int64_t room = beside ? room_for_copy(*p_, engine.memory().bytes[kHost], available_bytes()) : 0;
  SLUICE_ASSIGN(std::optional<CheckpointCopy> copy,
                best ? engine.copy_weights(manifest, room) : engine.copy(manifest, room));
  const auto own_loss = [loss = best ? losses_.at(step) : 0](const auto& write) {
    return [loss, &write](const fs::path& to) -> Status {
      SLUICE_TRY(write(to));
      return set_own_loss(to, loss);
    };
  };
  if (copy) {
    beside_ = std::async(std::launch::async,
                         [this, step, best, own_loss, watch, copy = std::move(*copy)]() mutable -> Written {
                           const auto write = [&](const fs::path& to) { return copy.write(to); };
                           Status status =
                               best ? store_.save_best(step, own_loss(write)) : store_.save(step, write);
                           return {std::move(status), watch.seconds()};
                         });
    saving_.waited_seconds = watch.seconds();
    run_s_ += watch.seconds();
    return {};
  }
  Written done;
  const auto write = [&](const fs::path& to) { return engine.save_weights(manifest, to); };
  done.status = best ? store_.save_best(step, own_loss(write)) : engine.save(manifest, store_);
  done.seconds = saving_.waited_seconds = watch.seconds();
  run_s_ += watch.seconds();
  return written(done);
}

Status Saver::written(const Written& done) {
  if (!done.status.ok()) return failed(done.status.error());
  saving_.seconds = done.seconds;
  saving_.waited_seconds = std::max(0.0, saving_.waited_seconds);
  waited_s_ += saving_.waited_seconds;
  if (saving_.best) {
    best_waited_s_ += saving_.waited_seconds;
    best_cost_s_ = saving_.waited_seconds;
    kept_.step = saving_.step;
    kept_.loss = losses_.at(saving_.step);
  } else {
    last_good_ = saving_.step;
    SLUICE_TRY(link_best());
  }
  if (schedule_.minutes > 0 && !saving_.best) {
    interval_s_ = std::max(60 * schedule_.minutes, saving_.waited_seconds / kMostShare);
    saving_.next_seconds = interval_s_;
    saving_.delayed = interval_s_ > 60 * schedule_.minutes;
  }
  saving_.share_of_run = run_s_ > 0 ? waited_s_ / run_s_ : 0;
  observer_->saved(saving_);
  return {};
}

std::optional<fs::path> Saver::last_good() const {
  return last_good_ ? std::optional(store_.at(*last_good_)) : std::nullopt;
}

Error Saver::failed(const Error& why) const {
  Error out = error_at(fmt::format("the {} of step {} could not be saved",
                                   saving_.best ? "best model" : "checkpoint", saving_.step),
                       why);
  // The state itself is refused, and would be after every step from here on.
  if (!why.detail("tensor").empty()) out.details.emplace_back("unsaved", why.detail("tensor"));
  const auto good = last_good();
  out.message +=
      good ? fmt::format("; the last good one is {}", good->string()) : "; there is none before it";
  return out;
}

}  // namespace sluice::core
