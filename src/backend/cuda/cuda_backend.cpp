// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "backend/cuda/arenas.h"
#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/disk_lane.h"
#include "backend/cuda/kernel_profiler.h"
#include "backend/cuda/lanes.h"
#include "backend/cuda/ranges.h"
#include "backend/cuda/runner.h"
#include "backend/cuda/staging.h"
#include "backend/cuda/step_graph.h"
#include "base/bytes.h"
#include "base/parallel.h"
#include "host/host_memory.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

// The preferred alignment of cuBLASLt, cuDNN and the memory system; arena offsets keep to it.
constexpr int64_t kAlignment = 256;

// The driver was asked to wait for every kernel as it is launched.
bool launches_block() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string_view(value) == "1";
}

// One of the devices that share a step.
struct Gpu {
  int index;  // as the driver counts
  CudaDevice device;
  std::shared_ptr<const cuda::Nvml> nvml;
  DeviceUse before;  // what was in use before this process came
  cuda::Runner runner;
  cuda::DeviceArena arena{};
  std::unique_ptr<cuda::Staging> staging = std::make_unique<cuda::Staging>();
  std::unique_ptr<cuda::DiskLane> disk = {};  // null: it has none

  // For the calls that follow on this thread.
  Status make_current() const { return cuda::check(cudaSetDevice(index), "cudaSetDevice"); }

  // That have grown since then and are no process's, such as the tables of pinned memory: as it was when no
  // other process was there, whose they may be, too.
  mutable int64_t unnamed_bytes = 0;
  // As the driver counts. Where it does not tell processes apart, all that has grown is this one's; where it
  // says nothing, all that is in use.
  int64_t bytes() const {
    if (const auto now = nvml->memory()) {
      const auto own = nvml->own_bytes();
      if (!own) return std::max<int64_t>(0, now->used - before.used_bytes);
      const int64_t named = nvml->named_bytes();
      if (named == *own) unnamed_bytes = std::max<int64_t>(0, now->used - named - before.unnamed());
      return *own + unnamed_bytes;
    }
    size_t free = 0, total = 0;
    const bool known = make_current().ok() && cudaMemGetInfo(&free, &total) == cudaSuccess;
    return known ? int64_t(total - free) : 0;
  }
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(CudaOptions options, std::vector<Gpu> gpus, std::shared_ptr<cuda::LibraryCache> cache,
              cuda::Lanes lanes)
      : options_(std::move(options)),
        gpus_(std::move(gpus)),
        cache_(std::move(cache)),
        lanes_(std::move(lanes)),
        note_(cache_->stale_file_note()) {}

  std::string_view name() const override { return "cuda"; }
  const LaneTable& lanes() const override { return lanes_.table(); }
  int device_number(Tier device) const override { return gpus_[device.index()].index; }
  int64_t alignment() const override { return kAlignment; }
  int64_t workspace_bytes(const Op& op) const override { return gpus_.front().runner.workspace_bytes(op); }

