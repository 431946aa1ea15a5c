// SPDX-License-Identifier: Apache-2.0
// Pictures of a step: a Chrome trace (Perfetto, chrome://tracing) and an SVG timeline.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_activity.h"
#include "plan/plan.h"
#include "plan/stalls.h"

namespace sluice::core {

// One row per lane, one slice per action, and counters of device and host memory in use by kind. `timeline`
// has one interval per action, measured or predicted (predicted_timeline). Below the lanes one row per stream
// of `activities`, if any: kernels by name, copies with their bytes, each with the action it is part of.
std::string chrome_trace(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                         std::span<const DeviceActivity> activities = {});

// A round's forward or backward pass from its first task to its last. Or the update (round -1) where it is a
// pass of its own and not spread over the others. Recomputation belongs to no pass.
struct RoundPass {
  Phase phase;
  int32_t round;
  double start_ns, end_ns;
  double busy_ns;   // of that, in its own tasks
  int32_t row = 0;  // passes of one row never overlap; rows are as few as that allows
};
// By start.
std::vector<RoundPass> round_passes(const Program& program, const Plan& plan,
                                    std::span<const Interval> timeline);
// Whether a round's forward pass begins before the backward pass of another one ends.
bool interleaved(std::span<const RoundPass> passes);

// Passes and lanes over time, with the memory of both tiers by kind below. What is thinner than a pixel is
// drawn as its share of the columns it touches, so the file's size is bounded by the picture's, not by the
// plan's. `subtitle` says what is planned.
std::string timeline_svg(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                         std::string_view subtitle = {});

// Bytes of one arena that hold something at a time, by object kind; workspaces come last.
struct MemoryPoint {
  double ns;
  std::array<int64_t, kObjectKinds + 1> bytes;
  int64_t total() const;
};
using MemoryHistory = ByTier<std::vector<MemoryPoint>>;  // at every change, by time
MemoryHistory memory_history(const Program& program, const Plan& plan, std::span<const Interval> timeline);

}  // namespace sluice::core
