// SPDX-License-Identifier: Apache-2.0
// What a start in a run directory means: beginning a run, or going on with the one that is there.
#pragma once

#include "config/config.h"
#include "run/directory/run_directory.h"
#include "sluice/observer.h"

namespace sluice::core {

// Takes run.dir, or if `anew` the first free one of run.dir, run.dir-2, ..., and says so in the
// configuration. Where a run with a checkpoint is, the configuration goes on with that: run.resume only says
// where it began. Errors: the directory is in use, holds what is not a run's, its newest checkpoint is
// damaged, or run.resume asks for another beginning.
Result<RunDirectory> take_run_directory(RunConfig& config, bool anew, Observer& observer);

// Adds to an error that the checkpoint which the run goes on from is damaged (its detail "damaged"): the
// newest whole one before it, and the command that goes on from that. Any other error as it is.
Error naming_older_one(const RunConfig& config, Error why);

}  // namespace sluice::core
