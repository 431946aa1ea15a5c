// SPDX-License-Identifier: Apache-2.0
#include "commands/training_observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/counts.h"
#include "base/stopwatch.h"
#include "commands/router_page.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "draw/axis.h"
#include "io/file.h"
#include "io/set_aside.h"
#include "run/directory/history.h"
#include "run/training/save_words.h"
#include "setup/speed.h"

namespace sluice::core {
namespace {

double unix_seconds() {
  using namespace std::chrono;
  return double(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1e3;
}

}  // namespace

TrainingObserver::TrainingObserver(const Prepared& p, const RunDirectory& directory, double bytes_per_token)
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

double TrainingObserver::step_s() const {
  const double all = std::accumulate(step_s_.begin(), step_s_.end(), 0.0);
  return step_s_.empty() ? predicted_step_s_ : all / double(step_s_.size());
}

double TrainingObserver::bits_per_byte(double loss) const {
  return loss / std::log(2.0) / bytes_per_token_;
}

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
  router_ = std::move(history.router);
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
  // How far from equal experts' loads are, in the worst layer.
  const std::string load =
      e.router ? fmt::format("  load ±{:.0f} %", 100 * e.router->worst_variation) : std::string();
  std::string compared;
  for (const sluice::NamedValue& v : e.values) {
    if (v.name == "reward") compared += fmt::format("  reward {:.3f}", v.value);
    if (v.name == "rewards/margins") compared += fmt::format("  margin {:.3f}", v.value);
    if (v.name == "rewards/accuracies") compared += fmt::format("  right {:.0f} %", 100 * v.value);
  }
  return fmt::format(
      "step {}/{}  loss {:.4f}{}  norm {:.2f}{}  {:.0f} tok/s  {:.3g} s, predicted {:.3g}{}  ETA {}  "
      "device {}/{}  host {}/{}",
      e.step, c_.train.steps, e.loss, compared, e.gradient_norm, load, double(e.tokens) / s, e.seconds,
      e.predicted_seconds, e.differs.empty() ? "" : " (" + e.differs + ")",
      format_duration(double(c_.train.steps - e.step) * s), format_bytes(e.memory.device_bytes),
      format_bytes(c_.caps[kDevice]), format_bytes(e.memory.host_bytes), format_bytes(c_.caps[kHost]));
}

void TrainingObserver::warned(const std::string& message) {
  steps_line_.end();
  Console::warned(message);
}

void TrainingObserver::stepped(const StepEvent& e) {
  step_s_.push_back(e.seconds);
  if (std::isfinite(e.loss)) training_.points.push_back({double(e.step), e.loss});
  if (e.router) {
    for (const RouterNumber& number : kRouterNumbers) {
      if (number.over_steps == nullptr) continue;
      (router_.*number.over_steps).points.push_back({double(e.step), (*e.router).*number.of_step});
    }
    last_router_ = {e.step, *e.router};
  }
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
  std::string means =
      fmt::format("perplexity {}{}, {:.1f} % right",
                  perplexity < 1000 ? fmt::format("{:.4g}", perplexity) : grouped(perplexity, 0), per_byte,
                  100 * e.accuracy);
  if (!e.values.empty()) {
    means.clear();
    for (const sluice::NamedValue& v : e.values)
      means += fmt::format("{}{} {:.4g}", means.empty() ? "" : ", ", v.name, v.value);
  }
  say("held-out loss {:.4f} ({}) {}{}\n", e.loss, means,
      e.step == 0 ? "before the first step" : "after " + counted(e.step, "step"), rise);
  for (const EvaluationEvent::Path& path : e.paths) say("  {:.4f} of {}\n", path.loss, path.name);
  evaluated_ = e;
}

void TrainingObserver::saved(const SaveEvent& e) {
  steps_line_.end();
  say("{}", describe(e));
  (void)draw();  // where the directory is gone the next step says so
}

void TrainingObserver::adopted(const AdoptionEvent& e) {
  steps_line_.end();
  const std::string words = fmt::format(
      "another plan after step {}: {}; a step is predicted to take {:.4g} s instead of {:.4g} s; {} moved in "
      "{:.3g} s (predicted {:.3g} s)\n",
      e.step, e.why, e.after_seconds, e.before_seconds, format_bytes(e.moved_bytes), e.seconds,
      e.predicted_seconds);
  say("{}", words);
  const std::filesystem::path text = dir_ / "plan.txt";
  const auto before = read_file(text);
  report(before.ok() ? write_file(text, *before + words) : Status(before.error()));
  adopted_ = e;
  now_ = {e.after_seconds, std::max<size_t>(1, step_s_.size()), e.step};
}

void TrainingObserver::report(const Status& written) {
  if (written.ok() || !unwritten_.insert(written.message()).second) return;
  warned(written.message() + "; the run goes on, and this is tried again");
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
                                 {"planned_ms", e.planned_seconds * 1e3},
                                 {"differs", e.differs},
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
                  {"step/planned_ms", e.planned_seconds * 1e3},
                  {"memory/device_bytes", double(e.memory.device_bytes)},
                  {"memory/host_bytes", double(e.memory.host_bytes)}};
  for (const sluice::NamedValue& v : e.values) {
    line[v.name] = v.value;
    scalars.emplace_back(v.name, v.value);
  }
  if (e.router) {
    for (const RouterNumber& number : kRouterNumbers) {
      const double value = (*e.router).*number.of_step;
      line["router"][number.key] = value;
      scalars.emplace_back(std::string("router/") + number.key, value);
    }
    line["router"]["worst_layer"] = e.router->worst_layer;
  }
  if (peak_flops_ > 0) {
    line["mfu"] = model_flops_ / e.seconds / peak_flops_;
    scalars.emplace_back("mfu", model_flops_ / e.seconds / peak_flops_);
  }
  if (adopted_) {
    const AdoptionEvent& a = *adopted_;
    line["adopted"] = {{"after_step", a.step},
                       {"why", a.why},
                       {"before_ms", a.before_seconds * 1e3},
                       {"after_ms", a.after_seconds * 1e3},
                       {"moved_bytes", a.moved_bytes},
                       {"moving_ms", a.seconds * 1e3},
                       {"predicted_moving_ms", a.predicted_seconds * 1e3}};
    scalars.emplace_back("plan/before_ms", a.before_seconds * 1e3);
    scalars.emplace_back("plan/after_ms", a.after_seconds * 1e3);
    scalars.emplace_back("plan/moved_bytes", double(a.moved_bytes));
    scalars.emplace_back("plan/moving_ms", a.seconds * 1e3);
    adopted_.reset();
  }
  if (heldout != nullptr) SLUICE_TRY(add_heldout(*heldout, line, scalars));
  report(add_scalars(now, e.step, scalars));
  report(metrics_->append(line));
  return {};
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
  report(add_scalars(now, heldout.step, scalars));
  report(metrics_->append(line));
  flush();
  return {};
}

