// SPDX-License-Identifier: Apache-2.0
// Text for people in as many columns as there are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::core {

// The text with no line wider than `columns`, but for single words that are. Lines of which none is wider
// stay as they are; 0: all do. Sentences are wrapped behind their own indent. A table is lines one after
// another whose cells are two spaces or more apart. Its texts are wrapped inside their column. What is still
// too wide is cut into several tables, each of which begins with the first column.
std::string fit(std::string_view text, size_t columns);

}  // namespace sluice::core
