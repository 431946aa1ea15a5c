// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "backend/cuda/arenas.h"
#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernel_profiler.h"
#include "backend/cuda/lanes.h"
#include "backend/cuda/ranges.h"
#include "backend/cuda/runner.h"
#include "backend/cuda/staging.h"
#include "base/bytes.h"
#include "base/host_memory.h"

namespace sluice::core {
namespace {

// What cuBLASLt, cuDNN and the memory system like best; arena offsets keep to it.
constexpr int64_t kAlignment = 256;

// The driver was asked to wait for every kernel as it is launched.
bool launches_block() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string_view(value) == "1";
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(CudaOptions options, CudaDevice device, std::shared_ptr<const cuda::Nvml> nvml,
              std::optional<cuda::Nvml::Memory> before, std::shared_ptr<cuda::LibraryCache> cache,
              cuda::Lanes lanes, cuda::Runner runner)
      : options_(std::move(options)),
        device_(std::move(device)),
        nvml_(std::move(nvml)),
        before_(before),
        cache_(std::move(cache)),
        lanes_(std::move(lanes)),
        runner_(std::move(runner)) {}

  std::string_view name() const override { return "cuda"; }
  const LaneTable& lanes() const override { return lanes_.table(); }
  int64_t alignment() const override { return kAlignment; }
  int64_t workspace_bytes(const Op& op) const override { return runner_.workspace_bytes(op); }

  Result<Arenas> reserve(const BytesByTier& bytes) override;
  Status prepare(std::span<const Op> ops) override;
  Status begin(uint32_t commands, bool timed) override;
  Status submit(const Command& command) override;
  std::optional<Fault> finish(std::vector<Interval>* timeline) override;
  Status upload(Location to, const std::byte* from, int64_t bytes) override;
  Status download(std::byte* to, Location from, int64_t bytes) override;
  Status clear(Location to, int64_t bytes) override;
  BytesByTier memory() const override;
  std::string disbelief() const override { return cache_->disbelief(); }
  Status note_activities() override;
  Result<std::vector<DeviceActivity>> activities() override;

 private:
  void note_failure(const std::optional<cuda::Lanes::Failure>& failure);
  void end_noting(std::span<const Interval> timeline);
  int64_t device_bytes() const;
  Status queue(const Command& command);
  Status queue_copy(const Copy& copy, cudaStream_t stream);
  Status rehearse(const Op& op);
  std::byte* address(Location place) const {
    return (place.tier == kHost ? host_arena_.data() : device_arena_.data()) + place.offset;
  }
  cudaStream_t compute() const { return lanes_.stream(lanes().compute()); }

  CudaOptions options_;
  CudaDevice device_;
  std::shared_ptr<const cuda::Nvml> nvml_;
  std::optional<cuda::Nvml::Memory> before_;  // the device before this process came
  std::shared_ptr<cuda::LibraryCache> cache_;
  cuda::DeviceArena device_arena_;
  cuda::HostArena host_arena_;
  cuda::Staging staging_;
  cuda::Lanes lanes_;
  cuda::Runner runner_;
  std::set<std::string> prepared_;       // cost keys
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
  SLUICE_ASSIGN(device_arena_,
                cuda::DeviceArena::reserve(bytes[kDevice], device_, *nvml_, before_ ? before_->used : 0));
  SLUICE_ASSIGN(host_arena_, cuda::HostArena::reserve(bytes[kHost], options_.device));
  return Arenas{{kDevice, device_arena_.data()}, {kHost, host_arena_.data()}};
}

Status CudaBackend::prepare(std::span<const Op> ops) {
  for (const Op& op : ops) {
    const std::string key = cost_key(op);
    if (prepared_.contains(key)) continue;
    SLUICE_TRY(cuda_supports(op));
    const cuda::Scratch scratch{device_arena_.data(), options_.tune ? device_arena_.bytes() : 0};
    SLUICE_TRY(runner_.prepare(op, scratch, compute(), options_.log));
    SLUICE_TRY(rehearse(op));
    prepared_.insert(key);
  }
  // Without the file the next start takes longer, no more.
  if (const Status saved = cache_->save(); !saved.ok() && options_.log) options_.log(saved.message());
  return {};
}

// Runs the op once on zeros in the arena, if it fits there: the driver loads kernels when they first run, and
// what they take belongs to the memory that memory() reports before the first step. Zeros are valid ids and
// positions.
Status CudaBackend::rehearse(const Op& op) {
  int64_t end = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t offset = align_up(end, kAlignment);
    end = offset + bytes;
    return Buffer{device_arena_.data() + offset, bytes};
  };
  std::vector<Buffer> buffers;
  for (const Operand& operand : operands(op)) buffers.push_back(place(operand.bytes()));
  const Buffer workspace = place(workspace_bytes(op));
  if (end > device_arena_.bytes()) return {};
  cudaStream_t stream = compute();
  runner_.part();
  SLUICE_CUDA_TRY(cudaMemsetAsync(device_arena_.data(), 0, size_t(end), stream));
  Status status = runner_.run({&op, buffers, workspace}, stream);
  if (status.ok()) status = cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  if (!status.ok()) return error_at(fmt::format("\"{}\" failed its rehearsal", text(op)), status.error());
  return {};
}

