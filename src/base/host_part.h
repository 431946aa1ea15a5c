// SPDX-License-Identifier: Apache-2.0
// Which parts of the host's arena are for which device.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/tier.h"

namespace sluice::core {

constexpr int64_t kHugePage = 2 * kMiB;

// Bytes [begin, end) of the host's arena, of which `device` copies more than any other.
struct HostPart {
  int64_t begin = 0, end = 0;
  Tier device;

  bool operator==(const HostPart&) const = default;
};

}  // namespace sluice::core
