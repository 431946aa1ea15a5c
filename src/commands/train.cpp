// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "base/counts.h"
#include "base/stopwatch.h"
#include "commands/commands.h"
#include "commands/console.h"
#include "commands/job.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "config/files/load_config.h"
#include "draw/axis.h"
#include "draw/plot.h"
#include "explain/describe.h"
#include "io/event_file.h"
#include "io/file.h"
#include "io/jsonl.h"
#include "io/set_aside.h"
#include "plans/learning_rate.h"
#include "plans/speed.h"
#include "run/directory/history.h"
#include "run/directory/save_plan.h"
#include "run/directory/start.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/prepare/manifest.h"
#include "run/training/sample_budget.h"
#include "run/training/save_words.h"
#include "run/training/training.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

constexpr std::string_view kOpenPrompt = "auto";  // of sample.prompt

double unix_seconds() {
  using namespace std::chrono;
  return double(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1e3;
}

// What a run says on the console, and what it writes beside its checkpoints: metrics.jsonl, TensorBoard's
// events and loss.svg.
class TrainingObserver : public Console {
 public:
  // `bytes_per_token`: of held-out text, as RunData has it.
  TrainingObserver(const Prepared& p, const RunDirectory& directory, double bytes_per_token)
      : c_(p.config),
        directory_(directory),
        bytes_per_token_(bytes_per_token),
        dir_(p.config.run.dir),
        model_flops_(p.stages.main.model.program.facts.model_flops),
        peak_flops_(peak_flops(p)),
        predicted_step_s_(p.stages.main.plan.makespan_ns / 1e9),
        predicted_text_s_(p.stages.find(kSampling)
                              ? double(c_.sample.tokens) * p.stages.at(kSampling).plan.makespan_ns / 1e9
                              : 0),
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
  // Draws texts from the model as it is, as many as there is time for; a line of samples.jsonl. The run goes
  // on, or is done, without.
  Status sample(Session& session, const std::atomic<bool>& asked, bool at_end);
  // A line of metrics.jsonl; `heldout`: what an evaluation after the step found, or null.
  Status add(const StepEvent& e, const EvaluationEvent* heldout);
  // The same of an evaluation before the first step that is made here: of step 0, or of the last one that was
  // made before, which has its line.
  Status add_first(const EvaluationEvent& heldout);
  Status flush() { return metrics_->flush(); }
  // Which step was best, and which is kept.
  void summarize_heldout(const HeldoutRecord& record, std::optional<int64_t> kept) const;

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;
  std::string line_of(const StepEvent& e) const;
  Status add_heldout(const EvaluationEvent& e, nlohmann::ordered_json& line, Scalars& scalars);
  Status add_scalars(double now, int64_t step, const Scalars& scalars);
  // Seconds of a step, in the mean.
  double step_s() const {
    const double all = std::accumulate(step_s_.begin(), step_s_.end(), 0.0);
    return step_s_.empty() ? predicted_step_s_ : all / double(step_s_.size());
  }
  double bits_per_byte(double loss) const { return loss / std::log(2.0) / bytes_per_token_; }

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
  std::string last_line_;      // of metrics.jsonl when it was opened
  std::vector<double> step_s_;
  int64_t skipped_ = 0;
  std::optional<EvaluationEvent> evaluated_;  // last
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
  last_line_ = std::move(history.last);
  SLUICE_ASSIGN(metrics_, JsonLines::open(metrics));
  if (c_.sample.tokens > 0) {
    const std::filesystem::path texts = dir_ / "samples.jsonl";
    SLUICE_TRY(take_history(run / texts.filename(), texts, steps_done));
    SLUICE_ASSIGN(samples_, JsonLines::open(texts));
  }
  SLUICE_ASSIGN(events_, EventFile::create(dir_, unix_seconds(), steps_done > 0 ? steps_done + 1 : 0));
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
  const std::string rise = e.rises()
                               ? fmt::format("; {:.4f} above the lowest, of step {} (standard error {:.2g})",
                                             e.rise, e.lowest_step, *e.rise_error)
                               : "";
  // Perplexities of the first steps are large, and no one reads 5.372e+04.
  const double perplexity = std::exp(e.loss);
  say("held-out loss {:.4f} (perplexity {}{}, {:.1f} % right) {}{}\n", e.loss,
      perplexity < 1000 ? fmt::format("{:.4g}", perplexity) : grouped(perplexity, 0), per_byte,
      100 * e.accuracy, e.step == 0 ? "before the first step" : "after " + counted(e.step, "step"), rise);
  for (const EvaluationEvent::Path& path : e.paths) say("  {:.4f} of {}\n", path.loss, path.name);
  evaluated_ = e;
}

void TrainingObserver::saved(const SaveEvent& e) {
  steps_line_.end();
  say("{}", describe(e));
}

Status TrainingObserver::add(const StepEvent& e, const EvaluationEvent* heldout) {
  SLUICE_TRY(directory_.check());
  const double now = unix_seconds();
  nlohmann::ordered_json line = {{"step", e.step},
                                 {"time", now},
                                 {"skipped", !e.skipped.empty()},
                                 {"loss", e.loss},
                                 {"accuracy", e.accuracy},
                                 {"gradient_norm", e.gradient_norm},
                                 {"learning_rate", e.learning_rate},
                                 {"tokens", e.tokens},
                                 {"learnt_tokens", e.learnt_tokens},
                                 {"epoch", e.epoch},
                                 {"tokens_per_s", double(e.tokens) / e.seconds},
                                 {"step_ms", e.seconds * 1e3},
                                 {"predicted_ms", e.predicted_seconds * 1e3},
                                 {"device_bytes", e.memory.device_bytes},
                                 {"host_bytes", e.memory.host_bytes}};
  Scalars scalars{{"loss/train", e.loss},
                  {"accuracy/train", e.accuracy},
                  {"gradient_norm", e.gradient_norm},
                  {"learning_rate", e.learning_rate},
                  {"learnt_tokens", double(e.learnt_tokens)},
                  {"epoch", e.epoch},
                  {"tokens_per_s", double(e.tokens) / e.seconds},
                  {"step/measured_ms", e.seconds * 1e3},
                  {"step/predicted_ms", e.predicted_seconds * 1e3},
                  {"memory/device_bytes", double(e.memory.device_bytes)},
                  {"memory/host_bytes", double(e.memory.host_bytes)}};
  if (peak_flops_ > 0) {
    line["mfu"] = model_flops_ / e.seconds / peak_flops_;
    scalars.emplace_back("mfu", model_flops_ / e.seconds / peak_flops_);
  }
  if (heldout != nullptr) SLUICE_TRY(add_heldout(*heldout, line, scalars));
  SLUICE_TRY(add_scalars(now, e.step, scalars));
  return metrics_->append(line);
}

Status TrainingObserver::add_first(const EvaluationEvent& heldout) {
  const double now = unix_seconds();
  nlohmann::ordered_json line = {{"step", heldout.step}, {"time", now}};
  const auto last = nlohmann::ordered_json::parse(last_line_, nullptr, false);
  const bool has_line = last.is_object() && last.value("step", int64_t{-1}) == heldout.step;
  if (has_line) {
    line = last;
    const std::filesystem::path metrics = dir_ / "metrics.jsonl";
    SLUICE_TRY(take_history(metrics, metrics, heldout.step - 1));
    SLUICE_ASSIGN(metrics_, JsonLines::open(metrics));
  }
  Scalars scalars;
  SLUICE_TRY(add_heldout(heldout, line, scalars));
  SLUICE_TRY(add_scalars(now, heldout.step, scalars));
  SLUICE_TRY(metrics_->append(line));
  return metrics_->flush();
}

Status TrainingObserver::add_heldout(const EvaluationEvent& e, nlohmann::ordered_json& line,
                                     Scalars& scalars) {
  const auto add = [&](const char* key, const std::string& tag, double value) {
    line[key] = value;
    scalars.emplace_back(tag, value);
  };
  add("heldout_loss", "loss/heldout", e.loss);
  scalars.emplace_back("heldout/perplexity", std::exp(e.loss));
  if (bytes_per_token_ > 0) add("heldout_bits_per_byte", "heldout/bits_per_byte", bits_per_byte(e.loss));
  add("heldout_accuracy", "heldout/accuracy", e.accuracy);
  if (e.standard_error) add("heldout_standard_error", "heldout/standard_error", *e.standard_error);
  line["heldout_rows"] = e.rows;
  line["heldout_tokens"] = e.targets;
  for (const EvaluationEvent::Path& path : e.paths) {
    line["heldout_paths"][path.name] = path.loss;
    scalars.emplace_back("heldout/of/" + path.name, path.loss);
  }
  return draw_losses();
}

Status TrainingObserver::add_scalars(double now, int64_t step, const Scalars& scalars) {
  const std::vector<std::pair<std::string_view, double>> views(scalars.begin(), scalars.end());
  return events_->add(now, step, views);
}

Status TrainingObserver::sample(Session& session, const std::atomic<bool>& asked, bool at_end) {
  const auto& s = c_.sample;
  // Of this start's steps and those that are left: of those before nothing is known.
  const double run_s = step_s() * double(int64_t(step_s_.size()) + c_.train.steps - session.steps_done());
  budget_.expect(predicted_text_s_ * step_s() / predicted_step_s_);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < s.texts && !asked; ++i) {
    if (!budget_.allows(run_s, at_end)) {
      if (!std::exchange(texts_left_out_, true)) {
        warned(fmt::format(
            "samples are left out: one text of sample.tokens = {} takes up to {:.1f} s, and all samples "
            "together may take {:.1f} s, the larger of 10 s and 2 % of the run",
            s.tokens, budget_.text_s(), SampleBudget::most_s(run_s)));
      }
      break;
    }
    const Stopwatch watch;
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
    budget_.drew(watch.seconds());
    say_result(fmt::format("sample: {}{}\n", s.prompt, *text));
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
  SLUICE_TRY(directory_.check());
  std::vector<PlotMark> best;
  if (const auto point = lowest(heldout_); point && heldout_.points.size() > 1)
    best.push_back({*point, fmt::format("lowest held out: {:.4f} at step {:.0f}", point->y, point->x)});
  return write_file(dir_ / "loss.svg",
                    render({.title = "Loss",
                            .subtitle = fmt::format("{}, {} tokens per step", dir_.filename().string(),
                                                    grouped(double(c_.train.tokens_per_step), 0)),
                            .x_label = "step",
                            .y_label = "nats per token",
                            .series = {training_, heldout_},
                            .marks = std::move(best)}));
}

void TrainingObserver::summarize_heldout(const HeldoutRecord& record, std::optional<int64_t> kept) const {
  if (record.best_step < 0) return;
  std::string now;
  if (evaluated_ && evaluated_->step > record.best_step) {
    now = fmt::format("; after step {} it is {:.4f}", evaluated_->step, evaluated_->loss);
    if (evaluated_->rise_error)
      now += fmt::format(" (standard error of the rise {:.2g})", *evaluated_->rise_error);
  }
  say("held-out loss was lowest after step {}: {:.4f}{}\n", record.best_step, record.best_loss, now);
  if (c_.run.keep_best == false) return;
  std::string best = kept ? (dir_ / "checkpoints" / "best").string() : "none is kept";
  if (record.best_step == 0) {
    best = "the one that the run began with";
  } else if (kept != record.best_step) {
    best += kept ? fmt::format(", of step {}", *kept) : "";
    best +=
        "; saving a better one would have taken more than 2 % of the run "
        "(run.keep_best = on saves every one)";
  }
  say("best model: {}\n", best);
}

void TrainingObserver::summarize(const Prepared& p, const MemoryReport& memory) {
  say("peak memory: device {} of {}, host {} of {}\n", format_bytes(fullest_device(memory.peak_bytes)),
      format_bytes(c_.caps[kDevice]), format_bytes(memory.peak_bytes[kHost]), format_bytes(c_.caps[kHost]));
  if (skipped_ > 0) say("steps without an update: {} of {}\n", skipped_, step_s_.size());
  if (step_s_.size() > 2) {
    std::vector<double> s(step_s_.begin() + 1, step_s_.end());
    std::sort(s.begin(), s.end());
    const double median = s[s.size() / 2], predicted = p.stages.main.plan.makespan_ns / 1e9;
    say("step time: median {:.1f} ms, predicted {:.1f} ms ({:+.1f} %); {:.0f} tok/s\n", median * 1e3,
        predicted * 1e3, 100 * (predicted / median - 1), double(p.shape.tokens_of_all()) / median);
  }
  say("run directory: {}\n", dir_.string());
}

// What is held out, what of it is evaluated, and what that takes.
std::string describe_heldout(const Session& session) {
  const RowsCount rows = session.heldout_rows();
  const EvaluationInterval often = session.evaluations();
  const sluice::Schedule& schedule = session.schedule();
  const int64_t all = session.data().heldout->epoch_rows();
  std::string out = fmt::format(
      "held-out loss: of {} of the {} held out, {} that are learnt, measured{}{} and at the end; that takes "
      "about {:.2g} % of the run\n",
      rows.rows == all ? "all" : fmt::format("{}", fmt::group_digits(rows.rows)), counted(all, "row"),
      counted(rows.targets, "token"), schedule.evaluate_first ? " at the beginning," : "",
      often.every == 1  ? " after every step"
      : often.every > 0 ? fmt::format(" every {} steps", often.every)
                        : "",
      100 * often.share);
  if (schedule.evaluate_first && often.share > kEvaluationShare) {
    out += fmt::format(
        "evaluations take more than {:.0f} % of the run, as at least {} are made on the way; a smaller "
        "eval.rows makes each cheaper, and a given eval.every makes fewer\n",
        100 * kEvaluationShare, kFewestEvaluations);
  }
  return out;
}

// An error where processes would not train one model on one step: their configurations, programs and weights
// are compared. Caps and plans may differ.
Status check_alike(Job& job, Session& session) {
  if (job.alone()) return {};
  std::string text;
  for (const auto& [name, value] : session.manifest()) text += fmt::format("{}\t{}\n", name, value);
  SLUICE_TRY(job.expect_same(text, [](const std::string& first, const std::string& own) {
    const auto manifest = [](std::string_view lines) {
      Manifest out;
      for (size_t tab, end; (tab = lines.find('\t')) != lines.npos; lines.remove_prefix(end + 1)) {
        end = lines.find('\n', tab);
        out.emplace_back(lines.substr(0, tab), lines.substr(tab + 1, end - tab - 1));
      }
      return out;
    };
    const std::vector<std::string> all = differences(manifest(first), manifest(own));
    return fmt::format("{} in process 0", all.empty() ? "settings are left out that there are" : all.front());
  }));
  const Stage& s = session.engine().prepared().stages.main;
  std::string order;
  for (const TaskId task : exchanges(s.plan)) order += s.model.program.task(task).name + " ";
  SLUICE_TRY(job.expect_same(order, [](const auto&, const auto&) {
    return "its plan exchanges gradients in another order than that of process 0";
  }));
  auto sum = session.engine().checksum_of_weights();
  SLUICE_TRY(job.agree(sum.ok() ? Status() : Status(sum.error())));
  return job.expect_same(sum->to_text(), [](const std::string& first, const std::string& own) {
    return fmt::format("its weights have the checksum {}, those of process 0 {}", own, first);
  });
}

// Who has to stop stops all; whether the loss gets no better is for process 0 to say, whose evaluations
// count.
std::optional<TrainingEnd> end_of_all(Job& job, std::optional<TrainingEnd> own) {
  const bool over = job.any(job.speaks() && own == TrainingEnd::NoBetter);
  const bool asked = job.any(own == TrainingEnd::Asked);
  if (over) return TrainingEnd::NoBetter;
  return asked ? std::optional(TrainingEnd::Asked) : std::nullopt;
}

// A process that does not speak: it makes the steps that process 0 makes, and evaluates nothing.
Result<Ending> follow(const Prepared& p, RunData data, Job& job, Requests& asked) {
  data.heldout.reset();
  auto opened = Session::open(p, std::move(data));
  SLUICE_TRY(job.agree(opened.ok() ? Status() : Status(opened.error())));
  Session& session = **opened;
  SLUICE_TRY(check_alike(job, session));
  SLUICE_TRY(job.agree({}));  // process 0 has opened its files
  TrainingOptions options;
  options.stop = [&] { return asked.stop.load(); };
  options.agree = [&](std::optional<TrainingEnd> own) { return end_of_all(job, own); };
  asked.heeded = true;
  const auto end = train(session, silent_observer(), options);
  if (!end.ok() && end.error().detail("of all").empty()) job.abandon(end.error());
  // Launchers end everybody at the first that goes with a status: process 0 does, once it is done.
  SLUICE_TRY(job.agree({}));
  return Ending::Done;
}

Result<Ending> run(const Prepared& p, const RunDirectory& directory, RunData data, TrainingObserver& observer,
                   Job& job, Requests& asked) {
  const std::filesystem::path dir = p.config.run.dir;
  show_text(describe(p));
  for (const auto* notices : {&data.notices, &data.heldout_notices}) {
    for (const std::string& notice : *notices) show_text(notice + "\n");
  }
  std::fflush(stdout);
  SLUICE_TRY(directory.check());
  SLUICE_TRY(save_plan(p));
  const SaveSchedule saves = save_schedule_of(p.config);
  SLUICE_ASSIGN(CheckpointStore store, CheckpointStore::open(checkpoints_in(dir), saves.keep));
  SLUICE_ASSIGN(Saver saver, Saver::open(p, std::move(store), saves, p.config.train.steps, observer));
  show_text(describe(saver.forecast()));
  std::fflush(stdout);
  auto opened = Session::open(p, std::move(data), observer);
  SLUICE_TRY(job.agree(opened.ok() ? Status() : Status(naming_older_one(p.config, opened.error()))));
  const std::unique_ptr<Session> session = std::move(*opened);
  SLUICE_TRY(check_alike(job, *session));
  observer.stop();
  show_text(describe(session->engine().start_up()));
  if (session->evaluates()) show_text(describe_heldout(*session));
  std::fflush(stdout);
  SLUICE_TRY(job.agree(observer.open_metrics(session->steps_done())));
  TrainingOptions options;
  options.saver = &saver;
  saver.before_each([&]() -> Status {
    SLUICE_TRY(observer.draw_losses());
    return observer.flush();
  });
  options.log = [&](const StepEvent& e, const EvaluationEvent* heldout) { return observer.add(e, heldout); };
  options.log_first = [&](const EvaluationEvent& heldout) { return observer.add_first(heldout); };
  options.save = [&] { return asked.save.exchange(false); };
  options.stop = [&] { return asked.stop.load(); };
  if (!job.alone()) options.agree = [&](std::optional<TrainingEnd> own) { return end_of_all(job, own); };
  if (p.stages.find(kSampling))
    options.sample = [&](int64_t) { return observer.sample(*session, asked.stop, /*at_end=*/false); };
  options.sample_every = p.config.sample.every;
  if (p.config.run.trace) {
    options.trace = [&](std::span<const Interval> timeline, std::vector<DeviceActivity> activities) {
      const Stage& s = p.stages.main;
      return write_file(dir / "trace.json", chrome_trace(s.model.program, s.plan, timeline, activities));
    };
  }
  const int64_t steps_before = session->steps_done();
  asked.heeded = true;
  const auto ended = train(*session, observer, options);
  observer.end_line();
  if (!ended.ok()) (void)saver.wait();  // what goes on beside is kept
  SLUICE_ASSIGN(const TrainingEnd end, ended);
  const bool interrupted = end == TrainingEnd::Asked;
  if (interrupted && session->steps_done() == steps_before)
    return steps_before > 0 ? Ending::Interrupted : Ending::Stopped;
  const HeldoutRecord& record = session->engine().heldout();
  if (end == TrainingEnd::NoBetter && session->steps_done() == steps_before) {
    say("nothing left to do: the held-out loss was not below that of step {} in {} evaluations "
        "(eval.patience = {}); for more steps raise it\n",
        record.best_step, record.since, p.config.eval.patience);
    return Ending::NothingLeft;
  }
  if (interrupted) say("interrupted after step {}; the same command goes on\n", session->steps_done());
  if (end == TrainingEnd::NoBetter) {
    say("ended after step {} of {}: the held-out loss was not below that of step {} in {} evaluations "
        "(eval.patience)\n",
        session->steps_done(), p.config.train.steps, record.best_step, record.since);
  }
  std::fflush(stdout);
  if (session->steps_done() > steps_before) SLUICE_TRY(saver.finish(*session));
  SLUICE_TRY(observer.draw_losses());
  if (p.stages.find(kSampling) && !asked.stop)
    SLUICE_TRY(observer.sample(*session, asked.stop, /*at_end=*/true));
  observer.summarize_heldout(record, saver.store().best());
  observer.summarize(p, session->engine().memory());
  return interrupted ? Ending::Interrupted : Ending::Done;
}

struct GoingOn {
  int64_t steps = 0;                 // made; 0: the run begins
  std::vector<std::string> changed;  // what is otherwise than it was, and allowed to be
};

// Whether the run goes on as the one that was saved.
Result<GoingOn> check_checkpoint(const RunConfig& c, const Machine& machine, const ModelSpec& model,
                                 const RunData& data) {
  if (c.checkpoint().empty()) return GoingOn();
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(c.checkpoint()));
  SLUICE_TRY(check_has_state(info, c.checkpoint()));
  SLUICE_ASSIGN(Manifest now, manifest_before_plans(c, machine, model, data.content, info.manifest));
  add_date(now, data.date);
  add_schedule(now, schedule_of(c));
  const Status goes_on = check_goes_on(c, info.manifest, now);
  if (goes_on.ok()) return GoingOn{info.step, differences(info.manifest, now)};
  Error why = goes_on.error();
  if (data.content != data.content_before && value_of(info.manifest, "data.content") == data.content_before)
    why.message += fmt::format(
        "; the files are the same, but Sluice 0.1.0 learnt {} of their documents otherwise (docs/data.md, "
        "What changed)",
        data.findings.learnt_anew);
  return why;
}