  void set_host_parts(std::vector<HostPart> parts) override { host_parts_ = std::move(parts); }
  void set_disk(std::shared_ptr<const DiskSource> disk) override {
    disk_ = std::make_unique<DiskReaders>(std::move(disk));
  }
  Result<Arenas> reserve(const BytesByTier& bytes) override;
  Result<Arenas> grow(const BytesByTier& bytes) override;
  Status prepare(std::span<const SharedOp> ops) override;
  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  Result<bool> submit_at_once(std::span<const Command> commands,
                              std::unique_ptr<Recording>& recording) override;
  Status wait(uint32_t command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;
  Status upload(Location to, const std::byte* from, int64_t bytes) override;
  Status download(std::byte* to, Location from, int64_t bytes) override;
  Status clear(Location to, int64_t bytes) override;
  BytesByTier memory() const override;
  std::string take_note() override { return std::exchange(note_, {}); }
  Status note_activities() override;
  Result<std::vector<DeviceActivity>> activities() override;

 private:
  void note_failure(const std::optional<cuda::Lanes::Failure>& failure);
  void note_failed_host_work();
  void end_noting(std::span<const Interval> timeline);
  std::vector<NearPart> near() const;
  bool can_record(std::span<const Command> commands) const;
  Status queue(const Command& command);
  Status queue_work(const Command& command, Gpu& gpu, bool waits);
  Status queue_copy(const Copy& copy, cudaStream_t stream);
  Status queue_read(uint32_t command, const Copy& copy, Gpu& gpu, cudaStream_t stream);
  // The error with the GPU's number, where there are several.
  Status of(const Gpu& gpu, Status status) const {
    if (status.ok() || gpus_.size() == 1) return status;
    return error_at(fmt::format("device {}", gpu.index), status.error());
  }
  Status upload(Gpu& gpu, Location to, const std::byte* from, int64_t bytes);
  Status clear(Gpu& gpu, Location to, int64_t bytes);
  Status prepare(Gpu& gpu, Tier tier, const Op& op);
  Status rehearse(Gpu& gpu, Tier tier, const Op& op);
  Gpu& gpu_of(Tier device) { return gpus_[device.index()]; }
  std::byte* address(Location place) const {
    return (place.tier == kHost ? host_arena_.data() : gpus_[place.tier.index()].arena.data()) + place.offset;
  }
  // The device whose stream a lane is: where it computes or loads to, or copies from.
  Tier device_of(Lane lane) const {
    const LaneEnds& ends = lanes()[lane];
    return ends.from.is_device() ? ends.from : ends.to;
  }

  CudaOptions options_;
  std::vector<Gpu> gpus_;  // by device
  std::shared_ptr<cuda::LibraryCache> cache_;
  std::vector<HostPart> host_parts_;
  cuda::HostArena host_arena_;
  std::unique_ptr<DiskReaders> disk_;
  cuda::Lanes lanes_;
  std::string note_;
  bool records_ = !launches_block();  // steps that are short; the driver has not refused to
  bool at_once_ = false;              // all commands of this step were queued so
  int current_ = -1;                  // the GPU that the thread which submits has made current in this step
  std::set<std::string> prepared_;    // cost keys
  std::vector<std::string_view> names_;  // of the commands queued in this step
  std::optional<Fault> fault_;
  cuda::Ranges ranges_;
  std::unique_ptr<cuda::KernelProfiler> profiler_;  // opened when first asked for
  bool noting_ = false;                             // it is on
  std::optional<Error> not_noted_;                  // why the last step has no activities
  std::vector<DeviceActivity> activities_;
};

std::string_view name_of_work(const Command& command) {
  if (const auto* launch = std::get_if<Launch>(&command.work)) return name_of(*launch->op);
  return "copy";
}

Result<Arenas> CudaBackend::reserve(const BytesByTier& bytes) {
  Arenas arenas;
  for (size_t d = 0; d < gpus_.size(); ++d) {
    Gpu& gpu = gpus_[d];
    SLUICE_TRY(gpu.make_current());
    auto arena =
        cuda::DeviceArena::reserve(bytes[Tier::device(d)], gpu.device, *gpu.nvml, gpu.before.used_bytes);
    if (!arena.ok()) return of(gpu, arena.error()).error();
    gpu.arena = std::move(*arena);
    arenas[Tier::device(d)] = gpu.arena.data();
  }
  SLUICE_ASSIGN(host_arena_, cuda::HostArena::reserve(bytes[kHost], gpus_.front().index, near()));
  arenas[kHost] = host_arena_.data();
  return arenas;
}

std::vector<NearPart> CudaBackend::near() const {
  std::vector<std::string> addresses;
  for (const Gpu& gpu : gpus_) addresses.push_back(gpu.device.pci);
  return near_parts(host_parts_, addresses);
}

// A device's arena does not grow: there is no room for the old one and the new one at once.
Result<Arenas> CudaBackend::grow(const BytesByTier& bytes) {
  Arenas arenas;
  for (size_t d = 0; d < gpus_.size(); ++d) {
    const int64_t held = gpus_[d].arena.bytes(), wanted = bytes[Tier::device(d)];
    if (wanted > held) {
      return of(gpus_[d],
                error(ErrorKind::Device, "the device arena has {}, and cannot grow to {}: {} are lacking",
                      exact_bytes(held), exact_bytes(wanted), exact_bytes(wanted - held)))
          .error();
    }
    arenas[Tier::device(d)] = gpus_[d].arena.data();
  }
  SLUICE_TRY(host_arena_.wait());
  SLUICE_TRY(host_arena_.grow(bytes[kHost], near()));
  arenas[kHost] = host_arena_.data();
  return arenas;
}

Status CudaBackend::prepare(std::span<const SharedOp> ops) {
  std::vector<SharedOp> fresh;
  for (const SharedOp& op : ops) {
    if (!prepared_.insert(cost_key(op)).second) continue;
    fresh.push_back(op);
  }
  const auto prepare_on = [&](size_t d) -> Status {
    for (const Op& op : fresh) SLUICE_TRY(of(gpus_[d], prepare(gpus_[d], Tier::device(d), op)));
    return {};
  };
  const auto prepare_all = [&]() -> Status {
    for (const Op& op : fresh) SLUICE_TRY(cuda_supports(op, gpus_.front().runner.capability()));
    // The first GPU chooses kernels. The others find what it chose, or bits would depend on who computes.
    SLUICE_TRY(prepare_on(0));
    std::vector<Status> others(gpus_.size() - 1);
    for_each_parallel(std::ssize(others), int(others.size()),
                      [&](int64_t i) { others[size_t(i)] = prepare_on(size_t(i) + 1); });
    for (const Status& status : others) SLUICE_TRY(status);
    return {};
  };
  if (const Status done = prepare_all(); !done.ok()) {
    for (const Op& op : fresh) prepared_.erase(cost_key(op));
    return done;
  }
  // Without the file the next start takes longer, no more.
  if (const Status saved = cache_->save(); !saved.ok() && options_.log) options_.log(saved.message());
  return {};
}

Status CudaBackend::prepare(Gpu& gpu, Tier tier, const Op& op) {
  SLUICE_TRY(gpu.make_current());
  const cuda::Scratch scratch{gpu.arena.data(), options_.tune ? gpu.arena.bytes() : 0};
  SLUICE_TRY(gpu.runner.prepare(op, scratch, lanes_.stream(lanes().compute(tier)), options_.log));
  // A rehearsal of an exchange would need every process.
  return lane_of(op) == LaneKind::Network ? Status() : rehearse(gpu, tier, op);
}

// Runs the op once on zeros in the arena, if it fits there. The driver loads kernels when they first run, and
// the memory that they take belongs to the memory that memory() reports before the first step. Zeros are
// valid ids and positions.
Status CudaBackend::rehearse(Gpu& gpu, Tier tier, const Op& op) {
  int64_t end = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t offset = align_up(end, kAlignment);
    end = offset + bytes;
    return Buffer{gpu.arena.data() + offset, bytes};
  };
  std::vector<Buffer> buffers;
  for (const Operand& operand : operands(op)) buffers.push_back(place(operand.bytes()));
  const Buffer workspace = place(workspace_bytes(op));
  if (end > gpu.arena.bytes()) return {};
  cudaStream_t stream = lanes_.stream(lanes().compute(tier));
  gpu.runner.part();
  SLUICE_CUDA_TRY(cudaMemsetAsync(gpu.arena.data(), 0, size_t(end), stream));
  Status status = gpu.runner.run({&op, buffers, workspace}, stream);
  if (status.ok()) status = cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  if (!status.ok()) return error_at(fmt::format("\"{}\" failed its rehearsal", to_text(op)), status.error());
  return {};
}

