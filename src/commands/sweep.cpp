// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/hash.h"
#include "base/printable.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/working.h"
#include "config/files/load_config.h"
#include "io/file.h"
#include "io/lock_file.h"
#include "io/set_aside.h"
#include "model/families/families.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/training/trial.h"
#include "setup/card_cap.h"
#include "setup/fields.h"
#include "setup/settle.h"
#include "what_if/grid.h"
#include "what_if/sweep_cells.h"

namespace sluice::core {
namespace {

class SweepRun {
 public:
  SweepRun(const SweepRequest& request, Requests& asked)
      : r_(request), asked_(asked), dir_(request.out_dir), csv_(dir_ / "sweep.csv") {}

  ~SweepRun() {
    if (lock_) lock_->remove();
  }

  Result<Ending> run();

 private:
  Status make_groups();
  std::string inputs_of(const SweepCell& cell, const ModelSpec& model) const;
  Status resume();
  Status run_cells();
  void run_cell(SweepCell& cell);
  void finished(const SweepCell& cell);
  const char* doing() const { return r_.measure ? "measuring cells" : "planning cells"; }
  Status needs();
  Status finish(bool whole);
  void measure_cell(SweepCell& cell);

  const SweepRequest& r_;
  Requests& asked_;
  const std::filesystem::path dir_, csv_;
  Machine machine_;
  std::optional<LockFile> lock_;  // on dir_
  std::vector<SweepGroup> groups_;
  std::set<std::string> notices_;
  std::vector<SweepRow> others_;  // rows of the file that belong to other sweeps
  std::vector<SweepCell*> open_;  // cells without a result
  // While cells run; guarded by mutex_.
  std::mutex mutex_;
  std::optional<Descriptor> file_;
  Status wrote_;
  int64_t done_ = 0;
  std::optional<Working> working_;
};

// Everything that decides a cell's result. The caps are in the configuration; where results go is not an
// input. What the machine at hand was measured to cost differs a little from day to day: there its name
// stands for it.
std::string SweepRun::inputs_of(const SweepCell& cell, const ModelSpec& model) const {
  RunConfig config = cell.config;
  // The devices of a step are part of the machine, but for how devices hand over.
  config.run = {};
  config.run.peer = cell.config.run.peer;
  config.model.config.clear();  // what is in the file is an input
  const Profile& p = machine_.profile;
  Hash hash;
  hash.add(inputs_text(config))
      .add(to_json(model))
      .add(cell.row.mode)
      .add(p.name)
      .add(machine_.backend->name);
  if (!machine_.traits().runs_models) {
    visit_fields(p,
                 [&](const char* name, const auto& value) { hash.add(fmt::format("{} {}", name, value)); });
  }
  if (r_.measure) hash.add(r_.steps);
  return fmt::format("{:016x}", hash.value());
}

Status SweepRun::make_groups() {
  SLUICE_ASSIGN(const AskedCaps asked, parse_caps(r_.device_mem, r_.host_mem));
  SLUICE_ASSIGN(const std::vector<int64_t> lengths, parse_counts("--seq-len", r_.seq_len));
  SLUICE_ASSIGN(const std::vector<std::string> models, parse_words("--model", r_.model));
  SLUICE_TRY(expect_read(r_.settings, "sluice sweep", keys_of_plans()));
  for (const std::string& typed : models) {
    const std::string preset = preset_meant_by(typed), model = preset.empty() ? typed : preset;
    for (const int64_t seq_len : lengths) {
      std::vector<std::string> settings{model_setting(model)};
      if (!r_.devices.empty()) settings.push_back("run.devices=" + r_.devices);
      settings.insert(settings.end(), r_.settings.begin(), r_.settings.end());
      SLUICE_ASSIGN(const RunConfig config,
                    load_config("", settings, demo_config(model, seq_len, r_.tokens_per_step)));
      notices_.insert(config.notices.begin(), config.notices.end());
      SLUICE_ASSIGN(const ModelSpec shapes, resolve_model(config));
      if (groups_.empty()) {
        SLUICE_ASSIGN(machine_, resolve_machine(config, r_.machine));
      }
      if (r_.measure && !machine_.traits().runs_models) {
        return error("--measure --machine {}: only the machine at hand is measured; use --simulate",
                     machine_.profile.name);
      }
      if (r_.measure && !machine_.traits().fast && model != "tiny") {
        return error("--measure --model {}: without a GPU only tiny is measured; use --simulate", model);
      }
      SweepGroup group{asked.host, asked.device, {}};
      for (const int64_t host_cap : asked.host) {
        for (const int64_t device_cap : asked.device) {
          BytesByTier caps = config.caps;
          caps[kDevice] = device_cap;
          caps[kHost] = host_cap;
          RunConfig with_caps = under(config, caps);
          SLUICE_ASSIGN(const Notices checked, check_early(with_caps, machine_, shapes));
          SLUICE_ASSIGN(const CapsOnMachine on_machine, caps_on(with_caps, machine_));
          with_caps = under(std::move(with_caps), on_machine.caps);
          if (!on_machine.notice.empty()) notices_.insert(on_machine.notice);
          notices_.insert(checked.begin(), checked.end());
          SweepCell cell{{.model = model,
                          .machine = machine_.profile.name,
                          .mode = r_.measure ? "measure" : "simulate",
                          .seq_len = seq_len,
                          .tokens_per_step = config.train.tokens_per_step,
                          .caps = with_caps.caps},
                         with_caps};
          cell.row.inputs = inputs_of(cell, shapes);
          group.cells.push_back(std::move(cell));
        }
      }
      groups_.push_back(std::move(group));
    }
  }
  return {};
}

// Takes the results that the file has; what an earlier sweep of other cells left there stays.
Status SweepRun::resume() {
  SLUICE_TRY(make_directories(dir_));
  auto lock = LockFile::take(dir_ / "sweep.lock");
  if (!lock.ok()) return error_at("--out", lock.error());
  lock_ = std::move(*lock);
  if (r_.fresh) SLUICE_TRY(set_aside(csv_));
  std::map<std::string, SweepCell*> cells;
  for (SweepGroup& g : groups_) {
    for (SweepCell& c : g.cells) cells[c.row.inputs] = &c;
  }
  SLUICE_ASSIGN(std::vector<SweepRow> rows, load_sweep(csv_));
  for (SweepRow& row : rows) {
    const auto it = cells.find(row.inputs);
    if (it == cells.end()) {
      others_.push_back(std::move(row));
    } else {
      it->second->row = std::move(row);
    }
  }
  for (SweepGroup& g : groups_) {
    for (SweepCell& c : g.cells) {
      if (c.row.status.empty()) open_.push_back(&c);
    }
  }
  if (!std::filesystem::exists(csv_)) SLUICE_TRY(write_file(csv_, sweep_header()));
  SLUICE_ASSIGN(file_, Descriptor::open(csv_, O_WRONLY | O_APPEND, 0666));
  return {};
}

void SweepRun::measure_cell(SweepCell& cell) {
  const auto begin = std::chrono::steady_clock::now();
  const auto p = prepare_on(cell.config, machine_, false);
  if (!p.ok()) return plan_cell(cell, machine_);  // says why
  SweepRow& r = cell.row;
  r.planning_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto attempt = [&]() -> Status {
    SLUICE_ASSIGN(const std::unique_ptr<Session> session, Session::open(*p));
    const auto quiet = [](const std::string&, double) {};
    SLUICE_ASSIGN(const MeasuredSteps m, measure_steps(*session, r_.steps, false, asked_.stop, quiet));
    // Interrupted before its last step, a cell has no result and is measured again when the sweep goes on.
    if (int64_t(m.ns.size()) < r_.steps) return {};
    Outlook o = outlook_of(*p);
    r.message = fmt::format("simulated {:.3f} ms", o.step_ns / 1e6);
    o.step_ns = m.median_ns();
    const Stage& s = p->stages.main;
    o.speed = speed_of(s.model.program, s.plan, o.step_ns, peak_flops(*p));
    fill(r, o);
    return {};
  };
  if (const Status status = attempt(); !status.ok()) r.status = "error", r.message = status.message();
}

void SweepRun::run_cell(SweepCell& cell) {
  if (r_.measure) {
    measure_cell(cell);
  } else {
    plan_cell(cell, machine_);
  }
  if (!cell.row.status.empty()) finished(cell);
}

// Lines are appended as cells end, so that a killed sweep loses nothing; finish() puts them in order.
void SweepRun::finished(const SweepCell& cell) {
  const std::lock_guard lock(mutex_);
  const SweepRow& r = cell.row;
  const std::string text = sweep_line(r);
  if (wrote_.ok()) wrote_ = file_->write(std::as_bytes(std::span(text)), std::nullopt, csv_);
  ++done_;
  working_->say(
      doing(), done_, int64_t(open_.size()),
      fmt::format("last: {} at {}, device {}, host {}: {}", r.model, r.seq_len, cap_text(r.caps[kDevice]),
                  cap_text(r.caps[kHost]), r.ok() ? fmt::format("{:.0f} tok/s", r.tokens_per_s) : r.status));
}

Status SweepRun::run_cells() {
  working_.emplace(doing());
  working_->say(doing(), 0, int64_t(open_.size()));
  for_each_parallel(int64_t(open_.size()), r_.measure ? 1 : planning_threads(machine_), asked_.stop,
                    [&](int64_t i) { run_cell(*open_[size_t(i)]); });
  working_.reset();
  return wrote_;
}

Status SweepRun::needs() {
  std::mutex mutex;
  Status status;
  int64_t cells = 0;
  for (const SweepGroup& g : groups_) {
    cells += std::count_if(g.cells.begin(), g.cells.end(),
                           [](const auto& c) { return c.row.status == "infeasible"; });
  }
  if (cells == 0 || asked_.stop) return {};
  Working working(fmt::format("finding what {} cells that do not fit need", cells));
  for_each_parallel(int64_t(groups_.size()), planning_threads(machine_), asked_.stop, [&](int64_t i) {
    const Status found = find_needs(groups_[size_t(i)], machine_, asked_.stop);
    const std::lock_guard lock(mutex);
    if (!found.ok() && !asked_.stop) status = found;
  });
  return status;
}

Status SweepRun::finish(bool whole) {
  std::vector<SweepRow> rows = others_;
  int64_t slower = 0, taken = 0, count = 0, refused = 0, failed = 0;
  for (SweepGroup& g : groups_) {
    std::vector<SweepRow> mine;
    for (const SweepCell& c : g.cells) mine.push_back(c.row);
    taken += take_faster_plans(mine);
    slower += mark_slower(mine);
    for (size_t i = 0; i < mine.size(); ++i) g.cells[i].row = mine[i];
    std::erase_if(mine, [](const SweepRow& r) { return r.status.empty(); });
    for (const SweepRow& r : mine) {
      ++count;
      refused += r.status == "infeasible";
      failed += r.status == "error";
    }
    rows.insert(rows.end(), mine.begin(), mine.end());
  }
  sort_sweep(rows);
  std::string text = sweep_header();
  for (const SweepRow& r : rows) text += sweep_line(r);
  SLUICE_TRY(write_file(csv_, text));
  say("{} cells: {} run, {} do not fit, {} failed\n", count, count - refused - failed, refused, failed);
  say("more memory is never slower: {}\n",
      slower == 0 ? "holds" : fmt::format("broken in {} cells, see slower_than", slower));
  if (taken > 0) say("{} cells take a plan for less memory, see message\n", taken);
  if (!whole) {
    say("interrupted; the same command goes on from {}\n", csv_.string());
    return {};
  }
  size_t pictures = 0;
  for (const SweepGroup& g : groups_) {
    SLUICE_ASSIGN(const auto paths, write_heatmaps(g, dir_));
    pictures += paths.size();
  }
  say("saved: {} and {} heatmaps beside it\n", csv_.string(), pictures);
  return {};
}

Result<Ending> SweepRun::run() {
  SLUICE_TRY(make_groups());
  SLUICE_TRY(resume());
  int64_t all = 0;
  for (const SweepGroup& g : groups_) all += int64_t(g.cells.size());
  say("machine  {}\n{} cells, {} of them known\n", machine_.description, all, all - int64_t(open_.size()));
  for (const std::string& notice : notices_) say("note     {}\n", printable_message(notice));
  std::fflush(stdout);
  asked_.stop_is_handled = true;
  SLUICE_TRY(run_cells());
  if (!asked_.stop) SLUICE_TRY(needs());
  const bool whole = !asked_.stop;
  SLUICE_TRY(finish(whole));
  return whole ? Ending::Done : Ending::Interrupted;
}

}  // namespace

Outcome sweep(const SweepRequest& request, Requests& asked) {
  return outcome(SweepRun(request, asked).run());
}

}  // namespace sluice::core
