// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/printable.h"
#include "base/status.h"

namespace sluice::core {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "sluice: internal error at %s:%d: %s: %s\n", file, line, condition,
               printable(message).c_str());
  std::abort();
}

}  // namespace sluice::core

namespace sluice {

Error::Error() = default;
Error::Error(std::string m) : message(std::move(m)) {}
Error::Error(std::string m, ErrorKind k, Details d) : message(std::move(m)), kind(k), details(std::move(d)) {}
Error::Error(const Error&) = default;
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(const Error&) = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::~Error() = default;

void fail_unread(const Error& error) {
  std::fprintf(stderr, "sluice: a result was used that is an error: %s\n",
               core::printable(error.message).c_str());
  std::abort();
}

}  // namespace sluice