Status CudaBackend::begin(uint32_t commands, bool timed) {
  if (fault_) return fault_->error;
  SLUICE_TRY(host_arena_.wait());
  names_.clear();
  names_.reserve(commands);
  current_ = -1;
  at_once_ = false;
  ranges_.begin_step();
  for (Gpu& gpu : gpus_) {
    gpu.runner.part();
    gpu.runner.exchange().begin_step();
    if (gpu.disk) gpu.disk->begin_step();
  }
  return lanes_.begin(commands, timed);
}

Status CudaBackend::submit(const Command& command) {
  if (fault_) return fault_->error;
  names_.push_back(name_of_work(command));
  ranges_.enter(command.path, !lanes()[command.lane].computes());
  if (noting_) profiler_->enter(command.id);
  Status status = queue(command);
  if (noting_) profiler_->leave();
  if (!status.ok()) {
    // Unless launches are waited for, the error may be of one long before.
    if (!launches_block()) note_failure(lanes_.drain());
    if (!fault_)
      fault_ = Fault{command.id,
                     error_at(fmt::format("command {} ({})", command.id, names_.back()), status.error())};
    return fault_->error;
  }
  return {};
}

Status CudaBackend::queue(const Command& command) {
  // Kernels and library calls go to the current device.
  Gpu& gpu = gpu_of(device_of(command.lane));
  if (gpu.index != current_) {
    SLUICE_TRY(gpu.make_current());
    current_ = gpu.index;
  }
  SLUICE_ASSIGN(const bool waits, lanes_.open(command));
  SLUICE_TRY(queue_work(command, gpu, waits));
  return lanes_.close(command);
}

