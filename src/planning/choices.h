// SPDX-License-Identifier: Apache-2.0
// What can be asked of the planner: models, machines and keys, for whoever shows a choice of them.
#pragma once

#include <string>

namespace sluice::core {

// A JSON object: "sluice" (version and commit), "models" (names of presets), "machines" (key, card,
// memory_bytes, usable_bytes for a cap, products_rate that steps reach in FLOPs per second and where that is
// from, load_rate in bytes per second and where that is from, and whether speeds planned for it were compared
// with measured ones) and "keys" (name, value, meaning, allowed) of the
// configuration.
std::string choices_json();

}  // namespace sluice::core
