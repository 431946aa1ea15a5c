// SPDX-License-Identifier: Apache-2.0
// Parts of a model's folder that make tokens of what people bring.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "config/config.h"
#include "dataset/sources.h"
#include "records/documents.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {

struct Folder {
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  TokenMaking making;
};

// A folder without a template is one that conversations are refused for, once there are any.
Result<std::unique_ptr<Folder>> open_folder(const RunConfig& config, const std::filesystem::path& tokenizer,
                                            const TokenizerOptions& options = {});
// The ids of data.special_in_text.
Result<std::vector<int32_t>> special_of(const RunConfig& config, const Tokenizer* tokenizer);

// The files of data.paths.
inline SourceOptions sources_of(const RunConfig& c) {
  return {.paths = c.data.paths, .include = c.data.include, .exclude = c.data.exclude};
}

}  // namespace sluice::core
