// SPDX-License-Identifier: Apache-2.0
// The lanes as CUDA streams, and the events that order commands across them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/handle.h"
#include "base/status.h"
#include "base/stopwatch.h"

namespace sluice::core::cuda {

// A command that another lane waits for records an event after itself, and so does now and then another: a
// record takes this thread some us. In a timed step every command records one after itself. It records one
// before itself, too, if its lane may stand still until then. It may if it is the first there, waits for
// another lane, or comes when the command before has finished. Else it begins when that one ends. Each event
// takes a stream some 2 us, of which a step of 28,000 commands with two each had 0.1 s.
// Commands take events in turn, as many as may be under way. The driver keeps more than a KiB on the host for
// each, and a step has a hundred thousand commands. Events are created before a step, never within one.
class Lanes {
 public:
  // `devices`: the GPU of each device of the table, as the driver counts. A lane's stream belongs to the
  // device on which it computes, to which it loads or from which it copies.
  static Result<Lanes> create(const LaneTable& table, std::span<const int> devices, int run_ahead);

  const LaneTable& table() const { return table_; }
  cudaStream_t stream(Lane lane) const { return streams_[lane].get(); }

  Status begin(uint32_t commands, bool timed);
  // Before the command's work: its stream waits for the commands it names, and this thread for old ones when
  // too many are under way. True: the stream waits for another one as it did not before.
  Result<bool> open(const Command& command);
  // After its work has been queued.
  Status close(const Command& command);

  // Whether the last step that was drained took little time.
  bool brief() const { return brief_; }

  // Waits until a command that was queued has finished.
  Status wait(uint32_t command) { return settle(command); }
  // Waits for everything queued since begin(). Once a kernel has failed the driver says no more of any
  // command of that GPU. The one that failed is one of the launches there from `first` to `last`: the first
  // that is not known to have finished, and the last one queued. When this thread was waiting for the GPU, as
  // it mostly is, it is among the first 16: so often an event is recorded.
  struct Failure {
    uint32_t first, last;
    Error error;
  };
  std::optional<Failure> drain();

  // When the commands ran, after drain(). REQUIRES: the step was timed.
  const std::vector<Interval>& intervals() const;

 private:
  // Events of one GPU's streams: an event is recorded where it was made.
  struct Events {
    int gpu = 0;
    Event origin;  // of the times of a timed step
    // By command modulo run_ahead_: without times, and for timed steps.
    std::vector<Event> plain, before, after;
  };

  Lanes(const LaneTable& table, size_t devices)
      : table_(table),
        streams_(table),
        events_(devices),
        progress_(table),
        waited_(table, ByLane<int64_t>(table)) {}
  Status create_events(size_t count);
  size_t device_of(Lane lane) const {
    const LaneEnds& ends = table_[lane];
    return (ends.from.is_device() ? ends.from : ends.to).index();
  }
  const Events& events_of(uint32_t id) const { return events_[device_of(lane_of_[id])]; }
  // Those of a command that is not known to have finished; afterwards a later command has them.
  cudaEvent_t before(uint32_t id) const { return events_of(id).before[id % run_ahead_].get(); }
  cudaEvent_t done(uint32_t id) const {
    return (timed_ ? events_of(id).after : events_of(id).plain)[id % run_ahead_].get();
  }
  // Whether a command that waits for no other lane begins as soon as the one before on its lane has ended.
  Result<bool> follows(Lane lane) const;
  // Waits for the first command that is not known to have finished, and in a timed step takes its times.
  Status finish_one();
  Status record(uint32_t id);
  // Waits until the command has finished, and with it what came before it on its lane.
  Status settle(uint32_t id);
  // Waits for an event; of several GPUs, no longer than until one of them fails.
  Status wait_for(cudaEvent_t event) const;
  // The first device whose GPU says that something failed.
  std::optional<size_t> failed_device() const;
  Failure failure(Error error) const;

  LaneTable table_;
  uint32_t run_ahead_ = 0;
  ByLane<Stream> streams_;
  std::vector<Events> events_;  // by device
  bool timed_ = false;          // the step under way
  bool brief_ = false;          // the last one was
  Stopwatch since_begin_;

  // The step under way: the lane of each command queued, and how many from the start are known to have
  // finished.
  uint32_t commands_ = 0;  // announced
  std::vector<Lane> lane_of_;
  uint32_t finished_ = 0;
  std::vector<bool> follows_;  // of a timed step: by command, whether it begins when its lane's last one ends
  std::vector<Interval> intervals_;  // of a timed step: of those that have finished
  struct Progress {
    std::vector<uint32_t> recorded;  // commands with events, ascending
    int64_t queued = -1;             // the last command
    double ended_ns = 0;             // of a timed step: the last one that has finished
    int64_t settled = -1;            // it and all before it are known to have finished
    uint32_t unrecorded = 0;         // commands since the last event
  };
  ByLane<Progress> progress_;
  // waited_[a][b]: lane a waits for the commands of lane b with lower ids already.
  ByLane<ByLane<int64_t>> waited_;
};

}  // namespace sluice::core::cuda
