// SPDX-License-Identifier: Apache-2.0
// Text within XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace sluice::core {

// Text that is safe between tags and inside quoted attributes. Control characters become spaces, but for tabs
// and line breaks: XML cannot carry them.
std::string escape_markup(std::string_view text);

}  // namespace sluice::core
