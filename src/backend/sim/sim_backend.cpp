#include "backend/sim/sim_backend.h"

#include <algorithm>
#include <array>
#include <limits>

namespace sluice {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct LaneState {
  uint32_t head = kNone, tail = kNone;  // the command that runs or is next to start; the last one queued
  double end_ns = kNever;               // when the running command ends; kNever: none runs
};

}  // namespace

Result<Arenas> SimBackend::reserve(int64_t device_bytes, int64_t host_bytes) {
  memory_ = {device_bytes, host_bytes};
  return Arenas{};
}

Status SimBackend::begin(uint32_t commands, bool) {
  queued_.clear();
  queued_.reserve(commands);
  return {};
}

Status SimBackend::submit(const Command& command) {
  SLUICE_CHECK(command.id == queued_.size(), "command {} after {}", command.id, queued_.size());
  queued_.push_back({command.waits, command.cost_ns, kNone, command.lane});
  return {};
}

// From one event to the next. Between two of them everything runs at a constant rate: whenever the number of
// copies at work changes, what is left of the running compute command is stretched or shrunk.
std::optional<Fault> SimBackend::finish(std::vector<Interval>* timeline) {
  std::vector<Interval> times(queued_.size());
  std::vector<bool> done(queued_.size(), false);
  std::array<LaneState, kLaneCount> lanes;
  for (uint32_t id = 0; id < queued_.size(); ++id) {
    LaneState& lane = lanes[static_cast<size_t>(queued_[id].lane)];
    (lane.head == kNone ? lane.head : queued_[lane.tail].next) = id;
    lane.tail = id;
  }
  LaneState& compute = lanes[static_cast<size_t>(Lane::Compute)];
  double now = 0, slower = 1;
  for (;;) {
    int copies = 0;
    for (LaneState& lane : lanes) {
      if (lane.end_ns == kNever && lane.head != kNone) {
        const Queued& next = queued_[lane.head];
        if (std::all_of(next.waits.begin(), next.waits.end(), [&](uint32_t w) { return done[w]; })) {
          times[lane.head].start_ns = now;
          lane.end_ns = now + next.cost_ns * (&lane == &compute ? slower : 1);
        }
      }
      copies += &lane != &compute && lane.end_ns != kNever;
    }
    if (const double changed = 1 + copies * options_.copy_slowdown; changed != slower) {
      if (compute.end_ns != kNever) compute.end_ns = now + (compute.end_ns - now) * changed / slower;
      slower = changed;
    }
    now = kNever;
    for (const LaneState& lane : lanes) now = std::min(now, lane.end_ns);
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

}  // namespace sluice
