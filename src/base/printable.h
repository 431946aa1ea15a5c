// SPDX-License-Identifier: Apache-2.0
// Text that others wrote, for a terminal to show and not to obey.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::core {

// Line breaks, tabs and what can be seen stay as they are. Spelt out are control characters (\x1b), bytes
// that are no UTF-8 (\xff), and what changes the direction or the order of the text around it (\u202e).
// Ordinary text is the same afterwards, and so is text that went through this before.
std::string printable(std::string_view text);

// The same of a message, which has at most kMostMessageBytes: what is left out of its middle is counted. It
// may name values as long as somebody's file.
inline constexpr size_t kMostMessageBytes = 2000;
std::string printable_message(std::string_view text);

}  // namespace sluice::core
