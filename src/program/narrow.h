// SPDX-License-Identifier: Apache-2.0
// Copies in 8 bits by the ops that make what is copied.
#pragma once

#include "program/program.h"

namespace sluice::core {

// The same program, in which ops that can be `narrow` (NarrowResult of ops/cast.h) are, where all of what
// they write has no other reader than the Quantize that `narrow` stands for: these tasks and results are
// gone. No value changes. Objects keep their ids up to the first such result.
Program join_copies(Program program);

}  // namespace sluice::core
