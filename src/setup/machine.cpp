// SPDX-License-Identifier: Apache-2.0
#include "setup/machine.h"

#include <algorithm>
#include <utility>

#include "config/devices.h"

namespace sluice::core {

Machine::Machine() = default;
Machine::Machine(const Machine&) = default;
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(const Machine&) = default;
Machine& Machine::operator=(Machine&&) noexcept = default;
Machine::~Machine() = default;

Result<Machine> simulated_machine(const RunConfig& config, Card card) {
  Machine m;
  m.fast_bf16 = card.bf16.known();
  const bool f32 = config.train.compute.value_or(m.fast_bf16 ? DType::BF16 : DType::F32) == DType::F32;
  m.takes_f32 = card.f32.known();
  // A machine without f32 rates is refused with the number formats, which says the way out.
  SLUICE_ASSIGN(m.profile, profile_of(card, f32 && (m.takes_f32 || !m.fast_bf16) ? DType::F32 : DType::BF16));
  const DeviceChoice& devices = config.run.devices;
  SLUICE_TRY(check_one_step(devices));
  if (devices.all)
    return error("run.devices = all: of a machine that is not here nobody knows how many there are");
  m.options.devices = devices.numbers;
  if (m.devices() > 1) {
    m.profile.name = fmt::format("{} x {}", m.devices(), m.profile.name);
    const bool joined = config.run.peer == "auto" && card.peer_rate > 0;
    m.profile.set_lanes(LaneTable::of_devices(m.devices(), joined), card.peer_rate);
    // As calibration finds it, which has all of them at work.
    if (card.host_rate > 0) {
      const double share = card.host_rate / double(m.devices());
      m.profile.set_host_rates(std::min(card.load_rate, share), std::min(card.store_rate, share));
    }
  }
  m.description = "simulated " + m.profile.name;
  m.made_from = to_toml(card);
  m.card = std::move(card);
  return m;
}

BytesByTier Machine::caps_here(BytesByTier given) const {
  const int64_t of_each = std::min(given[kDevice], device_total_bytes);
  for (size_t d = 0; d < devices(); ++d) given[Tier::device(d)] = of_each;
  return given;
}

}  // namespace sluice::core
