// SPDX-License-Identifier: Apache-2.0
// When the compute lane stood still, and what it stood still for. The same definition serves predicted and
// measured times.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "plan/plan.h"

namespace sluice::core {

enum class StallCause : uint8_t {
  Load,     // a load was under way that compute needed
  Store,    // a store was under way that had to free room first
  Device,   // another device was at work on what compute needed, or handed it over; or other processes were
  Nothing,  // nothing was under way that compute waited for: launches, or a backend that was late
};
constexpr size_t kStallCauses = 4;
// "waiting for loads", "waiting for stores", "waiting for another device", "nothing under way"
std::string_view name_of(StallCause cause);

// A gap on a compute lane before one action. The chain of last-finished waits is walked back from the action
// to the gap's begin. Each piece of the gap goes to the lane that was at work on it. When compute waits for a
// load, and that load waited for a store to free its room, each gets the time it took.
struct Stall {
  uint32_t action = 0;  // the run that came late
  uint32_t last = 0;    // what it waited for last; itself when it waited for nothing
  double begin_ns = 0, end_ns = 0;
  std::array<double, kStallCauses> ns{};  // by cause; they sum to end_ns - begin_ns

  StallCause cause() const;  // the largest
};

// The gaps in order. `timeline` has one interval per action. On predicted times they sum to
// PlanTotals::stall_ns. What a device has no more to do for, once its part of the step is done, is no gap.
std::vector<Stall> stalls_of(const Plan& plan, std::span<const Interval> timeline);

// Their sums by cause.
std::array<double, kStallCauses> sum_by_cause(std::span<const Stall> stalls);

// Where nothing was under way that a compute lane waited for, by kinds of actions: what was waited for last,
// or ran before, and what came then.
struct QuietGaps {
  std::string before, after;
  int64_t count = 0;
  double ns = 0, longest_ns = 0;
};
// The most time first.
std::vector<QuietGaps> quiet_gaps(const Plan& plan, std::span<const Stall> stalls,
                                  const std::function<std::string(const Action&)>& kind_of);

// The time in which no lane of any device was at work, from the first begin to the last end.
double nothing_at_work_ns(std::span<const Interval> timeline);

// The limit of the step, in words.
std::string_view what_binds(const Plan& plan, const PlanTotals& totals,
                            const std::array<double, kStallCauses>& stalls);

// The times the plan predicts.
std::vector<Interval> predicted_timeline(const Plan& plan);

}  // namespace sluice::core
