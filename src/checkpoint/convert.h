// SPDX-License-Identifier: Apache-2.0
// Optimizer state that was saved in other number formats than those in which a run goes on.
#pragma once

#include <filesystem>
#include <span>

#include "exec/executor.h"
#include "lowering/build.h"

namespace sluice::core {

// Reads the state of a checkpoint, whose weights were loaded, into that of the model, rounded to nearest in
// its own formats. Master weights are those of the file where there are any, in either type, and the weights
// where there are none. `files` have it, and passed check_file(). With `others_trained` state that is not
// there is zero; else an error names it. Memory of some MiB.
Status load_state_in_other_formats(const BuiltProgram& model, std::span<const std::filesystem::path> files,
                                   Executor& executor, bool others_trained);

}  // namespace sluice::core
