// SPDX-License-Identifier: Apache-2.0
// What a start in a run directory means: beginning a run, or going on with the one that is there.
#pragma once

#include "run/directory/run_directory.h"
#include "setup/settle.h"
#include "sluice/observer.h"

namespace sluice::core {

struct TakenDirectory {
  RunDirectory directory;
  StartFacts start;
};
// Takes run.dir, or if `anew` the first free one of run.dir, run.dir-2, ... Where a run with a checkpoint is,
// the start goes on with that: run.resume only says where it began. Errors: the directory is in use, holds
// what is not a run's, its newest checkpoint is damaged, or run.resume asks for another beginning.
Result<TakenDirectory> take_run_directory(const RunConfig& config, bool anew, Observer& observer);

// The checkpoint which the run in `directory` goes on from may be damaged (the error's detail "damaged").
// Then the error gets the newest whole one before it, and the command that goes on from that. Any other error
// as it is.
Error naming_older_one(const std::filesystem::path& directory, Error why);

}  // namespace sluice::core
