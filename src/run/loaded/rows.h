// SPDX-License-Identifier: Apache-2.0
// Rows on their way into a program.
#pragma once

#include <vector>

#include "exec/executor.h"
#include "lowering/build.h"

namespace sluice::core {

// Writes rows into the batch objects of a program. `staging` is memory that is used again. REQUIRES: as many
// tokens as its shape has, with every column that its batches have.
Status feed_rows(const Rows& rows, const BuiltProgram& model, Executor& executor,
                 std::vector<std::byte>& staging);

}  // namespace sluice::core
