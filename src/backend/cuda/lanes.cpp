#include "backend/cuda/lanes.h"

#include "backend/cuda/check.h"

namespace sluice::cuda {

Result<Lanes> Lanes::create(bool timing, int run_ahead) {
  Lanes lanes;
  lanes.timing_ = timing;
  lanes.run_ahead_ = uint32_t(std::max(run_ahead, 1));
  int least = 0, greatest = 0;
  SLUICE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (const Lane lane : kLanes) {
    // Compute goes first where kernels of several lanes compete; copies have engines of their own.
    SLUICE_CUDA_TRY(cudaStreamCreateWithPriority(lanes.streams_[size_t(lane)].receive(),
                                                 cudaStreamNonBlocking,
                                                 lane == Lane::Compute ? greatest : least));
  }
  SLUICE_CUDA_TRY(cudaEventCreate(lanes.origin_.receive()));
  return lanes;
}

// The host thread sleeps while it waits, instead of spinning.
Status Lanes::create_events(uint32_t commands) {
  const unsigned flags = cudaEventBlockingSync | (timing_ ? 0u : unsigned(cudaEventDisableTiming));
  const auto grow = [&](std::vector<Event>& events) -> Status {
    while (events.size() < commands) {
      Event event;
      SLUICE_CUDA_TRY(cudaEventCreateWithFlags(event.receive(), flags));
      events.push_back(std::move(event));
    }
    return {};
  };
  SLUICE_TRY(grow(after_));
  if (timing_) SLUICE_TRY(grow(before_));
  return {};
}

Status Lanes::begin(uint32_t commands) {
  SLUICE_TRY(create_events(commands));
  lane_of_.clear();
  lane_of_.reserve(commands);
  finished_ = 0;
  for (auto& row : waited_) row.fill(0);
  if (!timing_) return {};
  SLUICE_CUDA_TRY(cudaEventRecord(origin_.get(), stream(Lane::Compute)));
  for (const Lane lane : {Lane::Load, Lane::Store}) {
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream(lane), origin_.get(), 0));
  }
  return {};
}

Status Lanes::open(const Command& command) {
  SLUICE_CHECK(command.id == lane_of_.size() && command.id < after_.size(),
               "command {} submitted as number {} of {}", command.id, lane_of_.size(), after_.size());
  // Commands up to an old one may still be under way on other lanes, but no more than run_ahead in all.
  while (command.id - finished_ >= run_ahead_) {
    SLUICE_CUDA_TRY(cudaEventSynchronize(after_[finished_].get()));
    ++finished_;
  }
  for (const uint32_t id : command.waits) {
    SLUICE_CHECK(id < command.id, "command {} waits for command {}", command.id, id);
    const Lane other = lane_of_[id];
    int64_t& known = waited_[size_t(command.lane)][size_t(other)];
    if (other == command.lane || id < known) continue;
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream(command.lane), after_[id].get(), 0));
    known = int64_t{id} + 1;
  }
  if (timing_) SLUICE_CUDA_TRY(cudaEventRecord(before_[command.id].get(), stream(command.lane)));
  return {};
}

Status Lanes::close(const Command& command) {
  SLUICE_CUDA_TRY(cudaEventRecord(after_[command.id].get(), stream(command.lane)));
  lane_of_.push_back(command.lane);
  return {};
}

std::optional<Lanes::Failure> Lanes::drain() {
  for (; finished_ < lane_of_.size(); ++finished_) {
    const Status status = check(cudaEventSynchronize(after_[finished_].get()), "cudaEventSynchronize");
    if (!status.ok()) return Failure{finished_, status.error()};
  }
  return std::nullopt;
}

Status Lanes::intervals(std::vector<Interval>& out) const {
  SLUICE_CHECK(timing_, "intervals of lanes without timing");
  constexpr double kNsPerMs = 1e6;
  out.resize(lane_of_.size());
  for (size_t i = 0; i < out.size(); ++i) {
    float start = 0, end = 0;
    SLUICE_CUDA_TRY(cudaEventElapsedTime(&start, origin_.get(), before_[i].get()));
    SLUICE_CUDA_TRY(cudaEventElapsedTime(&end, origin_.get(), after_[i].get()));
    out[i] = {double(start) * kNsPerMs, double(end) * kNsPerMs};
  }
  return {};
}

}  // namespace sluice::cuda
