// SPDX-License-Identifier: Apache-2.0
#include "base/counts.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace sluice::core {
namespace {

// The power of suffix k, M or G; nothing for any other.
std::optional<int> power_of(std::string_view suffix) {
  if (suffix.size() != 1) return std::nullopt;
  switch (suffix.front()) {
    case 'k':
    case 'K':
      return 1;
    case 'm':
    case 'M':
      return 2;
    case 'g':
    case 'G':
      return 3;
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A number with a suffix, in powers of `base`; nothing: that is not what it is, or it is not whole.
std::optional<int64_t> with_suffix(std::string_view text, double base) {
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return std::nullopt;
  std::string_view suffix(end, size_t(text.data() + text.size() - end));
  if (suffix.starts_with(' ')) suffix.remove_prefix(1);
  const auto power = power_of(suffix);
  if (!power) return std::nullopt;
  const double value = number * std::pow(base, *power);
  if (!(std::abs(value) < 9e15) || value != std::floor(value)) return std::nullopt;
  return int64_t(value);
}

}  // namespace

Result<int64_t> parse_count(std::string_view text) {
  if (const auto value = whole(text)) return *value;
  if (const auto value = with_suffix(text, 1024)) return *value;
  return error("{}: expected a whole number, such as 8192 or 8k, which is 8 x 1024", text);
}

Result<int64_t> parse_whole(std::string_view text) {
  if (const auto value = whole(text)) return *value;
  if (const auto value = with_suffix(text, 1000)) {
    return error("{}: expected a whole number without suffix; did you mean {}?", text, *value);
  }
  return error("{}: expected a whole number", text);
}

std::string counted(int64_t n, std::string_view thing) {
  return fmt::format("{} {}{}", fmt::group_digits(n), thing, n == 1 ? "" : "s");
}

std::string counted(int64_t n, std::string_view thing, std::string_view of_one, std::string_view of_more) {
  return fmt::format("{} {}", counted(n, thing), n == 1 ? of_one : of_more);
}

}  // namespace sluice::core
