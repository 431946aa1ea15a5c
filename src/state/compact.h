// SPDX-License-Identifier: Apache-2.0
// Compact optimizer state as numbers, on the host (ops/compact.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/format.h"

namespace sluice::core {

// All numbers of an object of such a format, those that fill its last group among them.
// REQUIRES: `object` is whole groups of compact_format().
std::vector<float> expand(const Format& format, std::span<const std::byte> object);

// Elements of the object from `first` on become `values`, rounded to nearest. Of the groups that they share
// with others these may be rounded anew; all other bytes stay. REQUIRES: all are finite, and not negative
// where `format` is that of squares.
void put(const Format& format, std::span<std::byte> object, int64_t first, std::span<const float> values);

}  // namespace sluice::core
