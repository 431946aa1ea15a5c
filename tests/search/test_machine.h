// SPDX-License-Identifier: Apache-2.0
// A machine whose costs are only those of arithmetic and of bytes moved.
#pragma once

#include "cost/profile.h"

namespace sluice::core {

// Links carry so many bytes a second.
inline Profile test_machine(double bytes_per_s) {
  Profile profile;
  profile.name = "test";
  profile.rates.launch_ns = 0;
  profile.set_bytes_per_s(bytes_per_s);
  profile.transfer_latency_ns = 0;
  return profile;
}

}  // namespace sluice::core