Status TrainingObserver::add_heldout(const EvaluationEvent& e, nlohmann::ordered_json& line,
                                     Scalars& scalars) {
  const auto add = [&](const char* key, const std::string& tag, double value) {
    line[key] = value;
    scalars.emplace_back(tag, value);
  };
  add("heldout_loss", "loss/heldout", e.loss);
  if (e.values.empty()) scalars.emplace_back("heldout/perplexity", std::exp(e.loss));
  for (const sluice::NamedValue& v : e.values)
    add(("heldout_" + v.name).c_str(), "heldout/" + v.name, v.value);
  if (bytes_per_token_ > 0) add("heldout_bits_per_byte", "heldout/bits_per_byte", bits_per_byte(e.loss));
  add("heldout_accuracy", "heldout/accuracy", e.accuracy);
  if (e.standard_error) add("heldout_standard_error", "heldout/standard_error", *e.standard_error);
  line["heldout_rows"] = e.rows;
  line["heldout_tokens"] = e.targets;
  for (const EvaluationEvent::Path& path : e.paths) {
    line["heldout_paths"][path.name] = path.loss;
    scalars.emplace_back("heldout/of/" + path.name, path.loss);
  }
  return draw();
}

Status TrainingObserver::add_scalars(double now, int64_t step, const Scalars& scalars) {
  const std::vector<std::pair<std::string_view, double>> views(scalars.begin(), scalars.end());
  return events_->add(now, step, views);
}

