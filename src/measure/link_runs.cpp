// SPDX-License-Identifier: Apache-2.0
#include "measure/link_runs.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"

namespace sluice::core {

int64_t link_copy_bytes(const BytesByTier& most, size_t devices) {
  const int64_t device = most[kDevice], wished = std::clamp(device / 64 / kMiB, int64_t{16}, int64_t{64});
  return std::max(kLeastLinkBytes,
                  std::min({wished * kMiB, device / 4, most[kHost] / (4 + 2 * int64_t(devices))}) /
                      kLeastLinkBytes * kLeastLinkBytes);
}

int64_t link_places(int64_t host_bytes, size_t devices, int64_t bytes) {
  constexpr int64_t kMostOfEach = 4 * kGiB, kMostOfAll = 8 * kGiB;
  const int64_t room = std::min(kMostOfEach, std::min(kMostOfAll, host_bytes / 2) / int64_t(devices));
  return std::max<int64_t>(1, room / (2 * bytes));
}

Copy LinkCopy::at(int64_t turn) const {
  Copy moved = copy;
  for (Location* end : {&moved.from, &moved.to})
    if (end->tier == kHost) end->offset += turn % places * apart;
  return moved;
}

Result<ByLane<std::vector<Interval>>> run_copies(Backend& backend, std::span<const LinkCopy> copies,
                                                 uint32_t times, const Launch& busy, uint32_t launches) {
  std::vector<Command> commands;
  const auto add = [&](Lane lane, const std::variant<Launch, Copy>& work) {
    commands.push_back({uint32_t(commands.size()), lane, {}, work, 0});
  };
  for (uint32_t i = 0; i < times; ++i) {
    for (const LinkCopy& c : copies) add(c.lane, c.at(i));
  }
  for (uint32_t i = 0; i < launches; ++i) add(backend.lanes().compute(), busy);
  SLUICE_ASSIGN(const std::vector<Interval> timeline, run_commands(backend, commands));
  ByLane<std::vector<Interval>> out(backend.lanes());
  for (size_t i = 0; i < commands.size(); ++i) out[commands[i].lane].push_back(timeline[i]);
  return out;
}

ByLane<std::vector<Interval>> while_all_work(const ByLane<std::vector<Interval>>& runs) {
  double begin_ns = 0, end_ns = std::numeric_limits<double>::infinity();
  for (const std::vector<Interval>& lane : runs) {
    if (lane.empty()) continue;
    begin_ns = std::max(begin_ns, lane.front().end_ns);
    end_ns = std::min(end_ns, lane.back().end_ns);
  }
  ByLane<std::vector<Interval>> out = runs;
  for (std::vector<Interval>& lane : out) {
    std::vector<Interval> inside;
    std::ranges::copy_if(lane, std::back_inserter(inside),
                         [&](const Interval& i) { return i.start_ns >= begin_ns && i.end_ns <= end_ns; });
    if (!inside.empty()) lane = std::move(inside);
  }
  return out;
}

double mean_ns(std::span<const Interval> runs) {
  double sum = 0;
  for (const Interval& i : runs) sum += i.end_ns - i.start_ns;
  return std::max(1.0, sum / double(runs.size()));
}

}  // namespace sluice::core
