// SPDX-License-Identifier: Apache-2.0
// How the model in a folder generates, and where what it says ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "generate/defaults.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {

// As its config.json and generation_config.json say, or those of the base of an adapter, of which it may have
// none; what is not there says nothing. Of a model that wraps a text model it is that one's.
Result<GenerationDefaults> generation_defaults_of(const std::filesystem::path& folder,
                                                  const std::filesystem::path& base = {});

// generation_config.json of the folder with this end token beside its own.
Result<std::string> generation_config_with(const std::filesystem::path& folder,
                                           const GenerationDefaults& defaults, int32_t end);

// Says that answers end with a token at which programs that load the folder do not stop. Empty: they do.
std::string no_end_of_folder(const std::filesystem::path& folder, const GenerationDefaults& defaults,
                             int32_t end, const Tokenizer& tokenizer);

}  // namespace sluice::core
