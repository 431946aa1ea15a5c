// SPDX-License-Identifier: Apache-2.0
// Checkpoints in words.
#pragma once

#include <string>

#include "run/training/saver.h"

namespace sluice::core {

// The forecast of checkpoints, and the cost of one: a line each.
std::string describe(const SaveForecast& forecast);
std::string describe(const SaveEvent& event);

}  // namespace sluice::core
