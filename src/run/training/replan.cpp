// SPDX-License-Identifier: Apache-2.0
#include "run/training/replan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>
#include <thread>
#include <utility>

#include "host/cores.h"
#include "host/host_memory.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

// A search beside a run takes so much for each task of a step: it copies the programs, and has plans.
constexpr int64_t kBytesPerTask = 12 * kKiB;

// The reason where somebody asks.
constexpr std::string_view kAsked = "asked for";

// The host's cap, and of devices what the present arenas and the process beside them come to.
BytesByTier caps_within(const Engine& engine, const Profile& profile) {
  const BytesByTier& arenas = engine.arena_bytes();
  const auto actions = int64_t(engine.stages().main.plan.actions.size());
  BytesByTier caps = engine.prepared().config.caps;
  for (const Tier tier : engine.stages().main.plan.lanes.tiers()) {
    if (!tier.is_device()) continue;
    const int64_t held = arenas[tier] + profile.held_beside(tier, arenas[tier], actions);
    caps[tier] = std::min(caps[tier], held);
  }
  return caps;
}

}  // namespace

struct Replanner::Search {
  std::string why;
  Profile profile;
  double before_s = 0;  // a step under the plan that there is, by the profile
  std::optional<Result<Stages>> found;
  std::atomic<bool> done = false;
  std::jthread thread;  // last: it ends before what it writes to
};

Replanner::Replanner(Engine& engine, Observer& observer, bool by_itself)
    : engine_(engine), observer_(observer), costs_(engine.learn_costs()), by_itself_(by_itself) {}

Replanner::~Replanner() = default;

void Replanner::wait() {
  if (searching()) search_->done.wait(false);
}

void Replanner::ask() {
  plan_because(std::string(kAsked));
  costs_.want();
}

void Replanner::plan_because(std::string why) {
  if (why_ != kAsked) why_ = std::move(why);
}

void Replanner::compare() {
  // One that was not timed tells that something differs, and one that was timed what.
  std::string why;
  if (costs_.fresh()) {
    why = searched_ ? costs_.changed(searched_->profile, searched_->step_s)
                    : costs_.changed(costs_.planned(), costs_.planned_s());
  }
  const bool differs = !why.empty() || std::abs(costs_.off()) > StepCosts::kMargin;
  if (differs) {
    ++differing_;
    costs_.want();
  } else if (costs_.fresh()) {
    differing_ = 0;
  }
  // Where searches keep finding nothing, differences are the machine's way.
  const int enough = kSteps << std::clamp(stayed_ - 1, 0, 4);
  if (differing_ < enough || why.empty()) return;
  plan_because(std::move(why));
  differing_ = 0;
}

Status Replanner::after_step(int64_t steps_left) {
  if (searching()) return search_->done ? end(steps_left) : Status();
  if (by_itself_ && why_.empty()) compare();
  if (!why_.empty() && costs_.fresh()) begin();
  return {};
}

void Replanner::begin() {
  const Stage& main = engine_.stages().main;
  if (main.plan.lanes.reads()) {
    observer_.warned(fmt::format("{}; the base is read from its files, and the plan of such a run stays",
                                 std::exchange(why_, "")));
    searched_ = {costs_.now(), costs_.simulated_s()};
    return;
  }
  const auto tasks = int64_t(main.model.program.tasks().size());
  const int64_t cap = engine_.prepared().config.caps[kHost], held = resident_bytes();
  if (cap != kUnlimited && held + tasks * kBytesPerTask > cap) {
    observer_.warned(
        fmt::format("{}; the search for another plan takes about {}, and memory.host = {} leaves {}",
                    std::exchange(why_, ""), format_bytes(tasks * kBytesPerTask), format_bytes(cap),
                    format_bytes(std::max<int64_t>(0, cap - held))));
    searched_ = {costs_.now(), costs_.simulated_s()};
    return;
  }
  search_ = std::make_unique<Search>();
  search_->why = std::exchange(why_, "");
  search_->profile = costs_.for_search();
  search_->before_s = costs_.simulated_s();
  search_->thread =
      std::jthread([search = search_.get(), stages = engine_.stages(),
                    caps = caps_within(engine_, search_->profile)](std::stop_token stop) mutable {
        yield_to_others();
        search->found = plan_again(std::move(stages), caps, search->profile, /*threads=*/1, stop);
        search->done = true;
        search->done.notify_all();
      });
}

Status Replanner::end(int64_t steps_left) {
  const std::unique_ptr<Search> search = std::move(search_);
  search->thread.join();
  release_freed_memory();
  if (!costs_.changed(search->profile, search->before_s).empty() && ++overtaken_ < kSearches) {
    const std::string changed = costs_.changed(costs_.planned(), costs_.planned_s());
    plan_because(changed.empty() || search->why == kAsked ? search->why : changed);
    begin();
    return {};
  }
  overtaken_ = 0;
  searched_ = {search->profile, search->before_s};
  ++stayed_;
  const auto stays = [&](const std::string& because) {
    observer_.warned(fmt::format("{}: planned again, and the plan stays: {}", search->why, because));
    return Status();
  };
  if (!search->found->ok()) return stays(search->found->message());
  // The steps beside the search may have taught more.
  const Profile now = costs_.for_search();
  Stage& main = (*search->found)->main;
  recost(main.model.program, now, main.plan);
  auto stages = std::make_shared<const Stages>(std::move(**search->found));
  const double before_s = costs_.simulated_s(), after_s = stages->main.plan.makespan_ns / 1e9;
  const double gain_s = before_s - after_s;
  if (gain_s < kLeastGain * before_s)
    return stays(
        fmt::format("by what ops and links take now a step takes {:.4g} s, and {:.4g} s under the best "
                    "plan found",
                    before_s, after_s));
  auto moving_s = engine_.seconds_to(*stages, now);
  if (!moving_s.ok()) return stays(moving_s.message());
  // The driver pins some 3 GB/s.
  constexpr double kPinnedPerS = 3e9;
  const int64_t more = stages->arena_bytes()[kHost] - engine_.arena_bytes()[kHost];
  *moving_s += double(std::max<int64_t>(0, more)) / kPinnedPerS;
  if (gain_s * double(steps_left) < *moving_s)
    return stays(
        fmt::format("moving to one that gains {:.3g} s a step would take {:.3g} s, with {} steps left",
                    gain_s, *moving_s, steps_left));
  const auto adopted = engine_.adopt(std::move(stages), search->profile, search->why, before_s);
  if (!adopted.ok() && adopted.error().detail("state").empty()) return stays(adopted.message());
  SLUICE_TRY(adopted);
  searched_.reset();
  stayed_ = 0;
  return {};
}

}  // namespace sluice::core
