// SPDX-License-Identifier: Apache-2.0
// The kinds of backends that this program has.
#pragma once

#include <span>

#include "backend/kind.h"

namespace sluice::core {

// In the order in which "auto" looks for one that finds its hardware.
std::span<const BackendKind* const> backends();

// An error names those that there are.
Result<const BackendKind*> find_backend(std::string_view name);

}  // namespace sluice::core
