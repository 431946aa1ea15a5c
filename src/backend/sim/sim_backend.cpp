// SPDX-License-Identifier: Apache-2.0
#include "backend/sim/sim_backend.h"

#include <algorithm>
#include <limits>

namespace sluice::core {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct LaneState {
  uint32_t head = kNone, tail = kNone;  // the command that runs or is next to start; the last one queued
  double end_ns = kNever;               // when the running command ends; kNever: none runs
  double slower = 1;                    // by which factor copies and the network slow down what it runs
};

}  // namespace

Result<Arenas> SimBackend::reserve(const BytesByTier& bytes) {
  memory_ = bytes;
  return Arenas{};
}

Result<Arenas> SimBackend::grow(const BytesByTier& bytes) {
  raise_to(bytes, memory_);
  return Arenas{};
}

Status SimBackend::begin(uint32_t commands, bool) {
  queued_.clear();
  queued_.reserve(commands);
  return {};
}

Status SimBackend::submit(const Command& command) {
  SLUICE_CHECK(command.id == queued_.size(), "command {} after {}", command.id, queued_.size());
  SLUICE_CHECK(command.lane.index() < lanes_.size(), "command {} on lane {} of {}", command.id,
               command.lane.index(), lanes_.size());
  queued_.push_back({command.waits, command.cost_ns, kNone, command.lane});
  return {};
}

// From one event to the next. Between two of them everything runs at a constant rate. Whenever the number of
// copies or networks at work changes, what is left of the running compute commands is stretched or shrunk.
std::optional<Fault> SimBackend::finish(std::vector<Interval>* timeline) {
  std::vector<Interval> times(queued_.size());
  std::vector<bool> done(queued_.size(), false);
  ByLane<LaneState> lanes(lanes_);
  for (uint32_t id = 0; id < queued_.size(); ++id) {
    LaneState& lane = lanes[queued_[id].lane];
    (lane.head == kNone ? lane.head : queued_[lane.tail].next) = id;
    lane.tail = id;
  }
  double now = 0;
  ByTier<int> copies, networks;  // at work from or to a tier
  for (;;) {
    for (const LaneEnds& ends : lanes_.ends()) copies[ends.from] = copies[ends.to] = networks[ends.to] = 0;
    for (const Lane l : lanes_) {
      LaneState& lane = lanes[l];
      if (lane.end_ns == kNever && lane.head != kNone) {
        const Queued& next = queued_[lane.head];
        if (std::all_of(next.waits.begin(), next.waits.end(), [&](uint32_t w) { return done[w]; })) {
          times[lane.head].start_ns = now;
          lane.end_ns = now + next.cost_ns * lane.slower;
        }
      }
      const LaneEnds& ends = lanes_[l];
      if (lane.end_ns == kNever) continue;
      if (ends.network) ++networks[ends.to];
      if (!ends.copies()) continue;
      ++copies[ends.from];
      ++copies[ends.to];
    }
    double next = kNever;
    for (const Lane l : lanes_) {
      LaneState& lane = lanes[l];
      if (const LaneEnds& ends = lanes_[l]; ends.computes()) {
        const double slower =
            (1 + copies[ends.to] * options_.copy_slowdown) / (1 - networks[ends.to] * options_.network_share);
        if (slower != lane.slower && lane.end_ns != kNever)
          lane.end_ns = now + (lane.end_ns - now) * slower / lane.slower;
        lane.slower = slower;
      }
      next = std::min(next, lane.end_ns);
    }
    now = next;
    if (now == kNever) break;  // nothing runs: everything is done
    for (LaneState& lane : lanes) {
      if (lane.end_ns != now) continue;
      times[lane.head].end_ns = now;
      done[lane.head] = true;
      lane.head = queued_[lane.head].next;
      lane.end_ns = kNever;
    }
  }
  if (timeline != nullptr) *timeline = std::move(times);
  return std::nullopt;
}

const BackendKind& sim_kind() {
  static constexpr BackendKind kKind{"sim", {.runs_models = false}};
  return kKind;
}

}  // namespace sluice::core
