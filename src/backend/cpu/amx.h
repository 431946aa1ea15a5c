// SPDX-License-Identifier: Apache-2.0
// Advanced Matrix Extensions: eight 1 KiB tile registers and products of bf16 tiles with f32 sums.
#pragma once

#include "base/check.h"

namespace sluice::core::cpu {

// Whether this CPU multiplies bf16 tiles and the system lets this process do so. The first call asks the
// system for permission, which threads started later have, too.
bool amx_available();

// Stands for every AMX kernel where none is compiled in.
template <class... Args>
[[noreturn]] void no_amx(const Args&...) {
  check_failed(__FILE__, __LINE__, "amx_available()", "this build has no AMX kernels");
}

}  // namespace sluice::core::cpu
