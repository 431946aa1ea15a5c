// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

namespace sluice::core {

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
