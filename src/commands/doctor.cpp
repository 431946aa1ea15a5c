// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "backend/registry/registry.h"
#include "base/host_memory.h"
#include "base/memory_groups.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "io/file.h"
#include "measure/calibrate.h"
#include "run/prepare.h"

namespace sluice::core {
namespace {

void show_host() {
  const double pages = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  say("memory   {}, {} available\n", format_bytes(static_cast<int64_t>(pages)),
      format_bytes(available_bytes()));
  for (const MemoryGroup& group : memory_groups())
    say("         the control group {} allows {}\n", group.name, format_bytes(group.limit_bytes));
  constexpr auto kHugePages = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (const auto setting = read_file(kHugePages); setting.ok() && setting->find("[never]") != setting->npos) {
    say("         huge pages are off, which slows start-up and copies; as root: echo madvise > {}\n",
        kHugePages);
  }
}

// How fast the link of a backend's first device is, measured unless it is known already.
Status show_links(const BackendKind& kind) {
  SLUICE_ASSIGN(const RunConfig config, load_config("", {fmt::format("run.backend={}", kind.name)}));
  SLUICE_ASSIGN(Machine machine, resolve_machine(config, ""));
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  SLUICE_TRY(calibrate(*backend, StepMix(), cost_cache(config, machine), CalibrateOptions{}, machine.profile,
                       [](int64_t, int64_t) {}));
  say("links    load {:.1f} GB/s, store {:.1f} GB/s\n", machine.profile.bytes_per_s(kHost, kDevice) / 1e9,
      machine.profile.bytes_per_s(kDevice, kHost) / 1e9);
  return {};
}

// What a time means: arithmetic for what is bound by it, else memory traffic.
std::string rate_of(const Op& op, double ns) {
  return flops(op) > 0 ? fmt::format("{:.1f} TFLOP/s", flops(op) / ns / 1e3)
                       : fmt::format("{:.1f} GB/s", traffic(op) / ns);
}

Status show_costs(const DoctorRequest& request) {
  SLUICE_ASSIGN(RunConfig config, load_config(request.config_path, request.settings));
  Console console;
  SLUICE_ASSIGN(const Prepared p, prepare(std::move(config), "", false, nullptr, console));
  console.stop();
  const Profile& profile = p.machine.profile;
  say("\n{}\nlinks: load {:.1f} GB/s, store {:.1f} GB/s; beside the arena {} of the device\n", profile.name,
      profile.bytes_per_s(kHost, kDevice) / 1e9, profile.bytes_per_s(kDevice, kHost) / 1e9,
      format_bytes(profile.overhead_bytes[kDevice]));
  say("{:>12}  {:>16}  op\n", "ms", "rate");
  for (const Op& op : distinct_ops(p.stages.training.model.program)) {
    const double ns = profile.cost(op).ns;
    say("{:>12.4f}  {:>16}  {}\n", ns / 1e6, rate_of(op, ns), cost_key(op));
  }
  return {};
}

}  // namespace

Outcome doctor(const DoctorRequest& request) {
  show_host();
  for (const BackendKind* kind : backends()) {
    if (kind->report != nullptr) say("{}", kind->report());
    const bool has_link = kind->traits.runs_models && !kind->traits.shares_cores;
    if (!has_link || !kind->find({}).ok()) continue;
    if (const Status status = show_links(*kind); !status.ok())
      say("links    not measured: {}\n", status.message());
  }
  if (!request.calibrate) return {};
  std::fflush(stdout);
  const Status status = show_costs(request);
  return outcome(status);
}

}  // namespace sluice::core
