// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "sluice/machine.h"

namespace sluice {

// A configuration that says what the options of a machine say.
Result<core::RunConfig> config_of(const MachineOptions& options);

}  // namespace sluice
