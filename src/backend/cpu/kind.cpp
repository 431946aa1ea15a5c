// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "host/host_memory.h"

namespace sluice::core {
namespace {

Result<FoundMachine> find(const BackendOptions& options) {
  // Command queues, library code, metrics.
  constexpr int64_t kMargin = 48 * kMiB;
  if (options.all_devices) {
    return error(
        "run.devices = all: a CPU is one; a number, such as 2, makes as many arenas that share its cores");
  }
  const auto named = cpu_isa_of(options.instruction_set);
  if (!named.ok()) return error_at("run.instruction_set", named.error());
  const CpuIsa isa = *named;
  FoundMachine found;
  found.devices = options.devices;
  found.joined = options.joined;
  found.description = cpu_description(isa);
  // Kernels for exact results have other speeds.
  found.name =
      fmt::format("{} ({} threads{})", found.description, options.threads, options.exact ? ", exact" : "");
  found.fast_bf16 = cpu_has_fast_bf16(isa);
  found.device_total_bytes = host_limit().bytes;
  found.host_margin_bytes = kMargin;
  found.host_growth = kHostGrowthOnCpu;
  return found;
}

Result<std::unique_ptr<Backend>> make(const BackendOptions& options) {
  CpuOptions cpu;
  SLUICE_ASSIGN(cpu.isa, cpu_isa_of(options.instruction_set));
  cpu.threads = options.threads;
  cpu.devices = std::max(1, int(options.devices.size()));
  cpu.joined = options.joined;
  cpu.reads_disk = options.reads_disk;
  cpu.network = options.network;
  cpu.exact = options.exact;
  return make_cpu_backend(cpu);
}

std::string report() {
  return fmt::format("CPU      {}\n         bf16 products {}\n", cpu_description(),
                     cpu_has_fast_bf16(best_cpu_isa()) ? "in hardware" : "not in hardware: f32 is used");
}

}  // namespace

const BackendKind& cpu_kind() {
  static constexpr BackendTraits kTraits{
      .shares_cores = true, .compact_state = false, .repeats = true, .fast = false};
  static constexpr BackendKind kKind{"cpu", kTraits, find, make, report};
  return kKind;
}

}  // namespace sluice::core