// What a run is, as far as that is known before the search for a plan, which may take minutes: what cannot be
// is refused before.
struct Beginning {
  RunConfig config;
  Machine machine;
  std::optional<RunDirectory> directory;  // of the process that writes to it
  std::optional<RunData> data;
  GoingOn going_on;
};

Status read_request(const RunRequest& request, const Job& job, Beginning& b) {
  SLUICE_ASSIGN(b.config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(b.config.allow, parse_allowances(request.allow));
  job.share_cores(b.config);
  SLUICE_ASSIGN(b.machine, resolve_machine(b.config, request.machine));
  if (!b.machine.traits().runs_models) {
    return error("run.backend = {}: a simulated machine cannot train; use sluice simulate",
                 b.machine.backend->name);
  }
  return job.check(b.machine);
}

// One process takes the directory, and all go on with the run that is there.
Status take_directory(const RunRequest& request, Job& job, Observer& observer, Beginning& b) {
  Status taken;
  if (job.speaks()) {
    auto directory = take_run_directory(b.config, request.anew, observer);
    if (directory.ok()) {
      b.directory.emplace(std::move(*directory));
    } else {
      taken = directory.error();
    }
  }
  SLUICE_TRY(job.agree(taken));
  for (std::string* text : {&b.config.run.dir, &b.config.latest, &b.config.run.resume})
    SLUICE_TRY(job.share(*text));
  std::error_code ignored;
  const bool found = b.config.latest.empty() || std::filesystem::exists(b.config.latest, ignored);
  return job.agree(
      found ? Status()
            : Status(error("run.dir = {}: {} is not there; hosts that train together have to share "
                           "the run's directory",
                           b.config.run.dir, b.config.latest)));
}

Status open_run_data(Observer& observer, Beginning& b) {
  RunConfig& config = b.config;
  SLUICE_TRY(check_early(config, b.machine));
  SLUICE_ASSIGN(const ModelSpec model, resolve_trained_model(config));
  SLUICE_TRY(keep_date(config));
  SLUICE_TRY(keep_formats(config));
  SLUICE_TRY(keep_rate(config));
  SLUICE_ASSIGN(b.data, open_data(config, model.vocab, observer));
  SLUICE_TRY(count_steps(config, *b.data));
  SLUICE_ASSIGN(std::string why_rate, choose_rate(config, model));
  if (!why_rate.empty()) config.notices.push_back(std::move(why_rate));
  if (config.sample.prompt == kOpenPrompt) config.sample.prompt = b.data->prompt;
  SLUICE_ASSIGN(b.going_on, check_checkpoint(config, b.machine, model, *b.data));
  return {};
}

Result<Ending> run_training(const RunRequest& request, Requests& asked) {
  SLUICE_ASSIGN(Job job, Job::join("train"));
  Console console;
  Observer& observer = job.speaks() ? console : silent_observer();
  Beginning b;
  SLUICE_TRY(job.agree(read_request(request, job, b)));
  SLUICE_TRY(job.put_on(b.machine));
  SLUICE_TRY(take_directory(request, job, observer, b));
  // What one process measures and keeps, the others of its host find.
  SLUICE_TRY(job.first_here([&] { return open_run_data(observer, b); }));
  console.stop();
  const int64_t steps_done = b.going_on.steps;
  if (steps_done > 0 && steps_done >= b.config.train.steps) {
    if (!job.speaks()) return Ending::NothingLeft;
    SLUICE_ASSIGN(CheckpointStore store, CheckpointStore::open(checkpoints_in(b.config.run.dir)));
    SLUICE_TRY(keep_best_of_newest(store, save_schedule_of(b.config).best));
    say("nothing left to do: {} has made {} of {} steps; for more of them --set train.steps=N --allow steps, "
        "for another run --new\n",
        b.config.checkpoint(), steps_done, b.config.train.steps);
    return Ending::NothingLeft;
  }
  if (job.speaks()) {
    if (steps_done > 0) say("going on from {}\n", b.config.checkpoint());
    for (const std::string& change : b.going_on.changed) say("allowed: {}\n", change);
  }
  std::optional<Prepared> prepared;
  SLUICE_TRY(job.first_here([&]() -> Status {
    const PlanCache cache = plan_cache_of(b.config);
    SLUICE_ASSIGN(RunNeeds needs, needs_of(b.config, true));
    needs.rows = sample_rows(*b.data);
    SLUICE_ASSIGN(prepared, prepare_on(std::move(b.config), std::move(b.machine), std::move(needs),
                                       {nullptr, &cache, &observer}));
    return {};
  }));
  console.stop();
  if (!job.speaks()) return follow(*prepared, std::move(*b.data), job, asked);
  TrainingObserver training(*prepared, *b.directory, b.data->heldout_bytes_per_token);
  auto ending = run(*prepared, *b.directory, std::move(*b.data), training, job, asked);
  if (ending.ok() || !ending.error().detail("of all").empty()) {
    SLUICE_TRY(job.agree({}));  // the others wait for this
  } else if (!job.alone() && ending.error().detail(Job::kSaid).empty()) {
    job.abandon(ending.error());  // the others know nothing of it
  }
  return ending;
}

}  // namespace

Outcome train(const RunRequest& request, Requests& asked) {
  const Result<Ending> ending = run_training(request, asked);
  if (!ending.ok() && ending.error().detail(Job::kSaid) == Job::kElsewhere) return {};
  return outcome(ending);
}

}  // namespace sluice::core
