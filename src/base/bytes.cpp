// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace sluice::core {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
// In lower case.
constexpr std::array<Unit, 13> kUnits{{{"b", 1},
                                       {"k", 1024.0},
                                       {"kib", 1024.0},
                                       {"m", 1048576.0},
                                       {"mib", 1048576.0},
                                       {"g", 1073741824.0},
                                       {"gib", 1073741824.0},
                                       {"t", 1099511627776.0},
                                       {"tib", 1099511627776.0},
                                       {"kb", 1e3},
                                       {"mb", 1e6},
                                       {"gb", 1e9},
                                       {"tb", 1e12}}};

constexpr double kMostBytes = 0x1p50;  // no machine has more: a slip

// Guesses the unit of a number without one: the memories of today are some GiB, or many MiB.
std::string with_a_unit(double number) {
  if (number <= 2048) return fmt::format("{:g}GiB", number);
  if (number < 1048576) return fmt::format("{:.15g}MiB", number);
  return exact_bytes(int64_t(std::min(number, kMostBytes)));
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](uint8_t c) { return char(std::tolower(c)); });
  if (lower == "none" || lower == "unlimited") return kUnlimited;
  constexpr const char* kAllowed = "a positive size such as 48MiB, 1.5GiB, 800MB or none";
  double number = 0;
  const auto [end, ec] = std::from_chars(lower.data(), lower.data() + lower.size(), number);
  if (ec != std::errc() || !std::isfinite(number)) return error("{}: expected {}", text, kAllowed);
  std::string_view suffix(end, size_t(lower.data() + lower.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (number <= 0) return error("{}: expected {}, which is no limit", text, kAllowed);
  if (suffix.empty()) return error("{}: a size needs a unit; did you mean {}?", text, with_a_unit(number));
  for (const Unit& unit : kUnits) {
    if (unit.name != suffix) continue;
    const double bytes = number * unit.bytes;
    if (bytes > kMostBytes)
      return error("{}: more than any machine has; expected {}, up to 1024TiB", text, kAllowed);
    if (!(bytes >= 1)) return error("{}: expected {}", text, kAllowed);
    return static_cast<int64_t>(std::llround(bytes));
  }
  return error("{}: unknown unit '{}'; expected {}", text, suffix, kAllowed);
}

namespace {

std::string format(int64_t bytes, bool up) {
  if (bytes == kUnlimited) return "none";
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1024 of a unit are written as one of the next.
  while (unit + 1 < kNames.size() &&
         (up ? std::ceil(std::abs(value)) : std::round(std::abs(value))) >= 1024) {
    value /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  const double scale = std::pow(10.0, decimals);
  if (up) value = std::ceil(value * scale) / scale;
  return fmt::format("{:.{}f} {}", value, decimals, kNames[unit]);
}

}  // namespace

Result<double> parse_rate(std::string_view text) {
  constexpr const char* kAllowed = "a positive rate such as 10Gb/s, 2.5Gb/s or 1.2GB/s";
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !(number > 0) || !std::isfinite(number))
    return error("{}: expected {}", text, kAllowed);
  std::string_view unit(end, size_t(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  constexpr std::array<std::pair<char, double>, 4> kScales{{{'k', 1e3}, {'M', 1e6}, {'G', 1e9}, {'T', 1e12}}};
  for (const auto& [letter, scale] : kScales) {
    if (unit.empty() || unit.front() != letter) continue;
    const std::string_view what = unit.substr(1);
    if (what == "B/s") return number * scale;
    if (what == "b/s" || what == "bit/s" || what == "bps") return number * scale / 8;
  }
  return error("{}: unknown unit '{}'; expected {}", text, unit, kAllowed);
}

std::string exact_bytes(int64_t bytes) {
  if (bytes == kUnlimited) return "none";
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit + 1 < kNames.size() && bytes != 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kNames[unit]);
}

std::string format_bytes(int64_t bytes) {
  return format(bytes, false);
}
std::string format_bytes_up(int64_t bytes) {
  return format(bytes, true);
}

}  // namespace sluice::core
