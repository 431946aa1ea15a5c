// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/lanes.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"

namespace sluice::core::cuda {
namespace {

// Commands of a lane that nobody waits for share an event: enough for the run-ahead to be known.
constexpr uint32_t kEventStride = 16;

// This thread asks whether an event has come, and sleeps in between, unless steps are like one that was
// shorter than this: being woken takes some 30 us.
constexpr std::chrono::microseconds kPause{50};
constexpr double kBriefStepS = 0.02;

// So often it asks several GPUs whether one has failed.
constexpr double kAskEveryS = 0.2;

}  // namespace

Result<Lanes> Lanes::create(const LaneTable& table, std::span<const int> devices, int run_ahead) {
  Lanes lanes(table, devices.size());
  lanes.run_ahead_ = uint32_t(std::max(run_ahead, 1));
  for (size_t d = 0; d < devices.size(); ++d) {
    lanes.events_[d].gpu = devices[d];
    SLUICE_CUDA_TRY(cudaSetDevice(devices[d]));
    SLUICE_CUDA_TRY(cudaEventCreate(lanes.events_[d].origin.receive()));
  }
  for (const Lane lane : table) {
    SLUICE_CUDA_TRY(cudaSetDevice(devices[lanes.device_of(lane)]));
    int least = 0, greatest = 0;
    SLUICE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // Compute goes first where kernels of several lanes compete; copies have engines of their own.
    SLUICE_CUDA_TRY(cudaStreamCreateWithPriority(lanes.streams_[lane].receive(), cudaStreamNonBlocking,
                                                 table[lane].computes() ? greatest : least));
  }
  return lanes;
}

// None has cudaEventBlockingSync, with which this thread could sleep until an event comes. The interrupt that
// wakes it holds the next kernel of the stream up for 6 to 8 us on an H200.
Status Lanes::create_events(size_t count) {
  const auto grow = [&](std::vector<Event>& events, unsigned flags) -> Status {
    while (events.size() < count) {
      Event event;
      SLUICE_CUDA_TRY(cudaEventCreateWithFlags(event.receive(), flags));
      events.push_back(std::move(event));
    }
    return {};
  };
  for (Events& events : events_) {
    SLUICE_CUDA_TRY(cudaSetDevice(events.gpu));
    if (!timed_) {
      SLUICE_TRY(grow(events.plain, cudaEventDisableTiming));
    } else {
      SLUICE_TRY(grow(events.before, 0));
      SLUICE_TRY(grow(events.after, 0));
    }
  }
  return {};
}

Status Lanes::begin(uint32_t commands, bool timed) {
  timed_ = timed;
  since_begin_.lap();
  SLUICE_TRY(create_events(std::min(commands, run_ahead_)));
  commands_ = commands;
  lane_of_.clear();
  lane_of_.reserve(commands);
  finished_ = 0;
  intervals_.clear();
  for (Progress& p : progress_) {
    p.recorded.clear();
    p.queued = p.settled = -1;
    p.ended_ns = 0;
    p.unrecorded = 0;
  }
  follows_.clear();
  for (auto& row : waited_) row = ByLane<int64_t>(table_);
  if (!timed_) return {};
  intervals_.reserve(commands);
  follows_.reserve(commands);
  // Times of several GPUs are told apart by their origins, which follow the first one's within microseconds.
  for (size_t d = 0; d < events_.size(); ++d) {
    cudaStream_t compute = stream(table_.compute(Tier::device(d)));
    if (d > 0) SLUICE_CUDA_TRY(cudaStreamWaitEvent(compute, events_.front().origin.get(), 0));
    SLUICE_CUDA_TRY(cudaEventRecord(events_[d].origin.get(), compute));
  }
  for (const Lane lane : table_) {
    if (!table_[lane].computes())
      SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream(lane), events_[device_of(lane)].origin.get(), 0));
  }
  return {};
}

Result<bool> Lanes::open(const Command& command) {
  bool waits = false;
  SLUICE_CHECK(command.id == lane_of_.size() && command.id < commands_,
               "command {} submitted as number {} of {}", command.id, lane_of_.size(), commands_);
  // Commands up to an old one may still be under way on other lanes, but no more than run_ahead in all.
  while (command.id - finished_ >= run_ahead_) SLUICE_TRY(finish_one());
  for (const uint32_t id : command.waits) {
    SLUICE_CHECK(id < command.id, "command {} waits for command {}", command.id, id);
    const Lane other = lane_of_[id];
    int64_t& known = waited_[command.lane][other];
    if (other == command.lane || id < known || id < finished_) continue;
    SLUICE_CUDA_TRY(cudaStreamWaitEvent(stream(command.lane), done(id), 0));
    known = int64_t{id} + 1;
    waits = true;
  }
  bool follows = false;
  if (timed_ && !waits) {
    SLUICE_ASSIGN(follows, this->follows(command.lane));
  }
  // From here on a part of it may be under way.
  lane_of_.push_back(command.lane);
  progress_[command.lane].queued = command.id;
  if (!timed_) return waits;
  follows_.push_back(follows);
  if (!follows) SLUICE_CUDA_TRY(cudaEventRecord(before(command.id), stream(command.lane)));
  return waits;
}

