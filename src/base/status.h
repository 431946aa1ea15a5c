// SPDX-License-Identifier: Apache-2.0
// Errors as values, for the code inside: the public types, their making, and passing them on.
//
// SLUICE_TRY passes an error on to the caller.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/check.h"
#include "sluice/status.h"

namespace sluice::core {

template <class... Args>
Error error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), kind, {}};
}
template <class... Args>
Error error(fmt::format_string<Args...> format, Args&&... args) {
  return error(ErrorKind::Invalid, format, std::forward<Args>(args)...);
}

// The same error, with where it happened before its message: "<place>: <message>".
inline Error error_at(std::string_view place, Error e) {
  e.message = fmt::format("{}: {}", place, e.message);
  return e;
}

}  // namespace sluice::core

#define SLUICE_CONCAT_(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_(a, b)

// Returns the error of a Status expression to the caller.
#define SLUICE_TRY(expression)                                                         \
  do {                                                                                 \
    if (auto status_ = (expression); !status_.ok()) return std::move(status_).error(); \
  } while (false)

// Assigns the value of a Result expression, or returns its error: SLUICE_ASSIGN(auto x, f());
#define SLUICE_ASSIGN(target, expression) SLUICE_ASSIGN_(SLUICE_CONCAT(result_, __LINE__), target, expression)
#define SLUICE_ASSIGN_(result, target, expression)    \
  auto result = (expression);                         \
  if (!result.ok()) return std::move(result).error(); \
  target = std::move(*result)
