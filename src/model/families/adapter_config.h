// SPDX-License-Identifier: Apache-2.0
// PEFT's adapter_config.json to Adapters and back. docs/adapters.md has a table of its fields: each is
// followed, says nothing about the arithmetic, or is refused by name unless it is empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace sluice::core {

struct AdapterConfig {
  Adapters adapters;
  std::string base;  // base_model_name_or_path: a folder, or a name of the hub; may be empty
};
Result<AdapterConfig> parse_adapter_config(std::string_view json);

// As PEFT reads it, of a model with adapters on the base of that name. `experts_in_one`: those of experts are
// of the parameters that classes of transformers hold all experts of a layer in.
std::string adapter_config(const ModelSpec& spec, std::string_view base, bool experts_in_one = false);

}  // namespace sluice::core
