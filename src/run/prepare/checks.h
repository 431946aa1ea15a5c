// SPDX-License-Identifier: Apache-2.0
// What can be known to fail before anything is measured, searched for or reserved.
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "model/spec.h"

namespace sluice::core {

// The configuration against the machine. Caps: none of more than the machine has. A card that was named
// implies its memory, less what its driver keeps, where no cap is given, and a notice says so. On a machine
// that will run the model also the cache, which measuring writes to.
Status check_settings(RunConfig& config, const Machine& machine);
// Beside it the weights' files, against what `model` reads of them, on a machine that will run it: a tied
// head is compared byte by byte.
Status check_early(RunConfig& config, const Machine& machine, const ModelSpec& model);

// Notices on settings that cannot take effect in a run of so many steps.
// REQUIRES: the steps of train.epochs are counted.
void warn_of_idle(RunConfig& config);

}  // namespace sluice::core
