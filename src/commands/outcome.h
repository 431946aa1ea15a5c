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
  if (ending.ok()) return {*ending, ""};
  const bool unsaved = !ending.error().detail("unsaved").empty();
  return {unsaved ? Ending::Unsaved : Ending::Failed, ending.message()};
}

}  // namespace sluice::core
