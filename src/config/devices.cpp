// SPDX-License-Identifier: Apache-2.0
#include "config/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/tier.h"

namespace sluice::core {
namespace {

std::optional<int> whole(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int kMost = 1023;
  if (problem != std::errc() || end != text.data() + text.size() || value < 0 || value > kMost)
    return std::nullopt;
  return value;
}

// "1..64".
Result<std::vector<int>> parse_counts(std::string_view text, size_t dots) {
  constexpr int kMost = int(Tier::kMostDevices);
  const auto first = whole(text.substr(0, dots)), last = whole(text.substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first) {
    return error("run.devices = {}: a range is two numbers of devices, the smaller one first, such as 1..{}",
                 text, kMost);
  }
  if (*last > kMost) {
    return error(
        "run.devices = {}: a step is planned for the devices of one host, which share its memory: {} at most",
        text, kMost);
  }
  std::vector<int> out;
  for (int count = *first; count < *last; count *= 2) out.push_back(count);
  out.push_back(*last);
  return out;
}

}  // namespace

DeviceChoice first_devices(int count) {
  DeviceChoice out;
  for (int d = 0; d < count; ++d) out.numbers.push_back(d);
  return out;
}

Result<DeviceChoice> parse_devices(std::string_view text) {
  constexpr int kMostDevices = int(Tier::kMostDevices);
  const Error refusal{
      fmt::format("run.devices = {}: allowed are all, a number of devices from 1 to {}, or their "
                  "numbers with commas between, such as 0,2",
                  text, kMostDevices)};
  DeviceChoice out;
  if (const size_t dots = text.find(".."); dots != text.npos) {
    SLUICE_ASSIGN(out.counts, parse_counts(text, dots));
    return out;
  }
  if (text == "all") {
    out.all = true;
    return out;
  }
  if (text.find(',') == text.npos) {
    const auto count = whole(text);
    if (!count || *count < 1 || *count > kMostDevices) return refusal;
    return first_devices(*count);
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto number = whole(text.substr(begin, end - begin));
    if (!number && begin == text.size() && !out.numbers.empty()) break;  // "0,"
    if (!number || std::ranges::count(out.numbers, *number) > 0) return refusal;
    out.numbers.push_back(*number);
    begin = end + 1;
  }
  if (out.numbers.size() > size_t(kMostDevices)) return refusal;
  return out;
}

std::string to_text(const DeviceChoice& devices) {
  if (devices.all) return "all";
  if (!devices.counts.empty()) return fmt::format("{}..{}", devices.counts.front(), devices.counts.back());
  const auto& numbers = devices.numbers;
  if (devices == first_devices(int(numbers.size()))) return fmt::format("{}", numbers.size());
  return fmt::format("{}{}", fmt::join(numbers, ","), numbers.size() == 1 ? "," : "");
}

Status check_one_step(const DeviceChoice& devices) {
  if (devices.counts.empty()) return {};
  return error("run.devices = {}: a range of devices is compared by sluice simulate, a step takes one number",
               to_text(devices));
}

}  // namespace sluice::core
