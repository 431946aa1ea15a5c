// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include <algorithm>
#include <cctype>

#include "base/hash.h"
#include "cost/presets.h"

namespace sluice::core {
namespace {

// The preset whose rates ops that are not measured take: the one that a driver's name of a device names,
// "NVIDIA GeForce RTX 4090"; else the H100's.
Result<Profile> preset_like(std::string model) {
  std::transform(model.begin(), model.end(), model.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  for (const std::string_view preset : machine_presets()) {
    const std::string_view name = preset.starts_with("rtx") ? preset.substr(3) : preset;
    if (model.find(name) != std::string::npos) return machine_preset(preset);
  }
  return machine_preset("h100");
}

// The backend's exact workspaces; a backend that is only asked holds no arenas.
Status ask_backend(Machine& m) {
  SLUICE_ASSIGN(std::unique_ptr<Backend> backend, m.make());
  m.profile.alignment = backend->alignment();
  m.profile.workspace_bytes = [shared = std::shared_ptr<Backend>(std::move(backend))](const Op& op) {
    return shared->workspace_bytes(op);
  };
  return {};
}

Result<Machine> this_machine(const BackendKind& kind, const BackendOptions& options, FoundMachine found) {
  Machine m;
  m.backend = &kind;
  m.options = options;
  m.description = std::move(found.description);
  m.fast_bf16 = found.fast_bf16;
  m.takes_f32 = kind.traits.takes_f32;
  m.device_total_bytes = found.device_total_bytes;
  m.uuid = std::move(found.uuid);
  if (!found.model.empty()) {
    SLUICE_ASSIGN(m.profile, preset_like(std::move(found.model)));
  }
  m.profile.name = std::move(found.name);
  SLUICE_TRY(ask_backend(m));
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, m.make());
  m.held_bytes[kHost] = backend->memory()[kHost] + found.host_margin_bytes;
  // With a part of the grain to spare, so that a start that holds some pages more than this one takes its
  // plan.
  m.profile.overhead_bytes[kHost] = align_up(m.held_bytes[kHost] + kOverheadGrain / 4, kOverheadGrain);
  return m;
}

// Its rates are those of the GPU's bf16 products, and so is what our kernels take there.
Result<Machine> simulated_machine(const std::string& preset) {
  Machine m;
  m.takes_f32 = false;
  SLUICE_ASSIGN(m.profile, machine_preset(preset));
  m.description = "simulated " + m.profile.name;
  m.fast_bf16 = true;
  return m;
}

}  // namespace

Result<Machine> resolve_machine(const RunConfig& config, const std::string& preset) {
  if (!preset.empty()) {
    SLUICE_ASSIGN(Machine named, simulated_machine(preset));
    SLUICE_ASSIGN(named.card, find_card(preset));
    return named;
  }
  BackendOptions options;
  options.device = int(config.run.device);
  options.threads = int(config.run.threads);
  options.deterministic = config.run.deterministic;
  options.cache = config.data.cache;
  if (config.run.backend != "auto") {
    SLUICE_ASSIGN(const BackendKind* kind, find_backend(config.run.backend));
    if (!kind->traits.runs_models) return simulated_machine("h200");
    SLUICE_ASSIGN(FoundMachine found, kind->find(options));
    return this_machine(*kind, options, std::move(found));
  }
  Error last;
  for (const BackendKind* kind : backends()) {
    if (!kind->traits.runs_models) continue;
    auto found = kind->find(options);
    if (found.ok()) return this_machine(*kind, options, std::move(*found));
    last = found.error();
    if (last.kind == ErrorKind::NotFound)
      break;  // there is such hardware, but not the device that is asked for
  }
  return last;
}

std::filesystem::path cost_cache(const RunConfig& config, const Machine& machine) {
  if (config.data.cache.empty()) return {};
  return std::filesystem::path(config.data.cache) /
         fmt::format("costs-{:016x}", Hash().add(machine.profile.name).add(machine.uuid).value());
}

}  // namespace sluice::core
