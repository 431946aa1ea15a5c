// SPDX-License-Identifier: Apache-2.0
// Copies in 8 bits by the ops that make what is copied.
#pragma once

#include "program/program.h"

namespace sluice::core {

// The same program with ops that are `narrow` (NarrowResult of ops/cast.h). An op is made so where nobody but
// the Quantize that `narrow` stands for reads what it writes: these tasks and results are gone. No value
// changes. Objects keep their ids up to the first such result.
Program join_copies(Program program);

}  // namespace sluice::core
