// SPDX-License-Identifier: Apache-2.0
// Text that people give to commands, and its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace sluice::core {

// A file, or "-": the standard input.
Result<std::string> read_input(const std::string& path);

// An error where a tokenizer's token is none of a model with `vocab` of them.
Status check_vocab(std::span<const int32_t> ids, int64_t vocab);

}  // namespace sluice::core
