// SPDX-License-Identifier: Apache-2.0
#include "what_if/grid.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/bytes.h"
#include "base/counts.h"

namespace sluice::core {
namespace {

constexpr size_t kMostValues = 10000;  // a step that is far too small is a slip

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

Result<int64_t> parse_positive(std::string_view text) {
  SLUICE_ASSIGN(const int64_t value, parse_count(text));
  if (value < 1) return error("{}: expected a whole number from 1", text);
  return value;
}

template <class Parse>
Result<std::vector<int64_t>> parse_list(std::string_view option, std::string_view text,
                                        std::string_view example, Parse&& parse) {
  std::vector<int64_t> out;
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> ends = split(part, ':');
    if (ends.size() != 1 && ends.size() != 3) {
      return error("{} {}: a range is first:last:step, such as {}", option, part, example);
    }
    int64_t numbers[3] = {0, 0, 1};
    for (size_t i = 0; i < ends.size(); ++i) {
      auto number = parse(ends[i]);
      if (!number.ok()) {  // which begins with the number
        return error_at(ends.size() == 1 ? std::string(option) : fmt::format("{} {}", option, part),
                        number.error());
      }
      numbers[i] = *number;
    }
    const auto [first, last, step] = std::tie(numbers[0], numbers[1], numbers[2]);
    if (ends.size() == 1) {
      out.push_back(first);
      continue;
    }
    if (std::max({first, last, step}) == kUnlimited)
      return error("{} {}: none has no place in a range", option, part);
    if (last < first) return error("{} {}: the range ends before it begins", option, part);
    if ((last - first) / step >= int64_t(kMostValues)) {
      return error("{} {}: {} values; at most {} are allowed", option, part, (last - first) / step + 1,
                   kMostValues);
    }
    for (int64_t value = first; value <= last; value += step) out.push_back(value);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Result<std::vector<int64_t>> parse_sizes(std::string_view option, std::string_view text) {
  return parse_list(option, text, "6GiB:80GiB:2GiB", parse_bytes);
}

Result<std::vector<int64_t>> parse_counts(std::string_view option, std::string_view text) {
  return parse_list(option, text, "1k:8k:1k", parse_positive);
}

Result<AskedCaps> parse_caps(std::string_view device_mem, std::string_view host_mem, bool one_device) {
  AskedCaps out;
  if (!device_mem.empty()) {
    SLUICE_ASSIGN(out.device, parse_sizes("--device-mem", device_mem));
  }
  if (!host_mem.empty()) {
    SLUICE_ASSIGN(out.host, parse_sizes("--host-mem", host_mem));
  }
  if (one_device && out.device.size() > 1)
    return error("--device-mem {}: one size is allowed, such as 24GiB", device_mem);
  return out;
}

std::string cap_text(int64_t bytes) {
  if (bytes == kUnlimited) return "none";
  const bool large = bytes >= kGiB;
  const double value = double(bytes) / double(large ? kGiB : kMiB);
  return fmt::format("{} {}", std::ceil(value * 100 - 1e-6) / 100, large ? "GiB" : "MiB");
}

Result<std::vector<std::string>> parse_words(std::string_view option, std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view word : split(text, ',')) {
    if (word.empty()) return error("{} {}: empty between commas", option, text);
    if (std::find(out.begin(), out.end(), word) == out.end()) out.emplace_back(word);
  }
  return out;
}

}  // namespace sluice::core