Status CudaBackend::begin(uint32_t commands, bool timed) {
  if (fault_) return fault_->error;
  SLUICE_TRY(host_arena_.wait());
  names_.clear();
  names_.reserve(commands);
  ranges_.begin_step();
  runner_.part();
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
  SLUICE_ASSIGN(const bool waits, lanes_.open(command));
  cudaStream_t stream = lanes_.stream(command.lane);
  if (const auto* launch = std::get_if<Launch>(&command.work)) {
    if (waits) runner_.part();
    SLUICE_TRY(runner_.run(*launch, stream));
  } else {
    SLUICE_TRY(queue_copy(std::get<Copy>(command.work), stream));
  }
  return lanes_.close(command);
}

// A copy of the GPU may not leave the piece of the host arena in which it began.
Status CudaBackend::queue_copy(const Copy& copy, cudaStream_t stream) {
  const bool from_host = copy.from.tier == kHost, to_host = copy.to.tier == kHost;
  const cudaMemcpyKind kind = from_host ? cudaMemcpyHostToDevice
                              : to_host ? cudaMemcpyDeviceToHost
                                        : cudaMemcpyDeviceToDevice;
  const std::byte* const from = address(copy.from);
  std::byte* const to = address(copy.to);
  for (int64_t done = 0; done < copy.bytes;) {
    int64_t bytes = copy.bytes - done;
    if (from_host || to_host) bytes = host_arena_.in_one_piece((from_host ? from : to) + done, bytes);
    SLUICE_CUDA_TRY(cudaMemcpyAsync(to + done, from + done, size_t(bytes), kind, stream));
    done += bytes;
  }
  return {};
}

void CudaBackend::note_failure(const std::optional<cuda::Lanes::Failure>& failure) {
  if (!failure || fault_) return;
  const auto& [first, last, reason] = *failure;
  std::string which = fmt::format("command {} ({})", first, names_[first]);
  if (last > first)
    which += fmt::format(
        " or a launch behind it, command {} ({}) at the latest; CUDA_LAUNCH_BLOCKING=1 tells which", last,
        names_[last]);
  fault_ = Fault{first, error_at(which, reason)};
}

std::optional<Fault> CudaBackend::finish(std::vector<Interval>* timeline) {
  // What was queued before a fault may still use buffers: wait for it in any case.
  note_failure(lanes_.drain());
  ranges_.end_step();
  Status timed;
  if (timeline != nullptr && !fault_) timed = lanes_.intervals(*timeline);
  if (noting_)
    end_noting(timeline != nullptr ? std::span<const Interval>(*timeline) : std::span<const Interval>());
  if (fault_) return fault_;
  if (!timed.ok()) return Fault{std::nullopt, timed.error()};
  return std::nullopt;
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
  SLUICE_CUDA_TRY(cudaSetDevice(options_.device));  // any thread may come
  SLUICE_CUDA_TRY(cudaMemcpy(address(to), from, size_t(bytes), cudaMemcpyHostToDevice));
  // From pageable memory cudaMemcpy returns once the bytes are staged, and the lanes do not wait for its
  // stream.
  SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

Status CudaBackend::download(std::byte* to, Location from, int64_t bytes) {
  if (from.tier == kHost) {
    std::memcpy(to, address(from), size_t(bytes));
    return {};
  }
  SLUICE_CUDA_TRY(cudaSetDevice(options_.device));
  return staging_.download(to, address(from), bytes);
}

Status CudaBackend::clear(Location to, int64_t bytes) {
  if (to.tier == kHost) {
    std::memset(address(to), 0, size_t(bytes));
    return {};
  }
  SLUICE_CUDA_TRY(cudaSetDevice(options_.device));
  SLUICE_CUDA_TRY(cudaMemset(address(to), 0, size_t(bytes)));
  SLUICE_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

BytesByTier CudaBackend::memory() const {
  return {{kDevice, device_bytes()}, {kHost, resident_bytes()}};
}

int64_t CudaBackend::device_bytes() const {
  if (const auto own = nvml_->own_bytes()) return *own;
  // The driver does not tell processes apart here: take the growth since this one came, or everything in use.
  if (const auto now = nvml_->memory(); now && before_) return now->used - before_->used;
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? int64_t(total - free) : 0;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  auto nvml = cuda::Nvml::open(options.device);
  const auto before = nvml->memory();  // this process has no context yet
  SLUICE_ASSIGN(CudaDevice device, cuda::open_device(options.device));
  SLUICE_ASSIGN(auto lanes, cuda::Lanes::create(LaneTable(), options.run_ahead));
  auto cache = std::make_shared<cuda::LibraryCache>(
      options.cache, options.cache.empty() ? "" : fmt::format("{}, {}", device.name, cuda_versions()));
  SLUICE_ASSIGN(auto products, cuda::Products::create(options.deterministic, cache));
  const GpuLibraries libraries{options.attention_workspace_bytes, options.deterministic, device.cc_major};
  SLUICE_ASSIGN(auto attention, cuda::Attention::create(libraries, cache));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
      options, std::move(device), std::move(nvml), before, cache, std::move(lanes),
      cuda::Runner(std::move(products), std::move(attention))));
}

}  // namespace sluice::core
