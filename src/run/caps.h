// SPDX-License-Identifier: Apache-2.0
// Whether a process keeps to its caps.
#pragma once

#include "base/status.h"
#include "base/tier.h"

namespace sluice::core {

// An error names the first tier in which more is in use than its cap; both in bytes.
Status check_caps(const BytesByTier& use, const BytesByTier& caps);

}  // namespace sluice::core
