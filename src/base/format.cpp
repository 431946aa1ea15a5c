// SPDX-License-Identifier: Apache-2.0
#include "base/format.h"

#include <fmt/format.h>

namespace sluice::core {

std::string to_text(const NumberFormat& format) {
  if (format.block == 0) return std::string(name_of(format.type));
  const std::string block = format.block == NumberFormat::kRow ? "row" : fmt::format("{}", format.block);
  return fmt::format("{} by {} with {}", name_of(format.type), block, name_of(format.scale));
}

}  // namespace sluice::core
