// SPDX-License-Identifier: Apache-2.0
// The table of [memory]: the caps.
#pragma once

#include "base/tier.h"
#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_memory_keys(Keys& c, F&& key) {
  key("memory.device", c[kDevice], Size(), {"cap on device memory, such as 48MiB or none"});
  key("memory.host", c[kHost], Size(), {"cap on host memory, such as 1GiB or none"});
}

}  // namespace sluice::core
