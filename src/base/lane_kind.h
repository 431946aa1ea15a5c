// SPDX-License-Identifier: Apache-2.0
// What a lane does.
#pragma once

#include <cstdint>

namespace sluice::core {

enum class LaneKind : uint8_t {
  Compute,  // runs tasks on a device
  Copy,     // copies from one tier to another
  Network,  // runs tasks of a device that exchange with other processes
};

}  // namespace sluice::core