Result<bool> Lanes::follows(Lane lane) const {
  const int64_t last = progress_[lane].queued;
  if (last < int64_t{finished_}) return false;
  const cudaError_t code = cudaEventQuery(done(uint32_t(last)));
  if (code == cudaErrorNotReady) return true;
  SLUICE_TRY(check(code, "cudaEventQuery"));
  return false;
}

Status Lanes::close(const Command& command) {
  Progress& p = progress_[command.lane];
  if (timed_ || command.awaited || ++p.unrecorded == kEventStride) return record(command.id);
  return {};
}

Status Lanes::record(uint32_t id) {
  const Lane lane = lane_of_[id];
  SLUICE_CUDA_TRY(cudaEventRecord(done(id), stream(lane)));
  progress_[lane].recorded.push_back(id);
  progress_[lane].unrecorded = 0;
  return {};
}

Status Lanes::settle(uint32_t id) {
  Progress& p = progress_[lane_of_[id]];
  if (p.settled >= id) return {};
  auto event = std::lower_bound(p.recorded.begin(), p.recorded.end(), id);
  if (event == p.recorded.end()) {
    SLUICE_TRY(record(uint32_t(p.queued)));
    event = std::prev(p.recorded.end());
  }
  SLUICE_TRY(wait_for(done(*event)));
  p.settled = *event;
  return {};
}

Status Lanes::finish_one() {
  const uint32_t id = finished_;
  SLUICE_TRY(settle(id));
  if (timed_) {
    constexpr double kNsPerMs = 1e6;
    float start = 0, end = 0;
    cudaEvent_t origin = events_of(id).origin.get();
    double& ended_ns = progress_[lane_of_[id]].ended_ns;
    if (!follows_[id]) SLUICE_CUDA_TRY(cudaEventElapsedTime(&start, origin, before(id)));
    SLUICE_CUDA_TRY(cudaEventElapsedTime(&end, origin, done(id)));
    const double start_ns = follows_[id] ? ended_ns : double(start) * kNsPerMs;
    ended_ns = double(end) * kNsPerMs;
    intervals_.push_back({start_ns, ended_ns});
  }
  ++finished_;
  return {};
}

// A stream that waits for one of a GPU that is lost may wait for ever.
Status Lanes::wait_for(cudaEvent_t event) const {
  Stopwatch asked;
  for (;;) {
    const cudaError_t code = cudaEventQuery(event);
    if (code != cudaErrorNotReady) return check(code, "cudaEventQuery");
    if (!brief_) std::this_thread::sleep_for(kPause);
    if (events_.size() == 1 || asked.seconds() < kAskEveryS) continue;
    if (const auto device = failed_device())
      return check(cudaStreamQuery(stream(table_.compute(Tier::device(*device)))), "cudaStreamQuery");
    asked.lap();
  }
}

std::optional<size_t> Lanes::failed_device() const {
  for (size_t d = 0; d < events_.size(); ++d) {
    const cudaError_t code = cudaStreamQuery(stream(table_.compute(Tier::device(d))));
    if (code != cudaSuccess && code != cudaErrorNotReady) return d;
  }
  return std::nullopt;
}

std::optional<Lanes::Failure> Lanes::drain() {
  while (finished_ < lane_of_.size()) {
    if (const Status status = finish_one(); !status.ok()) return failure(status.error());
  }
  brief_ = since_begin_.seconds() < kBriefStepS;
  return std::nullopt;
}

Lanes::Failure Lanes::failure(Error error) const {
  // Copies do not fail once they are queued: where launches are under way it was one of them.
  std::optional<Failure> found;
  const std::optional<size_t> device = failed_device();
  for (const Lane lane : table_) {
    const Progress& p = progress_[lane];
    if (!table_[lane].computes() || p.settled >= p.queued) continue;
    if (device && device_of(lane) != *device) continue;
    auto first = uint32_t(p.settled + 1);
    while (lane_of_[first] != lane) ++first;
    if (!found) found = Failure{first, uint32_t(p.queued), {}};
    found->first = std::min(found->first, first);
    found->last = std::max(found->last, uint32_t(p.queued));
  }
  if (!found) {
    // A copy, or a GPU that is lost: the first command there that is not known to have finished.
    const auto under_way = [&](uint32_t id) {
      return device_of(lane_of_[id]) == *device && progress_[lane_of_[id]].settled < int64_t{id};
    };
    uint32_t first = finished_;
    while (device && first < lane_of_.size() && !under_way(first)) ++first;
    if (first == lane_of_.size()) first = finished_;
    found = Failure{first, first, {}};
  }
  found->error = std::move(error);
  return *std::move(found);
}

const std::vector<Interval>& Lanes::intervals() const {
  SLUICE_CHECK(timed_, "intervals of a step that was not timed");
  return intervals_;
}

}  // namespace sluice::core::cuda
