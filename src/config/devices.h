// SPDX-License-Identifier: Apache-2.0
// Which devices of a host a run takes.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct DeviceChoice {
  bool all = false;
  std::vector<int> numbers;  // of the devices, counted from 0; empty with `all`
};

// "all"; a number of devices, the first ones: "2"; or their numbers: "0,2". The error says what is allowed.
Result<DeviceChoice> parse_devices(std::string_view text);

}  // namespace sluice::core
