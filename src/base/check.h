// SPDX-License-Identifier: Apache-2.0
// Checks for our own bugs. A failed check prints what was expected with its values and aborts; errors that
// a user can cause are values (status.h), never checks.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace sluice::core {

// Prints `message` with its place to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace sluice::core

#define SLUICE_CHECK(condition, ...)                                                          \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::sluice::core::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
