// SPDX-License-Identifier: Apache-2.0
// Text for people. A stream that is full or that nobody reads any more ends no command: what cannot be
// written is dropped, and ferror() of the stream remembers it.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace sluice::core {

template <class... Args>
void say(FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), out);
}
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(stdout, format, std::forward<Args>(args)...);
}

}  // namespace sluice::core
