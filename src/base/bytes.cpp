// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <array>
#include <charconv>
#include <cmath>

namespace sluice::core {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 13> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"KiB", 1024.0},
                                       {"MiB", 1048576.0},
                                       {"GiB", 1073741824.0},
                                       {"TiB", 1099511627776.0},
                                       {"kB", 1e3},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12},
                                       {"M", 1048576.0},
                                       {"G", 1073741824.0}}};

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  if (text == "none" || text == "unlimited") return kUnlimited;
  constexpr const char* kAllowed = "a positive size such as 48MiB, 1.5GiB, 800MB or none";
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return error("size '{}': expected {}", text, kAllowed);
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (unit.name != suffix) continue;
    const double bytes = number * unit.bytes;
    if (!(bytes >= 1) || bytes > 9e18) return error("size '{}': expected {}", text, kAllowed);
    return static_cast<int64_t>(std::llround(bytes));
  }
  return error("size '{}': unknown unit '{}'; expected {}", text, suffix, kAllowed);
}

namespace {

std::string format(int64_t bytes, bool up) {
  if (bytes == kUnlimited) return "none";
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  const double scale = std::pow(10.0, decimals);
  if (up) value = std::ceil(value * scale) / scale;
  return fmt::format("{:.{}f} {}", value, decimals, kNames[unit]);
}

}  // namespace

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
