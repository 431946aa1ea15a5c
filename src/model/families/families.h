// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json to ModelSpec and back, and named shapes. A family is a row of a table: its model
// type, its class of transformers, and what of the architecture it fixes or reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace sluice::core {

// Reads the text of a config.json of model type llama, qwen2 or qwen3. Keys that say nothing about the
// arithmetic are passed over, as checkpoints carry many; a value that would change it in a way Sluice does
// not do (another activation, another kind of rotary embedding, a sliding window) is an error.
Result<ModelSpec> parse_model_config(std::string_view json);
// What parse_model_config() and transformers read back to the same model. REQUIRES: equal layers.
std::string to_json(const ModelSpec& spec);

// Llama-3 shapes by name: "tiny" (10 M, byte vocabulary), "1", "8", "15", "32" (billions of parameters).
Result<ModelSpec> model_preset(std::string_view name);
// Their names, from small to large.
std::vector<std::string> model_presets();

}  // namespace sluice::core
