// SPDX-License-Identifier: Apache-2.0
// What can be asked of the planner: models, machines and keys, for whoever shows a choice of them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// A JSON object: "sluice" (version and commit), "models" (names of presets), "families" (by model_type the
// text of a config.json of its default sizes), "machines" (those that plans can be made for, each as
// machine_json() has it) and "keys" of the configuration (name, value, meaning, allowed; of_step: whether
// what is planned depends on it).
std::string choices_json();

// A machine file as a JSON object: "key", "card", "memory_bytes", "usable_bytes" for a cap, "compared"
// (speeds planned for it were compared with measured ones), "reached" and "link" (where rates are from) and
// "rates", by the keys of a machine file: what steps are planned by, of the number format that they compute
// in, and the peak of that format where it is known. `name` stands for the file in errors.
Result<std::string> machine_json(std::string_view text, const std::string& name);

}  // namespace sluice::core
