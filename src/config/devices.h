// SPDX-License-Identifier: Apache-2.0
// Which devices of a host a run takes.
#pragma once

#include <optional>
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

// Numbers of devices to compare, "1..64": the first, twice that, and so on up to the last, which is one of
// them. Nothing where the text is no range.
Result<std::optional<std::vector<int>>> parse_device_counts(std::string_view text);

}  // namespace sluice::core
