// SPDX-License-Identifier: Apache-2.0
// A Status as commands return it.
#pragma once

#include "base/status.h"
#include "commands/commands.h"

namespace sluice::core {

inline Outcome outcome(const Status& status) {
  return status.ok() ? Outcome{} : Outcome{false, status.message()};
}

}  // namespace sluice::core
