// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include <fmt/format.h>

namespace sluice::core {

std::string name_of(const Backend& backend, Tier tier) {
  return tier == kHost ? std::string(name_of(kHost)) : fmt::format("device {}", backend.device_number(tier));
}

Result<std::vector<Interval>> run_commands(Backend& backend, std::span<const Command> commands) {
  SLUICE_TRY(backend.begin(static_cast<uint32_t>(commands.size()), true));
  Status status;
  for (size_t i = 0; i < commands.size() && status.ok(); ++i) status = backend.submit(commands[i]);
  std::vector<Interval> timeline;
  if (const auto fault = backend.finish(&timeline)) return fault->error;
  SLUICE_TRY(status);
  return timeline;
}

}  // namespace sluice::core
