// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backend/registry/registry.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "config/devices.h"
#include "host/host_memory.h"
#include "io/file.h"
#include "io/toml_file.h"

namespace sluice::core {
namespace {

// The profile whose rates ops that are not measured take: that of the card which a driver's name means; else
// the H100's, whose peak is not the card's.
Result<Profile> profile_like(std::string_view model) {
  const Card* card = card_called(model);
  if (card != nullptr && card->bf16.known()) return profile_of(*card, DType::BF16);
  SLUICE_ASSIGN(const Card h100, find_card("h100"));
  SLUICE_ASSIGN(Profile profile, profile_of(h100, DType::BF16));
  profile.peak_flops = profile.narrow_peak_flops = 0;
  return profile;
}

// The backend's exact workspaces; a backend that is only asked holds no arenas.
Status ask_backend(Machine& m) {
  SLUICE_ASSIGN(std::unique_ptr<Backend> backend, m.make());
  // Costs of one device alone are not those of several that share links and power.
  if (const size_t devices = m.devices(); devices > 1) {
    m.profile.name = fmt::format("{} x {}", devices, m.profile.name);
    m.description = fmt::format("{} x {}", devices, m.description);
    m.profile.set_lanes(backend->lanes(), m.profile.bytes_per_s(kHost, kDevice));
  }
  m.profile.alignment = backend->alignment();
  m.profile.workspace_bytes = [shared = std::shared_ptr<Backend>(std::move(backend))](const Op& op) {
    return shared->workspace_bytes(op);
  };
  return {};
}

// Libraries of kernels and threads crash where they get no addresses: what they reserve is asked for first.
Status check_addresses() {
  constexpr int64_t kNeeded = kGiB;
  const int64_t left = mappable_bytes(kNeeded);
  if (left >= kNeeded) return {};
  return error(
      "the limit of this process's address space (ulimit -v) leaves {}; libraries and threads of a backend "
      "reserve "
      "up to {}. Raise the limit: memory.host bounds what is used of it",
      format_bytes(left), format_bytes(kNeeded));
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
    SLUICE_ASSIGN(m.profile, profile_like(found.model));
  } else {
    m.profile.rates.idle_part = 0;
  }
  m.profile.name = std::move(found.name);
  m.options.devices = std::move(found.devices);
  m.options.before = std::move(found.before);
  m.options.all_devices = false;
  m.options.joined = found.joined;
  SLUICE_TRY(ask_backend(m));
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, m.make());
  m.held_bytes = backend->memory();
  m.held_bytes[kHost] += found.host_margin_bytes;
  m.profile.host_growth = found.host_growth;
  m.profile.host_bytes_per_table_byte = kind.traits.host_bytes_per_table_byte;
  // With a part of the grain to spare, so that a start that holds some pages more than this one takes its
  // plan.
  m.profile.overhead_bytes[kHost] = align_up(m.held_bytes[kHost] + kOverheadGrain / 4, kOverheadGrain);
  return m;
}

Status check_instruction_set(const BackendKind& kind, const BackendOptions& options) {
  if (options.instruction_set.empty() || kind.traits.shares_cores) return {};
  return error(
      "run.instruction_set = {}: it is the CPU's, and the backend here is {}; run.backend = cpu takes it",
      options.instruction_set, kind.name);
}

}  // namespace

Result<Card> read_card(const std::filesystem::path& path) {
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostTomlBytes));
  return parse_card(text, path.string());
}

Result<Card> card_named(std::string_view name) {
  return name.ends_with(".toml") ? read_card(name) : find_card(name);
}

Result<Card> card_for(const RunConfig& config, const std::string& name) {
  SLUICE_ASSIGN(Card card, card_named(name));
  return changed(std::move(card), config.machine);
}

Result<Machine> resolve_machine(const RunConfig& config, const std::string& card, int place_here) {
  if (!card.empty()) {
    SLUICE_ASSIGN(Card named, card_for(config, card));
    return simulated_machine(config, std::move(named));
  }
  if (!config.machine.empty() && config.run.backend != "sim") {
    return error(
        "machine.{} = {}: only a machine that is planned for can be another one; name it with --machine",
        config.machine.front().first, config.machine.front().second);
  }
  SLUICE_TRY(check_addresses());
  BackendOptions options;
  options.device = int(config.run.device);
  options.place_here = place_here;
  const DeviceChoice& devices = config.run.devices;
  SLUICE_TRY(check_one_step(devices));
  options.all_devices = devices.all;
  // "2," is one device by its number; "1" is the one that run.device names.
  if (devices.numbers.size() > 1) {
    options.devices = devices.numbers;
  } else if (devices.numbers.size() == 1 && devices.numbers.front() > 0) {
    options.device = devices.numbers.front();
  }
  options.joined = config.run.peer == "auto";
  options.threads = int(config.run.threads);
  if (config.run.instruction_set != "auto") options.instruction_set = config.run.instruction_set;
  options.deterministic = config.run.deterministic;
  options.exact = config.run.exact;
  options.cache = config.data.cache;
  if (config.run.backend != "auto") {
    SLUICE_ASSIGN(const BackendKind* kind, find_backend(config.run.backend));
    if (!kind->traits.runs_models) {
      SLUICE_ASSIGN(Machine any, resolve_machine(config, "h200"));
      any.card.reset();  // its memory bounds nothing
      return any;
    }
    SLUICE_TRY(check_instruction_set(*kind, options));
    SLUICE_ASSIGN(FoundMachine found, kind->find(options));
    return this_machine(*kind, options, std::move(found));
  }
  Error last;
  for (const BackendKind* kind : backends()) {
    if (!kind->traits.runs_models) continue;
    auto found = kind->find(options);
    if (found.ok()) SLUICE_TRY(check_instruction_set(*kind, options));
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

std::filesystem::path shared_costs(const std::filesystem::path& cache) {
  const char* folder = std::getenv("SLUICE_COSTS");
  if (folder == nullptr || *folder == '\0' || cache.empty()) return {};
  return folder / cache.filename();
}

}  // namespace sluice::core
