// SPDX-License-Identifier: Apache-2.0
// Errors that a user or the environment can cause, as values.
//
// An Error names the thing, the value it had and what is allowed or needed: that is for people. Programs
// decide by its kind and its details, never by its message. Functions return Status when they have nothing
// else to say and Result<T> otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// The kind of an error, which says what a caller can do about it.
enum class ErrorKind : uint8_t {
  Invalid,     // a value, a request or the content of a file is not allowed: change it
  NotFound,    // what was named is not there: name another
  DoesNotFit,  // nothing works under the given caps: raise them. Error::shortage says which, and how far
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

// The memory that a cap is too small for.
struct Shortage {
  std::string tier;  // "device" or "host"
  int64_t given_bytes = 0;
  std::optional<int64_t> need_bytes;  // a cap that works; none: unknown
  bool in_both_tiers = false;         // no more of this tier alone works
  bool more_host_helps = false;       // of the host itself, or less of the device would do beside more of it

  bool operator==(const Shortage&) const = default;
};

struct [[nodiscard]] Error {
  using Details = std::vector<std::pair<std::string, std::string>>;  // names and values

  Error();
  explicit Error(std::string message);
  Error(std::string message, ErrorKind kind, Details details = {});
  // Compiled once, as thousands of calls may pass an error on.
  Error(const Error&);
  Error(Error&&) noexcept;
  Error& operator=(const Error&);
  Error& operator=(Error&&) noexcept;
  ~Error();

  std::string message;
  ErrorKind kind = ErrorKind::Invalid;
  Details details;
  std::optional<Shortage> shortage;  // of kind DoesNotFit, where it is known

  // The value of a detail; empty: there is none of that name.
  std::string_view detail(std::string_view name) const {
    for (const auto& [key, value] : details) {
      if (key == name) return value;
    }
    return {};
  }
};

// Ends the program with the message of an error that the caller had to look at first.
[[noreturn]] void fail_unread(const Error& error);

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(const Error& e) : error_(e) {}                 // NOLINT(google-explicit-constructor)
  Status(Error&& e) noexcept : error_(std::move(e)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  // REQUIRES: !ok()
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }
  const std::string& message() const { return error_->message; }

 private:
  std::optional<Error> error_;
};

// A T, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(const T& value) : value_(value) {}             // NOLINT(google-explicit-constructor)
  Result(T&& value) : value_(std::move(value)) {}       // NOLINT(google-explicit-constructor)
  Result(const Error& e) : error_(e) {}                 // NOLINT(google-explicit-constructor)
  Result(Error&& e) noexcept : error_(std::move(e)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  // REQUIRES: !ok()
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }
  const std::string& message() const { return error().message; }

  // REQUIRES: ok(); the program ends with the error's message otherwise.
  T& operator*() & { return checked(*this); }
  const T& operator*() const& { return checked(*this); }
  T&& operator*() && { return std::move(checked(*this)); }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  template <class Self>
  static auto& checked(Self& self) {
    if (!self.ok()) [[unlikely]]
      fail_unread(self.error());
    return *self.value_;
  }

  std::optional<T> value_;
  std::optional<Error> error_;  // one of the two is there
};

}  // namespace sluice
