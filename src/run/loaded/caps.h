// SPDX-License-Identifier: Apache-2.0
// Whether a process keeps to its caps.
#pragma once

#include "backend/backend.h"

namespace sluice::core {

// An error names the first tier in which more is in use than its cap, both in bytes; of several devices by
// the backend's number.
Status check_caps(const Backend& backend, const BytesByTier& use, const BytesByTier& caps);

}  // namespace sluice::core