Status TrainingObserver::sample(Session& session, const std::atomic<bool>& asked, bool at_end) {
  const auto& s = c_.sample;
  // Steps of this start, and those that are left; earlier ones are unknown.
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
  report(events_->add(now, session.steps_done(), "samples", texts));
  report(samples_->append(
      {{"step", session.steps_done()}, {"time", now}, {"prompt", s.prompt}, {"texts", std::move(texts)}}));
  return {};
}

Status TrainingObserver::draw() {
  SLUICE_TRY(directory_.check());
  std::vector<PlotMark> best;
  if (const auto point = lowest(heldout_); point && heldout_.points.size() > 1)
    best.push_back({*point, fmt::format("lowest held out: {:.4f} at step {:.0f}", point->y, point->x)});
  const bool compares = c_.chosen_objective().compares != Compares::Nothing;
  report(write_file(dir_ / "loss.svg",
                    render({.title = "Loss",
                            .subtitle = fmt::format("{}, {} tokens per step", dir_.filename().string(),
                                                    grouped(double(c_.train.tokens_per_step), 0)),
                            .x_label = "step",
                            .y_label = compares ? c_.train.objective : "nats per token",
                            .series = {training_, heldout_},
                            .marks = std::move(best)})));
  if (!last_router_) return {};
  const auto& [step, load] = *last_router_;
  report(
      write_file(dir_ / "routers.html", to_html(router_page(dir_.filename().string(), router_, step, load))));
  return {};
}

void TrainingObserver::summarize_heldout(const HeldoutRecord& record, const KeptBest& kept) const {
  if (record.best_step < 0) return;
  std::string now;
  if (evaluated_ && evaluated_->step > record.best_step) {
    now = fmt::format("; after step {} it is {:.4f}", evaluated_->step, evaluated_->loss);
    if (evaluated_->rise_error)
      now += fmt::format(" (standard error of the rise {:.2g})", *evaluated_->rise_error);
  }
  say("held-out loss was lowest after step {}: {:.4f}{}\n", record.best_step, record.best_loss, now);
  if (c_.run.keep_best == false) return;
  std::string best = kept.step ? (dir_ / "checkpoints" / "best").string() : "none is kept";
  if (record.best_step == 0) {
    best = "the one that the run began with";
  } else if (kept.step != record.best_step) {
    if (kept.step) best += fmt::format(", of step {}", *kept.step);
    if (kept.step && std::isfinite(kept.loss)) best += fmt::format(": {:.4f}", kept.loss);
    const bool known = kept.missed_step == record.best_step && kept.missed_share > Saver::kMostShare;
    best += fmt::format(
        "; keeping that of step {} would have taken {} of the run, where run.keep_best = auto allows {:.0f} "
        "% "
        "(on keeps every one)",
        record.best_step, known ? fmt::format("{:.2g} %", 100 * kept.missed_share) : "more",
        100 * Saver::kMostShare);
  }
  say("best model: {}\n", best);
}

void TrainingObserver::summarize(const Prepared& p, const MemoryReport& memory) {
  if (const Status last = metrics_->flush(); !last.ok())
    warned(last.message() + "; what it was to hold of the last steps is lost");
  say("peak memory: device {} of {}, host {} of {}\n", format_bytes(fullest_device(memory.peak_bytes)),
      format_bytes(c_.caps[kDevice]), format_bytes(memory.peak_bytes[kHost]), format_bytes(c_.caps[kHost]));
  if (skipped_ > 0) say("steps without an update: {} of {}\n", skipped_, step_s_.size());
  if (step_s_.size() > now_.before + 1) {
    std::vector<double> s(step_s_.begin() + std::ptrdiff_t(now_.before), step_s_.end());
    std::sort(s.begin(), s.end());
    const double median = s[s.size() / 2], predicted = now_.step_s;
    say("step time: median {:.1f} ms, predicted {:.1f} ms ({:+.1f} %); {:.0f} tok/s{}\n", median * 1e3,
        predicted * 1e3, 100 * (predicted / median - 1), double(p.shape.tokens_of_all()) / median,
        now_.since > 0 ? fmt::format("; by the plan since step {}", now_.since) : "");
  }
  say("run directory: {}\n", dir_.string());
}

}  // namespace sluice::core
