// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "backend/cpu/arena.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/lanes.h"
#include "backend/cpu/op_table.h"
#include "backend/cpu/thread_pool.h"
#include "host/cores.h"
#include "host/host_memory.h"

namespace sluice::core {
namespace {

using cpu::Arena;

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector

int core_count() {
  return allowed_cores();
}

// The worker of one device.
struct Worker {
  explicit Worker(int threads)
      : pool(threads), scratch(static_cast<size_t>(pool.threads())), scratch_data(scratch.size()) {}

  Status reserve_scratch(int64_t bytes) {
    for (size_t i = 0; i < scratch.size(); ++i) {
      if (bytes > scratch[i].bytes()) {
        SLUICE_ASSIGN(scratch[i], Arena::create("scratch", bytes, pool));
      }
      scratch_data[i] = scratch[i].data();
    }
    return {};
  }

  cpu::ThreadPool pool;
  std::vector<Arena> scratch;  // per thread of the pool
  std::vector<std::byte*> scratch_data;
};

std::vector<std::unique_ptr<Worker>> workers_of(const CpuOptions& options) {
  const int threads = options.threads > 0 ? options.threads : core_count();
  std::vector<std::unique_ptr<Worker>> out;
  for (int d = 0; d < options.devices; ++d)
    out.push_back(std::make_unique<Worker>(std::max(1, threads / options.devices)));
  return out;
}

LaneTable lanes_of(const CpuOptions& options) {
  LaneTable table =
      options.devices == 1 ? LaneTable() : LaneTable::of_devices(size_t(options.devices), options.joined);
  if (options.network != nullptr) table.add_networks();
  if (options.reads_disk) table.add_reads();
  return table;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : isa_(options.isa),
        exact_(options.exact),
        workers_(workers_of(options)),
        network_(options.network),
        exchanger_(1),
        lanes_(
            lanes_of(options),
            [this](const LaneEnds& lane, const Launch& launch) { return run(lane, launch); },
            [this](int64_t offset, std::span<std::byte> to) { return disk_->read(offset, to); }) {}

  std::string_view name() const override { return "cpu"; }
  const LaneTable& lanes() const override { return lanes_.table(); }
  int64_t alignment() const override { return kAlignment; }

  int64_t workspace_bytes(const Op& op) const override {
    int64_t product_bytes = 0;
    for (const cpu::GemmShape& shape : cpu::products(op, exact_)) {
      product_bytes = std::max(product_bytes, cpu::workspace_bytes(isa_, shape));
    }
    return cpu::own_workspace_bytes(op, exact_) + product_bytes;
  }

  void set_disk(std::shared_ptr<const DiskSource> disk) override {
    disk_ = std::make_unique<DiskReaders>(std::move(disk));
  }

  Result<Arenas> reserve(const BytesByTier& bytes) override {
    int64_t all = 0;
    for (const Tier tier : lanes().tiers()) all += bytes[tier];
    if (const int64_t available = available_bytes(); all > available) {
      return error(ErrorKind::Device,
                   "the arenas need {} of main memory, device {}{} and host {}, but only {} are available: "
                   "lower the caps",
                   format_bytes(all), format_bytes(bytes[kDevice]),
                   workers_.size() == 1 ? "" : fmt::format(" ({} of them)", workers_.size()),
                   format_bytes(bytes[kHost]), format_bytes(available));
    }
    for (const Tier tier : lanes().tiers()) {
      SLUICE_CHECK(!arenas_.contains(tier), "arenas are reserved once");
      SLUICE_ASSIGN(arenas_[tier], Arena::create(name_of(tier), bytes[tier], workers_.front()->pool));
      bases_[tier] = arenas_[tier].data();
    }
    return bases_;
  }

  Result<Arenas> grow(const BytesByTier& bytes) override {
    for (const Tier tier : lanes().tiers()) {
      SLUICE_TRY(arenas_[tier].grow(name_of(tier), bytes[tier], workers_.front()->pool));
      bases_[tier] = arenas_[tier].data();
    }
    return bases_;
  }

  Status prepare(std::span<const SharedOp> ops) override {
    int64_t scratch = 0;
    for (const Op& op : ops) {
      SLUICE_TRY(cpu_supports(op));
      for (const cpu::GemmShape& shape : cpu::products(op, exact_)) {
        scratch = std::max(scratch, cpu::scratch_bytes(isa_, shape));
      }
      scratch = std::max(scratch, cpu::scratch_bytes(op, exact_));
      table_.add(op, workspace_bytes(op));
    }
    for (const auto& worker : workers_) SLUICE_TRY(worker->reserve_scratch(scratch));
    return {};
  }

  Status begin(uint32_t commands, bool) override { return lanes_.begin(commands); }
  Status submit(const Command& command) override { return lanes_.submit(command, bases_); }
  Status wait(uint32_t command) override { return lanes_.wait(command); }
  std::optional<Fault> finish(std::vector<Interval>* timeline) override { return lanes_.finish(timeline); }

  Status upload(Location to, const std::byte* from, int64_t bytes) override {
    std::memcpy(bases_[to.tier] + to.offset, from, static_cast<size_t>(bytes));
    return {};
  }
  Status download(std::byte* to, Location from, int64_t bytes) override {
    if (from.tier == kDisk) return disk_->read(from.offset, {to, size_t(bytes)});
    std::memcpy(to, bases_[from.tier] + from.offset, static_cast<size_t>(bytes));
    return {};
  }
  Status clear(Location to, int64_t bytes) override {
    std::memset(bases_[to.tier] + to.offset, 0, static_cast<size_t>(bytes));
    return {};
  }

  BytesByTier memory() const override {
    BytesByTier used;
    used[kHost] = resident_bytes();
    for (const auto& [tier, arena] : arenas_) {
      if (!tier.is_device()) continue;
      used[tier] = arena.bytes();
      used[kHost] -= arena.bytes();
    }
    used[kHost] = std::max<int64_t>(0, used[kHost]);
    return used;
  }

 private:
  // On the lane's thread. What a network lane does beside exchanging is done on that thread.
  Status run(const LaneEnds& lane, const Launch& launch) {
    SLUICE_TRY(table_.check(launch));
    if (network_ != nullptr) network_->at(launch.task);
    Worker& worker = lane.computes() ? *workers_[lane.to.index()] : exchanger_;
    return cpu::launch(*launch.op, {launch.operands, launch.workspace.data},
                       {worker.pool, worker.scratch_data, isa_, network_, exact_});
  }

  CpuIsa isa_;
  bool exact_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by device
  std::unique_ptr<DiskReaders> disk_;
  Network* const network_;
  Worker exchanger_;  // of the network lanes, which take turns
  cpu::OpTable table_;
  std::map<Tier, Arena> arenas_;
  Arenas bases_;
  cpu::Lanes lanes_;  // last, so that its threads end before what they use
};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

bool cpu_has_fast_bf16(CpuIsa isa) {
  return isa >= CpuIsa::Avx512Bf16;
}

std::string cpu_description(CpuIsa isa) {
  return fmt::format("{}, {} cores, {}", processor_name(), core_count(), name_of(isa));
}

}  // namespace sluice::core
