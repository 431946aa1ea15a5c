// SPDX-License-Identifier: Apache-2.0
// One step on more and more devices of a machine that is not here: how its speed grows, and where the time of
// the devices goes. Nothing runs: every count is planned as a run would be.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "cost/card.h"
#include "pages/page.h"
#include "what_if/outlook.h"

namespace sluice::core {

// Shares of all devices' time up to the end of the step; they sum to 1.
struct DeviceTime {
  double work = 0;   // what every plan computes
  double again = 0;  // what is computed a second time
  double fill = 0;   // waiting for others before a device's first layer
  double steady =
      0;  // waiting for others between its first layer and its last, copies between devices included
  double drain = 0;   // with nothing left to do, or waiting for others, behind its last layer
  double copies = 0;  // waiting for copies from the host and to it
  double other = 0;   // waiting for nothing that is known

  double imbalance = 0;  // how much longer than in the mean the busiest device computes; no part of the sum
};
// By the plan's predicted times.
DeviceTime device_time(const Program& program, const Plan& plan);

struct ScalingPoint {
  int devices = 1;
  std::string missing;  // why it cannot be planned; empty: it can
  bool is_known = false;
  Outlook found;
  DeviceTime time;

  bool trains() const { return missing.empty(); }
};

// Plans `config` on so many devices of the card, each count by itself; what is wrong with one is its
// `missing`. Tokens per step are the configuration's, its run.devices is not used. Stopped, it returns those
// that are known.
std::vector<ScalingPoint> find_scaling(const RunConfig& config, const Card& card, std::span<const int> counts,
                                       const StudyWatch& watch);

// A table, speeds beside that of the first count that can be planned. `title`: of what.
Page scaling_page(std::span<const ScalingPoint> points, std::string title);

}  // namespace sluice::core
