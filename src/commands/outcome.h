// A Status as the public API returns it.
#pragma once

#include "base/status.h"
#include "sluice/sluice.h"

namespace sluice {

inline Outcome outcome(const Status& status) {
  return status.ok() ? Outcome{} : Outcome{false, status.message()};
}

}  // namespace sluice
