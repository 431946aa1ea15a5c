// SPDX-License-Identifier: Apache-2.0
#include "backend/device_activity.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "base/order.h"

namespace sluice::core {
namespace {

// Where the step's time 0 is on the profiler's clock. Each activity of a known command gives two bounds, as
// it runs within the command; between the tightest two lies the answer.
double begin_of_step(const std::vector<ProfiledActivity>& activities,
                     const std::unordered_map<uint32_t, uint32_t>& command_of,
                     std::span<const Interval> timeline) {
  bool known = false;
  double least = 0, most = 0;
  // Relative to the first activity: times since the epoch have no bits left for fractions.
  const uint64_t first = activities.front().start_ns;
  for (const ProfiledActivity& a : activities) {
    const auto it = command_of.find(a.call);
    if (it == command_of.end() || it->second >= timeline.size()) continue;
    const Interval& t = timeline[it->second];
    const double at_least = double(a.end_ns - first) - t.end_ns,
                 at_most = double(a.start_ns - first) - t.start_ns;
    least = known ? std::max(least, at_least) : at_least;
    most = known ? std::min(most, at_most) : at_most;
    known = true;
  }
  return (least + most) / 2;
}

}  // namespace

std::vector<DeviceActivity> place_on_timeline(std::vector<ProfiledActivity> activities,
                                              std::span<const ProfiledCall> calls,
                                              std::span<const Interval> timeline) {
  std::vector<DeviceActivity> out;
  if (activities.empty()) return out;
  sort_by(activities, [](const ProfiledActivity& activity) { return activity.start_ns; });
  std::unordered_map<uint32_t, uint32_t> command_of;
  for (const ProfiledCall& c : calls) command_of[c.call] = c.command;
  const uint64_t first = activities.front().start_ns;
  const double begin_ns = begin_of_step(activities, command_of, timeline);
  std::unordered_map<std::string, std::string> names;
  for (const ProfiledActivity& a : activities) {
    auto [name, fresh] = names.try_emplace(a.name);
    if (fresh) name->second = kernel_name(a.name);
    DeviceActivity activity{name->second, a.stream, {}, a.bytes, {}};
    activity.time = {double(a.start_ns - first) - begin_ns, double(a.end_ns - first) - begin_ns};
    if (const auto it = command_of.find(a.call); it != command_of.end()) activity.command = it->second;
    out.push_back(std::move(activity));
  }
  return out;
}

std::string kernel_name(std::string_view symbol) {
  std::string name(symbol);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status == 0 && readable) name = readable.get();
  // The parameters begin at the last parenthesis outside of all brackets that is not part of "(anonymous
  // namespace)".
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (auto at = name.find(kAnonymous); at != std::string::npos; at = name.find(kAnonymous)) {
    name.erase(at, kAnonymous.size());
  }
  int depth = 0;
  size_t parameters = std::string::npos, space = std::string::npos;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(' && depth == 0 && parameters == std::string::npos && i > 0) parameters = i;
    if (c == '<' || c == '(') ++depth;
    if (c == '>' || c == ')') --depth;
    if (c == ' ' && depth == 0 && parameters == std::string::npos) space = i;
  }
  if (parameters == std::string::npos) return name;  // no function's signature
  name.resize(parameters);
  return space == std::string::npos ? name : name.substr(space + 1);
}

}  // namespace sluice::core
