// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/counts.h"
#include "base/printable.h"
#include "commands/commands.h"
#include "commands/console.h"
#include "commands/job.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "commands/training_observer.h"
#include "config/files/load_config.h"
#include "describe/describe.h"
#include "io/file.h"
#include "run/directory/save_plan.h"
#include "run/directory/start.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/prepare/manifest.h"
#include "run/training/save_words.h"
#include "run/training/training.h"
#include "setup/learning_rate.h"
#include "setup/settle.h"
#include "trace/trace.h"

namespace sluice::core {
namespace {

// Describes the held-out text, its evaluated part, and the cost of that.
std::string describe_heldout(const Session& session) {
  const RowsCount rows = session.heldout_rows();
  const EvaluationInterval often = session.evaluations();
  const sluice::Schedule& schedule = session.schedule();
  const int64_t all = session.data().heldout->epoch_rows();
  std::string out = fmt::format(
      "held-out loss: of {} of the {} held out, {} that are learnt, measured{}{}{} at the end; that takes "
      "about {:.2g} % of the run\n",
      rows.rows == all ? "all" : fmt::format("{}", fmt::group_digits(rows.rows)), counted(all, "row"),
      counted(rows.targets, "token"), schedule.evaluate_first ? " at the beginning," : "",
      often.every == 1  ? " after every step"
      : often.every > 0 ? fmt::format(" every {} steps", often.every)
                        : "",
      schedule.evaluate_first || often.every > 0 ? " and" : "", 100 * often.share);
  if (schedule.evaluate_first && often.share > kEvaluationShare) {
    out += fmt::format(
        "evaluations take more than {:.0f} % of the run, as at least {} are made on the way; a smaller "
        "eval.rows makes each cheaper, and a given eval.every makes fewer\n",
        100 * kEvaluationShare, kFewestEvaluations);
  }
  return out;
}

// An error, on all processes, where one has other settings than process 0.
Status expect_same_settings(Job& job, const Manifest& own) {
  std::string text;
  for (const auto& [name, value] : own) text += fmt::format("{}\t{}\n", name, value);
  return job.expect_same(text, [](const std::string& first, const std::string& here) {
    const auto manifest = [](std::string_view lines) {
      Manifest out;
      for (size_t tab, end; (tab = lines.find('\t')) != lines.npos; lines.remove_prefix(end + 1)) {
        end = lines.find('\n', tab);
        out.emplace_back(lines.substr(0, tab), lines.substr(tab + 1, end - tab - 1));
      }
      return out;
    };
    const std::vector<std::string> all = differences(manifest(first), manifest(here));
    return fmt::format("{} in process 0", all.empty() ? "settings are left out that there are" : all.front());
  });
}

// An error where processes would not train one model on one step: their configurations, programs and weights
// are compared. Caps and plans may differ.
Status check_alike(Job& job, Session& session) {
  if (job.alone()) return {};
  SLUICE_TRY(expect_same_settings(job, session.manifest()));
  const Stage& s = session.engine().stages().main;
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

// Process 0 may have saved what others have.
void meet(Job& job, Session& session) {
  if (const Status met = session.engine().meet(); !met.ok()) job.abandon(met.error());
}

// Who has to stop stops all; whether the loss gets no better is for process 0 to say, whose evaluations
// count.
std::optional<TrainingEnd> end_of_all(Job& job, Session& session, std::optional<TrainingEnd> own) {
  meet(job, session);
  // Nobody wants it done before the steps are.
  const std::vector<uint8_t> all = job.gather(uint8_t(own.value_or(TrainingEnd::Done)));
  job.at(fmt::format("step {}", session.steps_done() + 1));
  const auto wants = [](uint8_t of, TrainingEnd end) { return of == uint8_t(end); };
  if (wants(all.front(), TrainingEnd::NoBetter)) return TrainingEnd::NoBetter;
  const bool asked = std::ranges::any_of(all, [&](uint8_t of) { return wants(of, TrainingEnd::Asked); });
  return asked ? std::optional(TrainingEnd::Asked) : std::nullopt;
}

// A process that does not speak: it makes the steps that process 0 makes, and evaluates nothing.
Result<Ending> follow(const Prepared& p, RunData data, Job& job, Requests& asked) {
  data.heldout.reset();
  auto opened = Session::open(p, std::move(data));
  SLUICE_TRY(job.agree(opened.ok() ? Status() : Status(opened.error())));
  Session& session = **opened;
  SLUICE_TRY(check_alike(job, session));
  job.drop_copies();
  SLUICE_TRY(job.agree({}));  // process 0 has opened its files
  TrainingOptions options;
  options.stop = [&] { return asked.stop.load(); };
  options.agree = [&](std::optional<TrainingEnd> own) { return end_of_all(job, session, own); };
  Replanner replanner(session.engine(), silent_observer(), p.config.run.replan == "auto");
  options.replanner = &replanner;
  options.replan = [&] { return asked.replan.exchange(false); };
  asked.stop_is_handled = true;
  const auto end = train(session, silent_observer(), options);
  if (!end.ok() && end.error().detail("of all").empty()) job.abandon(end.error());
  meet(job, session);
  // Launchers end everybody at the first that goes with a status: process 0 does, once it is done.
  SLUICE_TRY(job.agree({}));
  return Ending::Done;
}

// `session` stays open after the last save.
Result<Ending> run(const Prepared& p, const RunDirectory& directory, RunData data, TrainingObserver& observer,
                   Job& job, Requests& asked, std::unique_ptr<Session>& session) {
  const std::filesystem::path dir = p.config.run.dir;
  show_text(describe(p));
  for (const auto* notices : {&data.notices, &data.heldout_notices}) {
    for (const std::string& notice : *notices) show_text("warning: " + printable_message(notice) + "\n");
  }
  std::fflush(stdout);
  SLUICE_TRY(directory.check());
  SLUICE_TRY(save_plan(p, p.config));
  const SaveSchedule saves = save_schedule_of(p.config);
  SLUICE_ASSIGN(CheckpointStore store, CheckpointStore::open(checkpoints_in(dir), saves.keep));
  SLUICE_ASSIGN(Saver saver, Saver::open(p, std::move(store), saves, p.config.train.steps, observer));
  show_text(describe(saver.forecast()));
  std::fflush(stdout);
  auto opened = Session::open(p, std::move(data), observer);
  SLUICE_TRY(job.agree(opened.ok() ? Status() : Status(naming_older_one(p.config.run.dir, opened.error()))));
  session = std::move(*opened);
  SLUICE_TRY(check_alike(job, *session));
  observer.stop();
  show_text(describe(session->engine().start_up()));
  if (session->evaluates()) show_text(describe_heldout(*session));
  std::fflush(stdout);
  SLUICE_TRY(job.agree(observer.open_metrics(session->steps_done())));
  TrainingOptions options;
  options.saver = &saver;
  saver.before_each([&]() -> Status {
    SLUICE_TRY(directory.check());
    observer.flush();
    return {};
  });
  options.log = [&](const StepEvent& e, const EvaluationEvent* heldout) { return observer.add(e, heldout); };
  options.log_first = [&](const EvaluationEvent& heldout) { return observer.add_first(heldout); };
  options.save = [&] { return asked.save.exchange(false); };
  Replanner replanner(session->engine(), observer, p.config.run.replan == "auto");
  options.replanner = &replanner;
  options.replan = [&] { return asked.replan.exchange(false); };
  options.stop = [&] { return asked.stop.load(); };
  if (!job.alone())
    options.agree = [&](std::optional<TrainingEnd> own) { return end_of_all(job, *session, own); };
  // Runs that sample what they learn from have the program for it, too.
  const bool samples = p.stages.find(kSampling) != nullptr && p.config.sample.tokens > 0;
  if (samples)
    options.sample = [&](int64_t) { return observer.sample(*session, asked.stop, /*at_end=*/false); };
  options.sample_every = p.config.sample.every;
  if (p.config.run.trace) {
    options.trace = [&](std::span<const Interval> timeline, std::vector<DeviceActivity> activities) {
      const Stage& s = session->engine().stages().main;
      observer.report(
          write_file(dir / "trace.json", chrome_trace(s.model.program, s.plan, timeline, activities)));
      return Status();
    };
  }
  const int64_t steps_before = session->steps_done();
  asked.stop_is_handled = true;
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
  SLUICE_TRY(observer.draw());
  if (samples && !asked.stop) SLUICE_TRY(observer.sample(*session, asked.stop, /*at_end=*/true));
  observer.summarize_heldout(record, saver.best());
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
  add_reference(now, value_of(info.manifest, kReferenceName));
  const Status goes_on = check_goes_on(c, info.manifest, now);
  if (goes_on.ok()) return GoingOn{info.step, changes(info.manifest, now)};
  Error why = goes_on.error();
  const std::string saved = value_of(info.manifest, "data.content");
  const auto& before = data.contents_before;
  if (!before.empty() && saved == before.front()) {
    why.message += fmt::format(
        "; the files are the same, but Sluice 0.1.0 learnt {} of their documents otherwise (docs/data.md, "
        "What changed)",
        std::max({data.findings.learnt_anew, data.findings.learnt_later, data.findings.renewed}));
  } else if (std::find(before.begin(), before.end(), saved) != before.end()) {
    why.message += fmt::format(
        "; the files are the same, but an earlier Sluice learnt {} of their documents otherwise "
        "(docs/data.md, "
        "What changed)",
        std::max(data.findings.learnt_later, data.findings.renewed));
  }
  return why;
}

// The facts of a run before the search for a plan, which may take minutes: impossible runs are refused
// before.
struct Beginning {
  RunConfig config;
  Machine machine;
  std::optional<RunDirectory> directory;  // of the process that writes to it
  std::optional<RunData> data;
  GoingOn going_on;
  std::optional<StepShape> shape;  // of another process
};

Status read_request(const RunRequest& request, const Job& job, Beginning& b) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  SLUICE_ASSIGN(std::vector<std::string> allow, parse_allowances(request.allow));
  b.config = started(std::move(config), {.threads = job.threads(), .allow = std::move(allow)});
  SLUICE_ASSIGN(b.machine, resolve_machine(b.config, request.machine, job.place_here()));
  SLUICE_TRY(job.check(b.machine));
  if (!b.machine.traits().runs_models) {
    return error("run.backend = {}: a simulated machine cannot train; use sluice simulate",
                 b.machine.backend->name);
  }
  if (job.here() > 1 && !b.machine.traits().shares_cores && b.machine.devices() > 1) {
    return error(
        "run.devices = {}: {} processes of this host take a GPU each, from run.device on; allowed is 1",
        to_text(b.config.run.devices), job.here());
  }
  return {};
}

// By these processes decide, before they compare all settings, what they tell one another.
Status check_alike_to_begin(Job& job, const Beginning& b) {
  return expect_same_settings(job, {{"run.backend", std::string(b.machine.backend->name)},
                                    {"run.shard_state", b.config.run.shard_state ? "true" : "false"}});
}

// One process takes the directory, and all go on with the run that is there.
Status take_directory(const RunRequest& request, Job& job, Observer& observer, Beginning& b) {
  Status done;
  StartFacts start;
  if (job.speaks()) {
    auto taken = take_run_directory(b.config, request.anew, observer);
    if (taken.ok()) {
      b.directory.emplace(std::move(taken->directory));
      start = std::move(taken->start);
    } else {
      done = taken.error();
    }
  }
  SLUICE_TRY(job.agree(done));
  if (!start.beginning) start.beginning = b.config.run.resume;
  for (std::string* text : {&start.directory, &start.latest, &*start.beginning}) SLUICE_TRY(job.share(*text));
  // Process 0 alone writes there: other hosts need not share it.
  SLUICE_TRY(job.bring(start.latest.empty() ? *start.beginning : start.latest, b.config.data.cache));
  if (b.config.run.shard_state) {
    SLUICE_ASSIGN(start.all_see_dir, job.all_see(start.directory));
  }
  b.config = started(std::move(b.config), std::move(start));
  return {};
}

Status open_run_data(Observer& observer, Beginning& b) {
  RunConfig& config = b.config;
  SLUICE_ASSIGN(const ModelSpec model, resolve_trained_model(config));
  SLUICE_ASSIGN(Notices checked, check_early(config, b.machine, model));
  SLUICE_ASSIGN(std::string date, date_of(config));
  config = started(std::move(config), {.date = std::move(date)});
  SLUICE_ASSIGN(RunFacts facts, facts_of(config));
  SLUICE_ASSIGN(b.data, open_data(config, model.vocab, observer));
  if (!b.data->unlearnt.empty()) return error("{}", b.data->unlearnt);
  facts.notices = std::move(checked);
  facts.data = RunFacts::Data{b.data->train->epoch_rows(), b.data->prompt};
  SLUICE_ASSIGN(config, settled(std::move(config), b.machine, model, std::move(facts)));
  for (std::string& notice : step_notices(config, config.train.steps, *b.data))
    b.data->notices.push_back(std::move(notice));
  SLUICE_ASSIGN(b.going_on, check_checkpoint(config, b.machine, model, *b.data));
  return {};
}

Result<Ending> run_training(const RunRequest& request, Requests& asked) {
  SLUICE_ASSIGN(Job job, Job::join("train"));
  Console console;
  Observer& observer = job.speaks() ? console : silent_observer();
  Beginning b;
  SLUICE_TRY(job.agree(read_request(request, job, b)));
  SLUICE_TRY(check_alike_to_begin(job, b));
  SLUICE_TRY(job.watch(b.machine, b.config.run.lost_after));
  job.at("measuring the network");
  SLUICE_TRY(job.put_on(b.machine));
  job.at("reading its data");
  SLUICE_TRY(take_directory(request, job, observer, b));
  // One process of a host measures and keeps costs; the others find them.
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
    if (b.config.checkpoint().empty() && !request.allow.empty())
      say(stderr, "warning: --allow {}: the run begins here, and nothing was otherwise before\n",
          request.allow);
    if (steps_done > 0) say("going on from {}\n", b.config.checkpoint());
    for (const std::string& change : b.going_on.changed) say("allowed: {}\n", change);
  }
  job.at("measuring and planning");
  std::optional<Prepared> prepared;
  const auto plan = [&]() -> Status {
    const PlanCache cache = plan_cache_of(b.config);
    SLUICE_ASSIGN(StepSpec step, step_of(b.config, true));
    const PrepareOptions options{.cache = &cache,
                                 .observer = &observer,
                                 .rows = sample_rows(*b.data),
                                 .longest_document = b.data->train_documents.longest,
                                 .shape = b.shape};
    SLUICE_ASSIGN(prepared, prepare_on(std::move(b.config), std::move(b.machine), std::move(step), options));
    return {};
  };
  // Where no shape is given, all take that which process 0 has chosen for its machine.
  const auto share = [&]() -> Status {
    StepShape shape = job.speaks() ? prepared->shape : StepShape();
    SLUICE_TRY(job.share(shape));
    if (!job.speaks()) b.shape = shape;
    return {};
  };
  SLUICE_TRY(job.first_here(plan, share));
  console.stop();
  job.at("the beginning of training");
  if (!job.speaks()) return follow(*prepared, std::move(*b.data), job, asked);
  TrainingObserver training(*prepared, *b.directory, b.data->heldout_bytes_per_token);
  std::unique_ptr<Session> session;
  auto ending = run(*prepared, *b.directory, std::move(*b.data), training, job, asked, session);
  if (ending.ok() || !ending.error().detail("of all").empty()) {
    meet(job, *session);
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
