// Pictures of a step: a Chrome trace (Perfetto, chrome://tracing) and an SVG timeline.
#pragma once

#include <array>
#include <span>
#include <string>

#include "backend/device_activity.h"
#include "plan/plan.h"
#include "plan/stalls.h"

namespace sluice {

// One row per lane, one slice per action, and counters of device and host memory in use by kind. `timeline`
// has one interval per action, measured or predicted (predicted_timeline). Below the lanes one row per stream
// of `activities`, if any: kernels by name, copies with their bytes, each with the action it is part of.
std::string chrome_trace(const Program& program, const Plan& plan, std::span<const Interval> timeline,
                         std::span<const DeviceActivity> activities = {});

// Lanes over time, coloured by phase, with device memory by kind below.
std::string timeline_svg(const Program& program, const Plan& plan, std::span<const Interval> timeline);

// Bytes of one arena that hold something at a time, by object kind; workspaces come last.
struct MemoryPoint {
  double ns;
  std::array<int64_t, kObjectKinds + 1> bytes;
  int64_t total() const;
};
using MemoryHistory = ByTier<std::vector<MemoryPoint>>;  // at every change, by time
MemoryHistory memory_history(const Program& program, const Plan& plan, std::span<const Interval> timeline);

}  // namespace sluice
