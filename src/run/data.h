// SPDX-License-Identifier: Apache-2.0
// What a run learns from. Plans ask only what the configuration says of it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "tokens/batches.h"

namespace sluice::core {

// Whether documents may begin inside a sequence, as far as the configuration tells: a single text file is one
// document. Opens nothing.
bool packs_documents(const RunConfig& config);
// Whether a part of the data is held out.
bool holds_out(const RunConfig& config);

// The tokenizer.json of the folder that model.weights names, or else of that of model.config; nothing: text
// is bytes.
std::optional<std::filesystem::path> tokenizer_of(const RunConfig& config);

struct RunData {
  std::unique_ptr<BatchSource> train, heldout;  // heldout may be null
  std::string content;                          // equal for equal tokens
  std::string notice;  // what people should know of how text became tokens; may be empty
};
// Reads, and if need be tokenizes, data.paths; random tokens when there are none. Text is never bytes for a
// model whose vocabulary is not: without its tokenizer it is refused.
Result<RunData> open_data(const RunConfig& config, int64_t vocab);

}  // namespace sluice::core
