// SPDX-License-Identifier: Apache-2.0
// What can be known to fail before anything is measured, searched for or reserved.
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "model/spec.h"

namespace sluice::core {

using Notices = std::vector<std::string>;
// The configuration against the machine. Caps: none of more than the machine has. On a machine that will run
// the model also the cache, which measuring writes to. Returns notices, as the next does.
Result<Notices> check_settings(const RunConfig& config, const Machine& machine);
// Beside it the weights' files, against what `model` reads of them, on a machine that will run it: a tied
// head is compared byte by byte.
Result<Notices> check_early(const RunConfig& config, const Machine& machine, const ModelSpec& model);

}  // namespace sluice::core
