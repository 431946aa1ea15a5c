// SPDX-License-Identifier: Apache-2.0
// Compact optimizer state as numbers, on the host (ops/compact.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/format.h"

namespace sluice::core {

// All numbers of an object of such a format, those that fill its last group among them.
// REQUIRES: `bytes` are whole groups of compact_format().
std::vector<float> expand(const Format& format, std::span<const std::byte> bytes);

// The bytes of an object that holds these numbers, and zeros up to the end of the last group.
// REQUIRES: all are finite, and not negative where `format` is that of squares.
std::vector<std::byte> compact(const Format& format, std::span<const float> values);

}  // namespace sluice::core
