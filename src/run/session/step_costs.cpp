// SPDX-License-Identifier: Apache-2.0
#include "run/session/step_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/stopwatch.h"
#include "measure/calibrate.h"
#include "search/planner.h"

namespace sluice::core {
namespace {

constexpr int kFirst = 2;  // timed, whatever that costs
// Learning may take this part of all steps' time, and so many times as much where steps differ.
constexpr double kShare = 0.0025, kWhereTheyDiffer = 4;
// By this a step with a GPU's timestamps is longer.
constexpr double kTimed = 0.02;
// A smaller difference is none.
constexpr double kLittle = 0.01;

// Halfway from what was known to what a step says: single steps vary. A link whose rate jumps is believed at
// once, unless links vary, too.
void blend(const Profile& fresh, bool links_vary, Profile& now) {
  for (const auto& [key, ns] : fresh.measured_ns) {
    const auto [it, is_new] = now.measured_ns.try_emplace(key, ns);
    if (!is_new) it->second = (it->second + ns) / 2;
  }
  for (size_t i = 0; i < now.links.size(); ++i) {
    double& rate = now.links[i].bytes_per_s;
    const double other = fresh.links[i].bytes_per_s;
    const bool jumps = !links_vary && std::abs(other / rate - 1) > StepCosts::kFaster;
    rate = jumps ? other : (rate + other) / 2;
  }
}

void add_words(std::string& to, const std::string& words) {
  to += (to.empty() ? "" : ", ") + words;
}

}  // namespace

double StepCosts::ops_ns(const Profile& profile, bool computing) const {
  const std::vector<double> ns = cost_of(main_->model.program, profile).ns;
  double sum = 0;
  for (const Action& a : main_->plan.actions) {
    if (a.kind != ActionKind::Run || (computing && !main_->plan.lanes[a.lane].computes())) continue;
    sum += ns[a.task.value];
  }
  return sum;
}

void StepCosts::follow(const Stage& main, const Profile& planned) {
  const bool first = main_ == nullptr;
  now_ = first ? planned : for_search();
  planned_ = planned;
  main_ = &main;
  planned_ops_ns_ = ops_ns(planned);
  simulate();
  // The search knows what loads of chosen parts wait for.
  if (first) simulated_s_ = main.plan.makespan_ns / 1e9;
  planned_s_ = first ? simulated_s_ : step_ns(main.model.program, planned, main.plan) / 1e9;
  taken_ = 0;
  off_ = 0;
  differing_ = 0;
  fresh_ = false;
}

void StepCosts::simulate() {
  const double ns = step_ns(main_->model.program, now_, main_->plan);
  simulated_s_ = ns / 1e9;
  ops_ns_ = ops_ns(now_);
  busy_ = std::min(1.0, ops_ns(now_, /*computing=*/true) / (ns * double(main_->plan.devices())));
}

Profile StepCosts::for_search() const {
  Profile out = now_;
  // Power grows with the cube of the clock: so many times as long ops take at most where nothing waits.
  const double slower = 1 / std::cbrt(busy_);
  for (auto& [key, ns] : out.measured_ns) {
    const auto planned = planned_.measured_ns.find(key);
    if (!shares_cores_ && planned != planned_.measured_ns.end())
      ns = std::max(ns, std::min(planned->second, slower * ns));
  }
  return out;
}

double StepCosts::usual_off() const {
  constexpr size_t kEnough = 3;
  constexpr double kTimes = 3;
  return std::max(kLittle, sizes_.size() < kEnough ? 0 : kTimes * median(sizes_));
}

bool StepCosts::wants_timeline() const {
  if (taken_ == 0) return false;  // it is not warm
  if (wanted_ || timelines_ < kFirst) return true;
  return spent_s_ <= (differing_ > 0 ? kWhereTheyDiffer : 1) * kShare * stepped_s_;
}

// One step that differs says nothing of others. The second one in a row does.
bool StepCosts::learn(std::span<const Interval> timeline) {
  if (differing_ == 1 && timelines_ > 0) return false;
  const Program& program = main_->model.program;
  Profile fresh = learnt(program, main_->plan, timeline, shares_cores_, now_);
  const bool anew = timelines_ == 0 || differing_ > 0;
  if (anew) {
    now_ = std::move(fresh);
  } else {
    blend(fresh, shares_cores_, now_);
  }
  simulate();
  return anew;
}

void StepCosts::add(double step_s, std::span<const Interval> timeline) {
  constexpr size_t kSizes = 8;
  const Stopwatch watch;
  stepped_s_ += step_s;
  fresh_ = !timeline.empty();
  off_ = 0;
  if (++taken_ == 1) return;
  const double longer = fresh_ && !shares_cores_ ? kTimed : 0;
  const double predicted_s = this->predicted_s();
  off_ = step_s / predicted_s - 1;
  if (off_ > 0) off_ = std::max(0.0, off_ - longer);
  differing_ = std::abs(off_) > usual_off() ? differing_ + 1 : 0;
  // A change makes two steps differ, of which the second teaches what has changed. More in a row differ
  // because steps vary.
  if (differing_ == 0 || differing_ > 2) {
    if (sizes_.size() == kSizes) sizes_.erase(sizes_.begin());
    sizes_.push_back(std::abs(off_));
  }
  const bool anew = fresh_ && learn(timeline);
  const double rest = step_s / simulated_s_ - 1;
  if (anew) {
    // By other costs it was this. It stays so as far as a timed step may be longer than others.
    rest_ = std::clamp(rest_, rest - longer, rest);
    rests_ = longer == 0 ? 1 : 0;
  } else if (longer > 0) {
    // A step that was predicted right tells what it is made of, and no other sum.
    rest_ = predicted_s / simulated_s_ - 1;
  } else if (differing_ != 1 || rests_ == 0) {
    constexpr double kLeastWeight = 0.3;
    rest_ += std::max(kLeastWeight, 1.0 / ++rests_) * (rest - rest_);
  }
  if (!fresh_) return;
  wanted_ = false;
  if (++timelines_ > kFirst) spent_s_ += watch.seconds() + longer * step_s;
}

std::string StepCosts::changed(const Profile& then, double then_s) const {
  const double off = simulated_s_ / then_s - 1;
  if (std::abs(off) > kMargin)
    return fmt::format("steps take {:.1f} % {} than planned", 100 * std::abs(off),
                       off > 0 ? "longer" : "less");
  // On shared cores transfers hide nowhere, and any may seem faster.
  if (shares_cores_) return {};
  for (const Link& link : now_.links) {
    const double before = then.bytes_per_s(link.from, link.to);
    if (link.bytes_per_s > (1 + kFaster) * before)
      return fmt::format("{:.3g} instead of {:.3g} GB/s go from {} to {}", link.bytes_per_s / 1e9,
                         before / 1e9, name_of(link.from), name_of(link.to));
  }
  return {};
}

std::string StepCosts::differs() const {
  // Less than this does not say why a step is longer.
  constexpr double kTold = 0.02, kToldOfLinks = 0.05;
  std::string out;
  const double ops = ops_ns_ / planned_ops_ns_ - 1;
  if (std::abs(ops) > kTold) add_words(out, fmt::format("ops {:+.0f} %", 100 * ops));
  const auto link = [&](std::string_view name, double then, double now) {
    if (!shares_cores_ && then > 0 && std::abs(now / then - 1) > kToldOfLinks)
      add_words(out, fmt::format("{} {:.3g} of {:.3g} GB/s", name, now / 1e9, then / 1e9));
  };
  link("loads", planned_.bytes_per_s(kHost, kDevice), now_.bytes_per_s(kHost, kDevice));
  link("stores", planned_.bytes_per_s(kDevice, kHost), now_.bytes_per_s(kDevice, kHost));
  link("between devices", planned_.peer_bytes_per_s(), now_.peer_bytes_per_s());
  if (main_->plan.lanes.reads())
    link("reads", planned_.bytes_per_s(kDisk, kDevice), now_.bytes_per_s(kDisk, kDevice));
  if (std::abs(rest_) > kTold) add_words(out, fmt::format("other {:+.0f} %", 100 * rest_));
  return out;
}

}  // namespace sluice::core
