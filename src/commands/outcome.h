// SPDX-License-Identifier: Apache-2.0
// What functions return, as commands return it.
#pragma once

#include "base/status.h"
#include "commands/commands.h"

namespace sluice::core {

inline Outcome outcome(const Status& status) {
  return status.ok() ? Outcome{} : Outcome{Ending::Failed, status.message()};
}
inline Outcome outcome(const Result<Ending>& ending) {
  return ending.ok() ? Outcome{*ending, ""} : Outcome{Ending::Failed, ending.message()};
}

}  // namespace sluice::core
