// Profiles of machines that are not here, to plan for them.
#pragma once

#include <string_view>
#include <vector>

#include "cost/profile.h"

namespace sluice {

// "h200", "h100", "a100", "rtx3090", "rtx4090", "rtx5090". Rates are estimates; the source of each stands beside it.
Result<Profile> machine_preset(std::string_view name);
std::vector<std::string_view> machine_presets();

}  // namespace sluice
