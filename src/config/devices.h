// SPDX-License-Identifier: Apache-2.0
// Which devices of a host a run takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct DeviceChoice {
  bool all = false;
  std::vector<int>
      numbers;              // of the devices that share a step, counted from 0; empty with `all` and `counts`
  std::vector<int> counts;  // numbers of devices to compare, each for a step of its own
  bool operator==(const DeviceChoice&) const = default;
};

// The devices 0 to count - 1.
DeviceChoice first_devices(int count);

// "all"; a number of devices, the first ones: "2"; or their numbers: "0,2", and "2," for that one alone.
// Numbers of devices to compare are "1..64": the first, twice that, and so on up to the last, which is one of
// them. The error says what is allowed.
Result<DeviceChoice> parse_devices(std::string_view text);
// Text that parse_devices() reads.
std::string to_text(const DeviceChoice& devices);

// Refuses what is to be compared where one step is to be made.
Status check_one_step(const DeviceChoice& devices);

}  // namespace sluice::core
