// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "backend/registry/registry.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "config/files/load_config.h"
#include "cost/card.h"
#include "host/host_memory.h"
#include "host/memory_groups.h"
#include "host/topology.h"
#include "io/file.h"
#include "measure/calibrate.h"
#include "run/prepare/prepare.h"

namespace sluice::core {
namespace {

int64_t host_bytes() {
  return int64_t(double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)));
}

void show_host() {
  say("memory   {}, {} available\n", format_bytes(host_bytes()), format_bytes(available_bytes()));
  for (const MemoryGroup& group : memory_groups())
    say("         the control group {} allows {}\n", group.name, format_bytes(group.limit_bytes));
  const std::vector<NumaNode> nodes = numa_nodes();
  for (const NumaNode& node : nodes) {
    if (nodes.size() == 1) break;  // all memory is near
    say("         NUMA node {}: {}{}\n", node.number,
        node.bytes > 0 ? format_bytes(node.bytes) : "memory of unknown size",
        node.cores.empty() ? ", no cores" : ", cores " + node.cores);
  }
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
  CalibrateOptions options;
  options.most_bytes[kHost] = available_bytes() / 2;
  SLUICE_TRY(calibrate(*backend, StepMix(), cost_cache(config, machine), options, machine.profile,
                       [](int64_t, int64_t) {}));
  say("links    load {:.1f} GB/s, store {:.1f} GB/s\n", machine.profile.bytes_per_s(kHost, kDevice) / 1e9,
      machine.profile.bytes_per_s(kDevice, kHost) / 1e9);
  return {};
}

// The rate behind a time: arithmetic for what is bound by it, else memory traffic.
std::string rate_of(const Op& op, double ns) {
  return flops(op) > 0 ? fmt::format("{:.1f} TFLOP/s", flops(op) / ns / 1e3)
                       : fmt::format("{:.1f} GB/s", traffic(op) / ns);
}

// Timed rates of this machine, beside the data sheet of the card that it is, where that is known.
Card card_of(const Prepared& p) {
  const Profile& profile = p.machine.profile;
  const Card* known = card_called(profile.name);
  Card card = known != nullptr ? *known : Card();
  if (known == nullptr) {
    card.name = profile.name;
    card.peak_source = "";
  }
  card.memory_bytes =
      p.machine.device_total_bytes != kUnlimited ? p.machine.device_total_bytes : host_bytes();
  const Rates reached = reached_rates(p.stages.main.model.program, profile);
  card.bf16 = card.f32 = {};
  (p.numerics.compute == DType::BF16 ? card.bf16 : card.f32) = {
      reached.product_flops, reached.attention_forward_flops, reached.attention_backward_flops};
  card.memory_reached = reached.memory_bytes;
  card.load_rate = profile.bytes_per_s(kHost, kDevice), card.store_rate = profile.bytes_per_s(kDevice, kHost);
  card.peer_rate = profile.peer_bytes_per_s();
  card.copy_slowdown = profile.copy_slowdown;
  card.held_bytes = profile.overhead_bytes;
  card.host_growth = profile.host_growth;
  card.reached_source = card.link_source = "measured";
  return card;
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
  for (const Op& op : distinct_ops(p.stages.main.model.program)) {
    const double ns = profile.cost(op).ns;
    say("{:>12.4f}  {:>16}  {}\n", ns / 1e6, rate_of(op, ns), cost_key(op));
  }
  if (request.machine_file.empty()) return {};
  SLUICE_TRY(write_file(request.machine_file, to_toml(card_of(p))));
  say("\nsaved: {}\n", request.machine_file);
  return {};
}

}  // namespace

Outcome doctor(const DoctorRequest& request) {
  if (!request.calibrate && !request.machine_file.empty()) {
    return {Ending::Failed, fmt::format("--machine-file {}: needs --calibrate, which times what it says",
                                        request.machine_file)};
  }
  show_host();
  for (const BackendKind* kind : backends()) {
    if (kind->report != nullptr) show_text(kind->report());
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
