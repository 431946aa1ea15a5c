// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/loaded.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/parallel.h"
#include "exec/host_parts.h"
#include "exec/migrate.h"
#include "host/host_memory.h"
#include "run/loaded/caps.h"
#include "search/migrate.h"
#include "search/refusal.h"

namespace sluice::core {

Result<Loaded> Loaded::reserve(std::unique_ptr<Backend> backend, const Stages& stages,
                               const BytesByTier& caps, Observer& observer) {
  Loaded out(std::move(backend), stages, caps);
  const BytesByTier bytes = stages.arena_bytes();
  observer.progress({"taking memory", 0, sum(bytes), sluice::Progress::Unit::Bytes});
  out.backend_->set_host_parts(host_parts(stages.main.plan));
  SLUICE_ASSIGN(out.arenas_, out.backend_->reserve(bytes));
  out.arena_bytes_ = bytes;
  return out;
}

Status Loaded::prepare() {
  const std::vector<SharedOp> ops = all_ops(*stages_);
  SLUICE_TRY(backend_->prepare(ops));
  for (const Op& op : ops) prepared_.insert(to_text(op));
  make_executors();
  return {};
}

bool Loaded::is_prepared(const Program& program) const {
  return std::ranges::all_of(program.tasks(),
                             [&](const Task& task) { return prepared_.contains(to_text(task.op)); });
}

void Loaded::make_executors() {
  const auto executor = [&](const Stage& stage) {
    auto made = std::make_unique<Executor>(stage.model.program, stage.plan, *backend_, arenas_);
    if (annotated_) made->annotate();
    return made;
  };
  main_ = executor(stages_->main);
  beside_.clear();
  for (const Stage& stage : stages_->beside)
    beside_.push_back(is_prepared(stage.model.program) ? executor(stage) : nullptr);
}

Status Loaded::settle() {
  // An empty step.
  SLUICE_TRY(backend_->begin(0, false));
  if (const auto fault = backend_->finish(nullptr)) return fault->error;
  return {};
}

Executor& Loaded::at(std::string_view name) const {
  return *beside_[size_t(&stages_->at(name) - stages_->beside.data())];
}

bool Loaded::runs(std::string_view name) const {
  const Stage* const stage = stages_->find(name);
  return stage != nullptr && beside_[size_t(stage - stages_->beside.data())] != nullptr;
}

Status Loaded::check_alike(const Stages& next) const {
  const auto same = [](const Stage& a, const Stage& b) {
    return a.model.program.hash() == b.model.program.hash();
  };
  if (!same(next.main, stages_->main))
    return error(
        "the plan is of another step: model, formats, optimizer, losses and shape have to be the same");
  if (next.main.plan.lanes != backend_->lanes())
    return error("the plan is for {} devices, or for others: {} run the steps", next.main.plan.devices(),
                 backend_->lanes().devices());
  if (next.main.plan.lanes.reads())
    return error("the base is read from its files: the plan of such a run stays");
  // All processes exchange in one order.
  if (exchanges(next.main.plan) != exchanges(stages_->main.plan))
    return error("the plan exchanges gradients in another order than the one that it would replace");
  for (const Stage& stage : stages_->beside) {
    const Stage* const other = next.find(stage.name);
    if (stage.optional && other == nullptr) continue;
    if (other == nullptr || !same(*other, stage))
      return error("the plan has no program \"{}\", or another one, as runs between steps", stage.name);
  }
  for (const Stage& stage : next.beside) {
    if (!stage.optional && !is_prepared(stage.model.program))
      return error("the plan has a program \"{}\", which was not there when memory was taken", stage.name);
  }
  return {};
}

Status Loaded::prove(const Stages& next) const {
  const auto proved = [&](const Stage& stage) {
    std::vector<int64_t> workspaces;
    for (const Task& task : stage.model.program.tasks())
      workspaces.push_back(backend_->workspace_bytes(task.op));
    return verify(stage.model.program, stage.plan, workspaces);
  };
  SLUICE_TRY(proved(next.main));
  for (const Stage& stage : next.beside) {
    SLUICE_TRY(proved(stage));
    SLUICE_TRY(verify_beside(next, stage, [](const Stage& s) -> const Plan& { return s.plan; }));
  }
  return {};
}

Status Loaded::check_room(const Stages& next, const BytesByTier& bytes, const Profile& profile) {
  // Each action takes this for its command, operands and words.
  constexpr int64_t kActionBytes = 512;
  const auto actions = int64_t(next.main.plan.actions.size());
  const BytesByTier held = memory().bytes;
  for (const Tier tier : backend_->lanes().tiers()) {
    const int64_t more = bytes[tier] - arena_bytes_[tier];
    int64_t then = std::max(more > 0 ? bytes[tier] + profile.held_beside(tier, bytes[tier], actions) : 0,
                            held[tier] + more);
    if (tier == kHost)
      then += kActionBytes * std::max<int64_t>(0, actions - int64_t(stages_->main.plan.actions.size()));
    if (then <= caps_[tier]) continue;
    const std::string_view key = name_of(tier.is_device() ? kDevice : tier);
    return does_not_fit(
        key, caps_[tier], then,
        fmt::format("memory.{} = {}: the plan's arena of {} would have the process hold {}, {} "
                    "too much",
                    key, format_bytes(caps_[tier]), format_bytes(bytes[tier]), format_bytes(then),
                    exact_bytes(then - caps_[tier])));
  }
  return {};
}

Result<Migration> Loaded::migration_to(const Stages& next, const BytesByTier& bytes,
                                       const Profile& profile) const {
  const Program& program = stages_->main.model.program;
  // A thread copies so much within the host, about, and all of them no more than that; a change that copies
  // enough tells.
  constexpr double kOfAThread = 3e9, kOfAll = 4e10;
  MigrationOptions options;
  options.host_bytes_per_s =
      host_bytes_per_s_ > 0 ? host_bytes_per_s_ : std::min(kOfAThread * search_threads(), kOfAll);
  SLUICE_ASSIGN(Migration found,
                plan_migration(program, stages_->main.plan, next.main.plan, bytes, profile, options));
  SLUICE_TRY(verify(program, found, stages_->main.plan, next.main.plan, bytes));
  return found;
}

Result<double> Loaded::seconds_to(const Stages& next, const Profile& profile) const {
  SLUICE_TRY(check_alike(next));
  BytesByTier bytes = next.arena_bytes();
  raise_to(arena_bytes_, bytes);
  SLUICE_ASSIGN(const Migration migration, migration_to(next, bytes, profile));
  return migration.makespan_ns / 1e9;
}

Result<Adopted> Loaded::adopt(std::shared_ptr<const Stages> next, const Profile& profile) {
  SLUICE_TRY(check_alike(*next));
  SLUICE_TRY(prove(*next));
  BytesByTier bytes = next->arena_bytes();
  raise_to(arena_bytes_, bytes);
  SLUICE_TRY(check_room(*next, bytes, profile));
  SLUICE_ASSIGN(const Migration migration, migration_to(*next, bytes, profile));
  main_.reset();  // the next executors need their memory
  beside_.clear();
  if (!within(bytes, arena_bytes_)) {
    backend_->set_host_parts(host_parts(next->main.plan));
    const auto grown = backend_->grow(bytes);
    if (!grown.ok()) {
      // Some arenas may have grown, and begin elsewhere.
      SLUICE_ASSIGN(arenas_, backend_->grow(arena_bytes_));
      make_executors();
      return grown.error();
    }
    arenas_ = *grown;
    arena_bytes_ = bytes;
  }
  const auto moved = run_migration(migration, *backend_, arenas_, search_threads());
  if (!moved.ok()) {
    Error out = moved.error();
    out.details.emplace_back("state", "lost");
    make_executors();
    return out;
  }
  stages_ = std::move(next);
  release_freed_memory();
  make_executors();
  const double rate = moved->bytes_per_s(migration.lanes.copy(kHost, kHost));
  if (rate > 0) host_bytes_per_s_ = rate;
  return Adopted{migration.bytes(), migration.makespan_ns / 1e9, moved->seconds};
}

void Loaded::annotate() {
  annotated_ = true;
  main_->annotate();
  for (const auto& executor : beside_) {
    if (executor) executor->annotate();
  }
}

const MemoryReport& Loaded::memory() {
  memory_.bytes = backend_->memory();
  raise_to(memory_.bytes, memory_.peak_bytes);
  return memory_;
}

Status Loaded::check_caps() {
  return sluice::core::check_caps(*backend_, memory().bytes, caps_);
}

}  // namespace sluice::core
