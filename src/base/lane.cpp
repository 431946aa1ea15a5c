// SPDX-License-Identifier: Apache-2.0
#include "base/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::core {

std::string name_of(const LaneEnds& ends) {
  const auto numbered = [](std::string_view name, Tier device) {
    return fmt::format("{}{}", name, name_of(device).substr(name_of(kDevice).size()));
  };
  if (ends.computes() && ends.to.is_device()) return numbered("compute", ends.to);
  if (ends.network && ends.from == ends.to && ends.to.is_device()) return numbered("network", ends.to);
  if (ends.from == kHost && ends.to.is_device()) return numbered("load", ends.to);
  if (ends.from.is_device() && ends.to == kHost) return numbered("store", ends.from);
  if (ends.from == kDisk && ends.to.is_device()) return numbered("read", ends.to);
  return fmt::format("{}>{}", name_of(ends.from), name_of(ends.to));
}

std::optional<LaneEnds> find_lane_ends(std::string_view name) {
  std::optional<Tier> from, to;
  bool network = false;
  if (const size_t arrow = name.find('>'); arrow != name.npos) {
    from = find_tier(name.substr(0, arrow));
    to = find_tier(name.substr(arrow + 1));
  } else {
    const size_t number = std::min(name.find_first_of("0123456789"), name.size());
    const auto device = find_tier(fmt::format("{}{}", name_of(kDevice), name.substr(number)));
    const std::string_view what = name.substr(0, number);
    network = what == "network";
    if (what == "compute" || what == "store" || network) from = device;
    if (what == "compute" || what == "load" || what == "read" || network) to = device;
    if (what == "load") from = kHost;
    if (what == "read") from = kDisk;
    if (what == "store") to = kHost;
  }
  if (!from || !to) return std::nullopt;
  const LaneEnds ends{*from, *to, network};
  return name_of(ends) == name ? std::optional(ends) : std::nullopt;
}

LaneTable LaneTable::of_devices(size_t devices, bool joined) {
  LaneTable table;
  table.ends_.clear();
  for (size_t d = 0; d < devices; ++d) table.add_compute(Tier::device(d));
  for (size_t d = 0; d < devices; ++d) {
    table.add(kHost, Tier::device(d));
    table.add(Tier::device(d), kHost);
  }
  for (size_t d = 0; joined && d < devices; ++d) {
    const Tier one = Tier::device(d), next = Tier::device((d + 1) % devices);
    for (const auto& [from, to] : {std::pair(one, next), std::pair(next, one)}) {
      if (from != to && !table.find(from, to)) table.add(from, to);
    }
  }
  return table;
}

Result<LaneTable> LaneTable::of(std::vector<LaneEnds> ends) {
  if (ends.size() > kMost) return error("{} lanes, at most {} are allowed", ends.size(), kMost);
  for (auto it = ends.begin(); it != ends.end(); ++it) {
    if (std::find(ends.begin(), it, *it) != it) return error("two lanes are {}", name_of(*it));
    if (it->network && (it->from != it->to || !it->to.is_device()))
      return error("a lane that is no device's goes by way of other processes");
  }
  LaneTable table;
  table.ends_ = std::move(ends);
  return table;
}

ByLane<std::string> names_of(const LaneTable& lanes) {
  ByLane<std::string> names(lanes);
  for (const Lane lane : lanes) names[lane] = name_of(lanes[lane]);
  return names;
}

Lane LaneTable::add(Tier from, Tier to) {
  SLUICE_CHECK(!find(from, to) && size() < kMost, "lane {} is number {}, or there already",
               name_of(LaneEnds{from, to}), size() + 1);
  ends_.push_back({from, to});
  return Lane(size() - 1);
}

void LaneTable::add_networks() {
  for (size_t d = 0, n = devices(); d < n; ++d) {
    const LaneEnds ends{Tier::device(d), Tier::device(d), true};
    SLUICE_CHECK(!find(ends) && size() < kMost, "lane {} is number {}, or there already", name_of(ends),
                 size() + 1);
    ends_.push_back(ends);
  }
}

void LaneTable::add_reads() {
  for (size_t d = 0, n = devices(); d < n; ++d) add(kDisk, Tier::device(d));
}

Lane LaneTable::running(LaneKind kind, Tier device) const {
  const LaneEnds ends{device, device, kind == LaneKind::Network};
  const auto lane = find(ends);
  SLUICE_CHECK(lane.has_value() && kind != LaneKind::Copy, "no lane is {}", name_of(ends));
  return *lane;
}

std::optional<Lane> LaneTable::find(const LaneEnds& wanted) const {
  const auto it = std::find(ends_.begin(), ends_.end(), wanted);
  if (it == ends_.end()) return std::nullopt;
  return Lane(static_cast<size_t>(it - ends_.begin()));
}

Lane LaneTable::copy(Tier from, Tier to) const {
  const auto lane = find(from, to);
  SLUICE_CHECK(lane.has_value(), "no lane is {}", name_of(LaneEnds{from, to}));
  return *lane;
}

size_t LaneTable::devices() const {
  return size_t(std::count_if(ends_.begin(), ends_.end(), [](const LaneEnds& e) { return e.computes(); }));
}

std::vector<Tier> LaneTable::tiers() const {
  std::vector<Tier> out;
  for (const Tier tier : kTiers) {
    if (tier == kDisk) continue;
    const auto joins = [&](const LaneEnds& ends) { return ends.from == tier || ends.to == tier; };
    if (std::any_of(ends_.begin(), ends_.end(), joins)) out.push_back(tier);
  }
  return out;
}

}  // namespace sluice::core
