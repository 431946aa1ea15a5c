#include "backend/sim/sim_backend.h"

#include <algorithm>

namespace sluice {

Result<Arenas> SimBackend::reserve(int64_t device_bytes, int64_t host_bytes) {
  memory_ = {device_bytes, host_bytes};
  return Arenas{};
}

Status SimBackend::begin(uint32_t commands) {
  timeline_.clear();
  timeline_.reserve(commands);
  lane_end_ns_.fill(0);
  return {};
}

Status SimBackend::submit(const Command& command) {
  SLUICE_CHECK(command.id == timeline_.size(), "command {} after {}", command.id, timeline_.size());
  double& lane_end = lane_end_ns_[static_cast<size_t>(command.lane)];
  double start = lane_end;
  for (const uint32_t wait : command.waits) start = std::max(start, timeline_[wait].end_ns);
  lane_end = start + command.cost_ns;
  timeline_.push_back({start, lane_end});
  return {};
}

std::optional<Fault> SimBackend::finish(std::vector<Interval>* timeline) {
  if (timeline != nullptr) *timeline = timeline_;
  return std::nullopt;
}

}  // namespace sluice
