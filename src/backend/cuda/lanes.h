// The lanes as CUDA streams, and the events that order commands across them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/handle.h"
#include "base/status.h"

namespace sluice::cuda {

// Every command records an event after itself; with timing also one before. Events are created when a step is
// longer than all before it, never within one.
class Lanes {
 public:
  Lanes() = default;
  static Result<Lanes> create(bool timing, int run_ahead);

  cudaStream_t stream(Lane lane) const { return streams_[size_t(lane)].get(); }

  Status begin(uint32_t commands);
  // Before the command's work: its stream waits for the commands it names, and this thread for old ones when
  // too many are under way.
  Status open(const Command& command);
  // After its work has been queued.
  Status close(const Command& command);

  // Waits for everything queued since begin(). On failure names the first command that is not known to have
  // finished.
  struct Failure {
    uint32_t command;
    Error error;
  };
  std::optional<Failure> drain();

  // When the commands ran, after drain(). REQUIRES: timing.
  Status intervals(std::vector<Interval>& out) const;

 private:
  Status create_events(uint32_t commands);

  bool timing_ = false;
  uint32_t run_ahead_ = 0;
  std::array<Stream, kLaneCount> streams_;
  Event origin_;               // of the step's times
  std::vector<Event> before_;  // empty without timing
  std::vector<Event> after_;

  // The step under way: the lane of each command queued, and how many from the start are known to have
  // finished.
  std::vector<Lane> lane_of_;
  uint32_t finished_ = 0;
  // waited_[a][b]: lane a waits for the commands of lane b with lower ids already.
  std::array<std::array<int64_t, kLaneCount>, kLaneCount> waited_{};
};

}  // namespace sluice::cuda
