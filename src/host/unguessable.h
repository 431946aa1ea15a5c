// SPDX-License-Identifier: Apache-2.0
// Numbers for names of files that nobody can put something in the place of.
#pragma once

#include <cstdint>

namespace sluice::core {

// From the system's source of randomness; another one each time. Results never depend on one.
uint64_t unguessable();

}  // namespace sluice::core