// `waits`: the command's stream waits for another one before it.
Status CudaBackend::queue_work(const Command& command, Gpu& gpu, bool waits) {
  cudaStream_t stream = lanes_.stream(command.lane);
  if (const auto* launch = std::get_if<Launch>(&command.work)) {
    if (waits) gpu.runner.part();
    gpu.runner.exchange().at(command.id, launch->task);
    return gpu.runner.run(*launch, stream);
  }
  if (lanes()[command.lane].computes()) gpu.runner.part();
  const Copy& copy = std::get<Copy>(command.work);
  return copy.from.tier == kDisk ? queue_read(command.id, copy, gpu, stream) : queue_copy(copy, stream);
}

// The host does nothing within a graph, and kernels are told apart and ranges kept as they are queued.
bool CudaBackend::can_record(std::span<const Command> commands) const {
  // A graph takes memory for each of them, beside the arenas.
  constexpr size_t kMostCommands = 2048;
  if (!records_ || noting_ || gpus_.size() > 1 || commands.empty() || commands.size() > kMostCommands)
    return false;
  return lanes_.brief() && std::ranges::none_of(commands, [&](const Command& c) {
           const LaneEnds& ends = lanes()[c.lane];
           return ends.network || ends.from == kDisk;
         });
}

// Where steps are short, what is between two kernels counts: a graph has the least of it, and takes this
// thread a call. The first step of the commands goes on as others do, and loads kernels, which no recording
// may.
Result<bool> CudaBackend::submit_at_once(std::span<const Command> commands,
                                         std::unique_ptr<Recording>& recording) {
  if (fault_) return fault_->error;
  if (!can_record(commands)) return false;
  if (!recording) {
    recording = std::make_unique<cuda::StepGraph>();
    return false;
  }
  Gpu& gpu = gpus_.front();
  auto& graph = static_cast<cuda::StepGraph&>(*recording);
  SLUICE_TRY(gpu.make_current());
  if (!graph.recorded()) {
    const Status recorded = graph.record(lanes_, commands, [&](const Command& command, bool waits) {
      return queue_work(command, gpu, waits);
    });
    gpu.runner.part();
    if (!recorded.ok()) {
      records_ = false;
      note_ = fmt::format("short steps take longer than they could: they are no CUDA graphs, as {}",
                          recorded.message());
      return false;
    }
  }
  for (const Command& command : commands) names_.push_back(name_of_work(command));
  at_once_ = true;
  const Command all{.id = 0, .lane = lanes().compute(), .waits = {}, .work = {}, .cost_ns = 0};
  const auto launch = [&]() -> Status {
    SLUICE_TRY(lanes_.open(all));
    SLUICE_TRY(graph.launch(lanes_.stream(all.lane)));
    return lanes_.close(all);
  };
  const Status launched = launch();
  if (launched.ok()) return true;
  note_failure(lanes_.drain());
  if (!fault_) fault_ = Fault{std::nullopt, launched.error()};
  return fault_->error;
}

// A copy of the GPU may not leave the piece of the host arena in which it began.
Status CudaBackend::queue_copy(const Copy& copy, cudaStream_t stream) {
  const bool from_host = copy.from.tier == kHost, to_host = copy.to.tier == kHost;
  const cudaMemcpyKind kind = from_host ? cudaMemcpyHostToDevice
                              : to_host ? cudaMemcpyDeviceToHost
                                        : cudaMemcpyDeviceToDevice;
  const std::byte* const from = address(copy.from);
  std::byte* const to = address(copy.to);
  return copy.for_each_part([&](int64_t begin, int64_t count) -> Status {
    for (int64_t done = begin; done < begin + count;) {
      int64_t bytes = begin + count - done;
      if (from_host || to_host) bytes = host_arena_.in_one_piece((from_host ? from : to) + done, bytes);
      SLUICE_CUDA_TRY(cudaMemcpyAsync(to + done, from + done, size_t(bytes), kind, stream));
      done += bytes;
    }
    return {};
  });
}

Status CudaBackend::queue_read(uint32_t command, const Copy& copy, Gpu& gpu, cudaStream_t stream) {
  return copy.for_each_part([&](int64_t begin, int64_t count) {
    return gpu.disk->copy(command, *disk_, copy.from.offset + begin, address(copy.to) + begin, count, stream);
  });
}

