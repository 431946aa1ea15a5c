// SPDX-License-Identifier: Apache-2.0
// What a run learns from. Plans ask only what the configuration says of it.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "tokens/batches.h"

namespace sluice::core {

// Whether documents may begin inside a sequence, as far as the configuration tells: a single text file is one
// document. Opens nothing.
bool packs_documents(const RunConfig& config);
// Whether a part of the data is held out.
bool holds_out(const RunConfig& config);

struct RunData {
  std::unique_ptr<BatchSource> train, heldout;  // heldout may be null
  std::string content;                          // equal for equal documents
};
// Reads, and if need be tokenizes, data.paths; random tokens when there are none.
Result<RunData> open_data(const RunConfig& config, int64_t vocab);

}  // namespace sluice::core
