// SPDX-License-Identifier: Apache-2.0
// The least memories that a program can be planned with: what the last resort, refusals and every question
// whether caps work go by.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "search/builder.h"

namespace sluice::core {

// At each device budget of a fixed grid stands one plan, the one that takes least of the host: everything is
// computed again, and as much pinned as packs. One more is the plan that takes least of the device, however
// much of the host. Caps work if there is room for one of these plans, so that more of either memory does not
// make them too small. In large programs that holds as long as packing varies by less than the steps that are
// looked at. A plan is built when it is asked for, unless its bytes say that there is no room for it. A guide
// says so, too: the floor of the same step with few of its rounds, whose plans cost little and take about as
// much. A plan of the whole step confirms what the guide finds.
class Floor {
 public:
  // REQUIRES: the builder and the guide outlive it; the guide is one of large programs.
  explicit Floor(const PlanBuilder& plans, Floor* guide = nullptr) : plans_(plans), guide_(guide) {}

  // A plan's settings, and what it takes of each device and of the host in bytes of their budgets;
  // kUnlimited: nothing packs. `part` is what it pins of all that can be pinned; -1: nothing was tried.
  struct Point {
    Policy policy;
    int64_t device_bytes = kUnlimited, host_bytes = kUnlimited;
    int part = -1;
  };
  // Whether bytes fit, before anything is packed; and whether there is so much more that packing does not
  // matter. REQUIRES, both: no homes are given.
  bool fits_by_bytes(int64_t device_bytes, int64_t host_bytes);
  bool leaves_much(int64_t device_bytes, int64_t host_bytes);
  // The plan that takes the least of the device.
  const Point& tightest();
  // One that there is room for; empty where there is none.
  std::optional<Point> within(int64_t device_bytes, int64_t host_bytes);
  // The same of the step closest to the budget alone, which takes least time.
  std::optional<Point> closest(int64_t device_bytes, int64_t host_bytes);
  // The least device budget beside that of the host; kUnlimited: none works.
  int64_t least_device(int64_t host_bytes);
  // The plan on the device's budget that takes least of the host; empty where there is none.
  std::optional<Point> leanest(int64_t device_bytes);

  std::optional<Candidate> plan(const Point& point) const {
    return plans_.build(point.policy, point.device_bytes);
  }

 private:
  int64_t budget(int step);
  int64_t least_on_device();
  int64_t resident_bytes();
  int64_t least_budget();
  int64_t bytes_in_all_tiers();
  // The last step whose budget is at most this; -1: none.
  int step_within(int64_t device_bytes);
  // The first and the last step of those that count beside a budget; first > last: none.
  std::pair<int, int> steps_within(int64_t device_bytes);
  // The least host bytes of a step's plan, before it is built.
  int64_t least_host_by_bytes(int step);
  const Point& at(int step);
  // Whether the step's plan leaves the host as much. Where the guide's is far from that, nothing is built.
  bool works(int step, int64_t host_bytes);

  const PlanBuilder& plans_;
  Floor* const guide_;
  // 0: not asked for yet
  int64_t least_on_device_ = 0, resident_bytes_ = 0, least_budget_ = 0, all_bytes_ = 0;
  std::optional<Point> tightest_;
  std::map<int, Point> known_;
};

}  // namespace sluice::core
