// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include "api/machine_config.h"
#include "base/status.h"
#include "cost/card.h"
#include "sluice/machine.h"

namespace sluice {

Result<core::RunConfig> config_of(const MachineOptions& options) {
  core::RunConfig config;
  config.run.backend = options.backend;
  config.run.device = options.device;
  SLUICE_ASSIGN(config.run.devices, core::parse_devices(options.devices));
  config.run.peer = options.peer_copies ? "auto" : "off";
  config.run.threads = options.threads;
  config.run.deterministic = options.deterministic;
  config.run.exact = options.exact;
  config.data.cache = options.cache.string();
  return config;
}

Result<Machine> Machine::here(const MachineOptions& options) {
  SLUICE_ASSIGN(const core::RunConfig config, config_of(options));
  SLUICE_ASSIGN(core::Machine machine, core::resolve_machine(config, ""));
  return Machine(std::make_shared<core::Machine>(std::move(machine)), options);
}

Result<Machine> Machine::preset(std::string_view name, int devices) {
  core::RunConfig config;
  SLUICE_ASSIGN(config.run.devices, core::parse_devices(std::to_string(devices)));
  SLUICE_ASSIGN(core::Machine machine, core::resolve_machine(config, std::string(name)));
  return Machine(std::make_shared<core::Machine>(std::move(machine)), {});
}

std::vector<std::string> Machine::presets() {
  std::vector<std::string> names;
  for (const std::string_view name : core::card_names()) names.emplace_back(name);
  return names;
}

std::string Machine::description() const {
  return machine_->description;
}
int64_t Machine::device_bytes() const {
  if (machine_->card) return machine_->card->usable_bytes();
  return machine_->device_total_bytes == core::kUnlimited ? -1 : machine_->device_total_bytes;
}
int Machine::devices() const {
  return int(machine_->devices());
}
bool Machine::runs_models() const {
  return machine_->traits().runs_models;
}

}  // namespace sluice
