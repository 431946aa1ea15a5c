// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "draw/axis.h"
#include "draw/plot.h"
#include "explain/describe.h"
#include "io/event_file.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "io/set_aside.h"
#include "run/checks.h"
#include "run/history.h"
#include "run/manifest.h"
#include "run/resolve.h"
#include "run/speed.h"
#include "run/start.h"
#include "run/training.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

double unix_seconds() {
  using namespace std::chrono;
  return double(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1e3;
}

// What a run says on the console, and what it writes beside its checkpoints: metrics.jsonl, TensorBoard's
// events and loss.svg.
class TrainingObserver : public Console {
 public:
  // `bytes_per_token`: of held-out text, as RunData has it.
  TrainingObserver(const Prepared& p, double bytes_per_token)
      : c_(p.config),
        bytes_per_token_(bytes_per_token),
        dir_(p.config.run.dir),
        model_flops_(p.stages.training.model.program.facts.model_flops),
        peak_flops_(peak_flops(p)),
        steps_line_(stdout) {}

  // A run that begins has an empty log. One that goes on keeps what its own, or that of the run it began at,
  // has up to the checkpoint's step.
  Status open_metrics(int64_t steps_done);
  Status draw_losses() const;
  void summarize(const Prepared& p, const MemoryReport& memory);
  void end_line() { steps_line_.end(); }

  void warned(const std::string& message) override;
  void stepped(const StepEvent& e) override;
  void evaluated(const EvaluationEvent& e) override;
  void saved(const SaveEvent& e) override;
  // Draws texts from the model as it is; a line of samples.jsonl. The run goes on, or is done, without.
  Status sample(Session& session, const std::atomic<bool>& asked);
  // A line of metrics.jsonl.
  Status add(const StepEvent& e, std::optional<double> heldout_loss);
  Status flush() { return metrics_->flush(); }

 private:
  std::string line_of(const StepEvent& e) const;
  double bits_per_byte(double loss) const { return loss / std::log(2.0) / bytes_per_token_; }

  const RunConfig& c_;
  const double bytes_per_token_;
  const std::filesystem::path dir_;
  const double model_flops_, peak_flops_;
  ProgressLine steps_line_;
  std::optional<JsonLines> metrics_, samples_;
  std::optional<EventFile> events_;
  Series training_, heldout_;  // of the whole run, the part before a resume included
  std::vector<double> step_s_;
  int64_t skipped_ = 0;
};

Status TrainingObserver::open_metrics(int64_t steps_done) {
  const std::filesystem::path metrics = dir_ / "metrics.jsonl";
  // Steps that no checkpoint has: they are made again, which is no reason to lose what they were.
  std::error_code none;
  if (c_.latest.empty() && std::filesystem::file_size(metrics, none) > 0 && !none)
    SLUICE_TRY(set_aside(metrics));
  std::filesystem::path checkpoint = c_.checkpoint();
  if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();  // written with a slash at its end
  const std::filesystem::path run = checkpoint.empty() ? dir_ : checkpoint.parent_path().parent_path();
  SLUICE_ASSIGN(History history, take_history(run / metrics.filename(), metrics, steps_done));
  training_ = std::move(history.training);
  heldout_ = std::move(history.heldout);
  SLUICE_ASSIGN(metrics_, JsonLines::open(metrics));
  if (c_.sample.tokens > 0) {
    const std::filesystem::path texts = dir_ / "samples.jsonl";
    SLUICE_TRY(take_history(run / texts.filename(), texts, steps_done));
    SLUICE_ASSIGN(samples_, JsonLines::open(texts));
  }
  SLUICE_ASSIGN(events_, EventFile::create(dir_, unix_seconds()));
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

void TrainingObserver::warned(const std::string& message) {
  steps_line_.end();
  Console::warned(message);
}

void TrainingObserver::stepped(const StepEvent& e) {
  step_s_.push_back(e.seconds);
  if (std::isfinite(e.loss)) training_.points.push_back({double(e.step), e.loss});
  if (!e.skipped.empty()) {
    ++skipped_;
    warned(fmt::format("step {}: {}; no update was made", e.step, e.skipped));
  }
  stop();
  steps_line_.show(line_of(e), e.step == 1 || e.step == c_.train.steps);
}

void TrainingObserver::evaluated(const EvaluationEvent& e) {
  heldout_.points.push_back({double(e.step), e.loss});
  steps_line_.end();
  const std::string per_byte =
      bytes_per_token_ > 0 ? fmt::format(", {:.3f} bits per byte", bits_per_byte(e.loss)) : "";
  say("held-out loss {:.4f} (perplexity {:.4g}{}) after {} steps\n", e.loss, std::exp(e.loss), per_byte,
      e.step);
}

void TrainingObserver::saved(const SaveEvent& e) {
  steps_line_.end();
  say("{}", describe(e));
}

Status TrainingObserver::add(const StepEvent& e, std::optional<double> heldout_loss) {
  const double now = unix_seconds();
  nlohmann::ordered_json line = {{"step", e.step},
                                 {"time", now},
                                 {"skipped", !e.skipped.empty()},
                                 {"loss", e.loss},
                                 {"gradient_norm", e.gradient_norm},
                                 {"learning_rate", e.learning_rate},
                                 {"tokens", e.tokens},
                                 {"tokens_per_s", double(e.tokens) / e.seconds},
                                 {"step_ms", e.seconds * 1e3},
                                 {"predicted_ms", e.predicted_seconds * 1e3},
                                 {"device_bytes", e.memory.device_bytes},
                                 {"host_bytes", e.memory.host_bytes}};
  if (peak_flops_ > 0) line["mfu"] = model_flops_ / e.seconds / peak_flops_;
  std::vector<std::pair<std::string_view, double>> scalars{{"loss/train", e.loss},
                                                           {"gradient_norm", e.gradient_norm},
                                                           {"learning_rate", e.learning_rate},
                                                           {"tokens_per_s", double(e.tokens) / e.seconds}};
  if (heldout_loss) {
    line["heldout_loss"] = *heldout_loss;
    scalars.emplace_back("loss/heldout", *heldout_loss);
    scalars.emplace_back("heldout/perplexity", std::exp(*heldout_loss));
    if (bytes_per_token_ > 0) {
      line["heldout_bits_per_byte"] = bits_per_byte(*heldout_loss);
      scalars.emplace_back("heldout/bits_per_byte", bits_per_byte(*heldout_loss));
    }
    SLUICE_TRY(draw_losses());
  }
  SLUICE_TRY(events_->add(now, e.step, scalars));
  return metrics_->append(line);
}

Status TrainingObserver::sample(Session& session, const std::atomic<bool>& asked) {
  const auto& s = c_.sample;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < s.texts && !asked; ++i) {
    const auto more = [&](int64_t done) {
      progress({"sampling", i * s.tokens + done, s.texts * s.tokens});
      return !asked;
    };
    const auto text = session.sample(s.prompt, s.tokens, s.temperature, i, more);
    stop();
    steps_line_.end();
    if (asked) return {};
    if (!text.ok()) {
      warned(fmt::format("no sample: {}", text.message()));
      return {};
    }
    say("sample: {}{}\n", s.prompt, *text);
    texts.push_back(*text);
  }
  std::fflush(stdout);
  if (texts.empty()) return {};
  const double now = unix_seconds();
  SLUICE_TRY(events_->add(now, session.steps_done(), "samples", texts));
  return samples_->append(
      {{"step", session.steps_done()}, {"time", now}, {"prompt", s.prompt}, {"texts", std::move(texts)}});
}

Status TrainingObserver::draw_losses() const {
  std::vector<PlotMark> best;
  const auto by_loss = [](const Point& a, const Point& b) { return a.y < b.y; };
  if (const auto lowest = std::min_element(heldout_.points.begin(), heldout_.points.end(), by_loss);
      heldout_.points.size() > 1)
    best.push_back({*lowest, fmt::format("lowest held out: {:.4f} at step {:.0f}", lowest->y, lowest->x)});
  return write_file(dir_ / "loss.svg",
                    render({.title = "Loss",
                            .subtitle = fmt::format("{}, {} tokens per step", dir_.filename().string(),
                                                    grouped(double(c_.train.tokens_per_step), 0)),
                            .x_label = "step",
                            .y_label = "nats per token",
                            .series = {training_, heldout_},
                            .marks = std::move(best)}));
}

void TrainingObserver::summarize(const Prepared& p, const MemoryReport& memory) {
  say("peak memory: device {} of {}, host {} of {}\n", format_bytes(fullest_device(memory.peak_bytes)),
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
  show_text(describe(p));
  for (const std::string& notice : data.notices) show_text(notice + "\n");
  std::fflush(stdout);
  SLUICE_TRY(save_plan(p));
  const SaveSchedule saves = save_schedule_of(p.config);
  SLUICE_ASSIGN(CheckpointStore store, CheckpointStore::open(checkpoints_in(dir), saves.keep));
  SLUICE_ASSIGN(Saver saver, Saver::open(p, std::move(store), saves, p.config.train.steps, observer));
  show_text(describe(saver.forecast()));
  std::fflush(stdout);
  SLUICE_ASSIGN(const std::unique_ptr<Session> session, Session::open(p, std::move(data), observer));
  observer.stop();
  show_text(describe(session->engine().start_up()));
  std::fflush(stdout);
  SLUICE_TRY(observer.open_metrics(session->steps_done()));
  TrainingOptions options;
  options.saver = &saver;
  saver.before_each([&]() -> Status {
    SLUICE_TRY(observer.draw_losses());
    return observer.flush();
  });
  options.log = [&](const StepEvent& e, std::optional<double> heldout) { return observer.add(e, heldout); };
  options.save = [&] { return asked.save.exchange(false); };
  options.stop = [&] { return asked.stop.load(); };
  if (p.stages.sampling) options.sample = [&](int64_t) { return observer.sample(*session, asked.stop); };
  options.sample_every = p.config.sample.every;
  if (p.config.run.trace) {
    options.trace = [&](std::span<const Interval> timeline, std::vector<DeviceActivity> activities) {
      const Stage& s = p.stages.training;
      return write_file(dir / "trace.json", chrome_trace(s.model.program, s.plan, timeline, activities));
    };
  }
  const int64_t steps_before = session->steps_done();
  asked.heeded = true;
  SLUICE_TRY(train(*session, observer, options));
  observer.end_line();
  const bool interrupted = session->steps_done() < p.config.train.steps;
  if (interrupted && session->steps_done() == steps_before)
    return steps_before > 0 ? Ending::Interrupted : Ending::Stopped;
  if (interrupted) say("interrupted after step {}; the same command goes on\n", session->steps_done());
  std::fflush(stdout);
  if (session->steps_done() > steps_before) SLUICE_TRY(saver.finish(*session));
  SLUICE_TRY(observer.draw_losses());
  if (p.stages.sampling && !asked.stop) SLUICE_TRY(observer.sample(*session, asked.stop));
  observer.summarize(p, session->engine().memory());
  return interrupted ? Ending::Interrupted : Ending::Done;
}

// Whether the run goes on as the one that was saved, and how far that is; 0: it begins.
Result<int64_t> check_checkpoint(const RunConfig& c, const Machine& machine, const ModelSpec& model,
                                 const RunData& data) {
  if (c.checkpoint().empty()) return 0;
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  SLUICE_ASSIGN(Manifest now, manifest_before_plans(c, machine, model, data.content, info.manifest));
  add_date(now, data.date);
  add_schedule(now, schedule_of(c));
  const Status goes_on = check_goes_on(c, info.manifest, now);
  if (goes_on.ok()) return info.step;
  Error why = goes_on.error();
  if (data.content != data.content_before && value_of(info.manifest, "data.content") == data.content_before)
    why.message += fmt::format(
        "; the files are the same, but Sluice 0.1.0 learnt {} of their documents otherwise (docs/data.md, "
        "What changed)",
        data.findings.learnt_anew);
  return why;
}

// What cannot be is refused before the search for a plan, which may take minutes.
Result<Ending> run_training(const RunRequest& request, Requests& asked) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(config.allow, parse_allowances(request.allow));
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, request.machine));
  if (!machine.traits().runs_models) {
    return error("run.backend = {}: a simulated machine cannot train; use sluice simulate",
                 machine.backend->name);
  }
  Console console;
  SLUICE_ASSIGN(const RunDirectory directory, take_run_directory(config, request.anew, console));
  SLUICE_TRY(check_early(config, machine));
  SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
  SLUICE_TRY(keep_date(config));
  SLUICE_TRY(keep_rate(config));
  SLUICE_ASSIGN(RunData data, open_data(config, model.vocab, console));
  console.stop();
  SLUICE_TRY(count_steps(config, data));
  SLUICE_ASSIGN(const int64_t steps_done, check_checkpoint(config, machine, model, data));
  if (steps_done > 0 && steps_done >= config.train.steps) {
    say("nothing left to do: {} has made {} of {} steps; for more of them --set train.steps=N --allow steps, "
        "for another run --new\n",
        config.checkpoint(), steps_done, config.train.steps);
    return Ending::NothingLeft;
  }
  if (steps_done > 0) say("going on from {}\n", config.checkpoint());
  const PlanCache cache = plan_cache_of(config);
  SLUICE_ASSIGN(RunNeeds needs, needs_of(config, true));
  needs.rows = sample_rows(data);
  SLUICE_ASSIGN(const Prepared prepared, prepare_on(std::move(config), std::move(machine), std::move(needs),
                                                    {nullptr, &cache, &console}));
  console.stop();
  TrainingObserver observer(prepared, data.heldout_bytes_per_token);
  return run(prepared, std::move(data), observer, asked);
}

}  // namespace

Outcome train(const RunRequest& request, Requests& asked) {
  return outcome(run_training(request, asked));
}

}  // namespace sluice::core