void CudaBackend::note_failure(const std::optional<cuda::Lanes::Failure>& failure) {
  if (!failure || fault_) return;
  const auto& [first, of_lanes, reason] = *failure;
  // The lanes take commands that were queued at once for one.
  const uint32_t last = at_once_ ? uint32_t(names_.size()) - 1 : of_lanes;
  std::string which = fmt::format("command {} ({})", first, names_[first]);
  if (last > first)
    which += fmt::format(
        " or a launch behind it, command {} ({}) at the latest; CUDA_LAUNCH_BLOCKING=1 tells which", last,
        names_[last]);
  fault_ = Fault{first, error_at(which, reason)};
}

// The stream goes on behind a sum or a read that failed, with values that are of no use.
void CudaBackend::note_failed_host_work() {
  for (Gpu& gpu : gpus_) {
    if (!fault_ && gpu.disk) fault_ = gpu.disk->failure();
    if (!fault_) fault_ = gpu.runner.exchange().failure();
  }
}

Status CudaBackend::wait(uint32_t command) {
  if (fault_) return fault_->error;
  const Status waited = lanes_.wait(command);
  if (!waited.ok()) {
    note_failure(lanes_.drain());
    if (!fault_) fault_ = Fault{command, waited.error()};
    return fault_->error;
  }
  note_failed_host_work();
  if (fault_) return fault_->error;
  // The caller's copies come between, and make devices current.
  current_ = -1;
  for (Gpu& gpu : gpus_) gpu.runner.part();
  return {};
}

std::optional<Fault> CudaBackend::finish(std::vector<Interval>* timeline) {
  // Work queued before a fault may still use buffers: wait for it in any case.
  note_failure(lanes_.drain());
  note_failed_host_work();
  ranges_.end_step();
  if (timeline != nullptr && !fault_) *timeline = lanes_.intervals();
  if (noting_)
    end_noting(timeline != nullptr ? std::span<const Interval>(*timeline) : std::span<const Interval>());
  return fault_;
}

Status CudaBackend::note_activities() {
  if (!profiler_) {
    SLUICE_ASSIGN(profiler_, cuda::KernelProfiler::open());
  }
  SLUICE_TRY(profiler_->turn_on());
  noting_ = true;
  return {};
}

void CudaBackend::end_noting(std::span<const Interval> timeline) {
  noting_ = false;
  auto records = profiler_->turn_off();
  not_noted_.reset();
  activities_.clear();
  if (!records.ok()) {
    not_noted_ = records.error();
  } else {
    activities_ = place_on_timeline(std::move(records->activities), records->calls, timeline);
    // The step's inputs were copied after noting began and before the step did.
    std::erase_if(activities_, [](const DeviceActivity& a) { return !a.command && a.time.start_ns < 0; });
  }
}

Result<std::vector<DeviceActivity>> CudaBackend::activities() {
  if (not_noted_) return *std::exchange(not_noted_, std::nullopt);
  return std::exchange(activities_, {});
}

Status CudaBackend::upload(Location to, const std::byte* from, int64_t bytes) {
  if (to.tier == kHost) {
    std::memcpy(address(to), from, size_t(bytes));
    return {};
  }
  Gpu& gpu = gpu_of(to.tier);
  return of(gpu, upload(gpu, to, from, bytes));
}

