// SPDX-License-Identifier: Apache-2.0
// Which of the known names a mistyped one may have meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice::core {

// The fewest letters to insert, remove, replace, or swap with their neighbour that turn `a` into `b`; no
// letter is touched twice. A name beyond kLongestName, which a file may hold and nobody types, is as far from
// all others as it is long. Distances take time with the product of both lengths.
inline constexpr size_t kLongestName = 1000;
size_t edit_distance(std::string_view a, std::string_view b);

// The letters and digits of a name in lower case: equal for RTX4090, "rtx 4090" and RTX-4090.
std::string plain_name(std::string_view name);

// The name with the least distance from `name`, the first of several; empty: there are no names.
std::string nearest(std::string_view name, std::span<const std::string> names);

// Whether one of them may be the other mistyped: at most a third of the longer one's letters differ.
bool similar(std::string_view a, std::string_view b);

}  // namespace sluice::core
