// SPDX-License-Identifier: Apache-2.0
// The parts of the page, embedded in the program from the files beside this one (embed.cmake).
#pragma once

#include <string_view>

namespace sluice::core::page {

extern const std::string_view kHtml, kCss, kJs;

}  // namespace sluice::core::page