Status CudaBackend::upload(Gpu& gpu, Location to, const std::byte* from, int64_t bytes) {
  SLUICE_TRY(gpu.make_current());  // any thread may come
  SLUICE_CUDA_TRY(cudaMemcpy(address(to), from, size_t(bytes), cudaMemcpyHostToDevice));
  // From pageable memory cudaMemcpy returns once the bytes are staged, and the lanes do not wait for its
  // stream.
  SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

Status CudaBackend::download(std::byte* to, Location from, int64_t bytes) {
  if (from.tier == kDisk) return disk_->read(from.offset, {to, size_t(bytes)});
  if (from.tier == kHost) {
    std::memcpy(to, address(from), size_t(bytes));
    return {};
  }
  Gpu& gpu = gpu_of(from.tier);
  Status done = gpu.make_current();
  if (done.ok()) done = gpu.staging->download(to, address(from), bytes);
  return of(gpu, done);
}

Status CudaBackend::clear(Location to, int64_t bytes) {
  if (to.tier == kHost) {
    std::memset(address(to), 0, size_t(bytes));
    return {};
  }
  Gpu& gpu = gpu_of(to.tier);
  return of(gpu, clear(gpu, to, bytes));
}

Status CudaBackend::clear(Gpu& gpu, Location to, int64_t bytes) {
  SLUICE_TRY(gpu.make_current());
  SLUICE_CUDA_TRY(cudaMemset(address(to), 0, size_t(bytes)));
  SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

BytesByTier CudaBackend::memory() const {
  BytesByTier bytes;
  for (size_t d = 0; d < gpus_.size(); ++d) bytes[Tier::device(d)] = gpus_[d].bytes();
  bytes[kHost] = resident_bytes();
  return bytes;
}

// Whether every GPU copies to its neighbours in the ring; if so, lets them.
Result<bool> join(std::span<const int> devices) {
  std::vector<std::pair<int, int>> neighbours;
  for (size_t d = 0; d < devices.size(); ++d) {
    const int one = devices[d], next = devices[(d + 1) % devices.size()];
    for (const auto& pair : {std::pair(one, next), std::pair(next, one)}) {
      const bool known = std::find(neighbours.begin(), neighbours.end(), pair) != neighbours.end();
      if (one != next && !known) neighbours.push_back(pair);
    }
  }
  for (const auto& [from, to] : neighbours) {
    int can = 0;
    SLUICE_CUDA_TRY(cudaDeviceCanAccessPeer(&can, from, to));
    if (can == 0) return false;
  }
  for (const auto& [from, to] : neighbours) {
    SLUICE_CUDA_TRY(cudaSetDevice(from));
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // by a backend before this one: no lasting error
      continue;
    }
    SLUICE_TRY(cuda::check(code, "cudaDeviceEnablePeerAccess"));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  SLUICE_CHECK(!options.devices.empty() && options.devices.size() <= Tier::kMostDevices, "{} devices",
               options.devices.size());
  std::vector<std::shared_ptr<const cuda::Nvml>> nvml;
  std::vector<DeviceUse> before = options.before;
  for (const int index : options.devices) {
    nvml.push_back(cuda::Nvml::open(index));
    if (before.size() >= nvml.size()) continue;
    const auto now = nvml.back()->memory();
    before.push_back({now ? now->used : 0, nvml.back()->named_bytes()});
  }
  std::vector<Gpu> gpus;
  std::shared_ptr<cuda::LibraryCache> cache;
  for (size_t d = 0; d < options.devices.size(); ++d) {
    const int index = options.devices[d];
    SLUICE_ASSIGN(CudaDevice device, cuda::open_device(index));
    if (!gpus.empty() && device.name != gpus.front().device.name) {
      return error(ErrorKind::Device,
                   "run.devices: GPU {} is a {} and GPU {} a {}; devices that share a step are of one kind",
                   gpus.front().index, gpus.front().device.name, index, device.name);
    }
    if (!cache) {
      cache = std::make_shared<cuda::LibraryCache>(
          options.cache, options.cache.empty() ? "" : fmt::format("{}, {}", device.name, cuda_versions()));
    }
    const int64_t sums_bytes = options.scaled_sums_bytes > 0
                                   ? options.scaled_sums_bytes
                                   : cuda::Products::sums_bytes_on(device.capability);
    SLUICE_ASSIGN(auto products,
                  cuda::Products::create({options.deterministic, options.exact, sums_bytes}, cache));
    const GpuLibraries libraries{options.attention_workspace_bytes, options.deterministic, device.capability};
    SLUICE_ASSIGN(auto attention, cuda::Attention::create(libraries, options.exact, cache));
    SLUICE_ASSIGN(
        auto exchange,
        cuda::Exchange::create(options.network, static_cast<cuda::DirectNetwork*>(options.device_network)));
    gpus.push_back({index, std::move(device), nvml[d], before[d],
                    cuda::Runner(std::move(products), std::move(attention), std::move(exchange))});
    if (options.reads_disk) {
      SLUICE_ASSIGN(gpus.back().disk, cuda::DiskLane::create());
    }
  }
  bool joined = false;
  if (options.joined && gpus.size() > 1) {
    SLUICE_ASSIGN(joined, join(options.devices));
  }
  LaneTable table = gpus.size() == 1 ? LaneTable() : LaneTable::of_devices(gpus.size(), joined);
  if (options.network != nullptr) table.add_networks();
  if (options.reads_disk) table.add_reads();
  SLUICE_ASSIGN(auto lanes, cuda::Lanes::create(table, options.devices, options.run_ahead));
  SLUICE_TRY(gpus.front().make_current());
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(options, std::move(gpus), cache, std::move(lanes)));
}

}  // namespace sluice::core
