// Errors that a user or the environment can cause, as values.
//
// An Error names the thing, the value it had and what is allowed or needed: that is for people. Code decides
// by its kind and its details, never by its message. Functions return Status when they have nothing else to
// say and Result<T> otherwise; SLUICE_TRY passes an error on to the caller.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace sluice {

// What a caller can do about an error.
enum class ErrorKind : uint8_t {
  Invalid,     // a value, a request or the content of a file is not allowed: change it
  NotFound,    // what was named is not there: name another
  DoesNotFit,  // nothing works under the given caps: raise them. Details: tier, given, and need if it is
               // known
  Io,          // the system could not read or write
  Device,      // a backend, its hardware, driver or library failed, lacks memory or is missing
  Cancelled,   // somebody asked to stop
  Internal,    // a fault of this program
};
constexpr std::string_view name_of(ErrorKind kind) {
  constexpr std::string_view kNames[] = {"invalid", "not found", "does not fit", "io",
                                         "device",  "cancelled", "internal"};
  return kNames[static_cast<size_t>(kind)];
}

struct [[nodiscard]] Error {
  std::string message;
  ErrorKind kind = ErrorKind::Invalid;
  std::vector<std::pair<std::string, std::string>> details;  // names and values; sizes are in bytes

  // The value of a detail; empty: there is none of that name.
  std::string_view detail(std::string_view name) const {
    for (const auto& [key, value] : details) {
      if (key == name) return value;
    }
    return {};
  }
};

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

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error e) : error_(std::move(e)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  // REQUIRES: !ok()
  const Error& error() const { return *error_; }
  const std::string& message() const { return error_->message; }

 private:
  std::optional<Error> error_;
};

// A T, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error e) : value_(std::move(e)) {}      // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.index() == 0; }
  const Error& error() const { return std::get<1>(value_); }
  const std::string& message() const { return error().message; }

  // REQUIRES: ok()
  T& operator*() & {
    SLUICE_CHECK(ok(), "{}", message());
    return std::get<0>(value_);
  }
  const T& operator*() const& {
    SLUICE_CHECK(ok(), "{}", message());
    return std::get<0>(value_);
  }
  T&& operator*() && {
    SLUICE_CHECK(ok(), "{}", message());
    return std::get<0>(std::move(value_));
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  std::variant<T, Error> value_;
};

}  // namespace sluice

#define SLUICE_CONCAT_(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_(a, b)

// Returns the error of a Status expression to the caller.
#define SLUICE_TRY(expression)                                              \
  do {                                                                      \
    if (auto status_ = (expression); !status_.ok()) return status_.error(); \
  } while (false)

// Assigns the value of a Result expression, or returns its error: SLUICE_ASSIGN(auto x, f());
#define SLUICE_ASSIGN(target, expression) SLUICE_ASSIGN_(SLUICE_CONCAT(result_, __LINE__), target, expression)
#define SLUICE_ASSIGN_(result, target, expression) \
  auto result = (expression);                      \
  if (!result.ok()) return result.error();         \
  target = std::move(*result)
