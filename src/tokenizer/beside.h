// SPDX-License-Identifier: Apache-2.0
// Tokens that the files beside a tokenizer.json name, as transformers 5 takes them: those that it lacks, and
// those that begin and end texts.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"

namespace sluice::core {

struct BesideTokenizer {
  // In the order in which those that tokenizer.json lacks get their ids; `text` and `id` are open.
  std::vector<AddedToken> added;
  // Those that are named: a token of tokenizer.json's list stays as it is there.
  std::vector<AddedToken> named;
  // "bos_token", "eos_token" and the like, as text.
  std::map<std::string, std::string, std::less<>> special;
  // Whether texts begin with a space, where the class of tokenizers goes by its own key for that.
  std::optional<bool> prefix_space;
};

// Reads a folder's tokenizer_config.json, and where that does not list its added tokens
// special_tokens_map.json and added_tokens.json. Where none of them names the first or the last token, the
// class of tokenizers does that is named there, or is the usual one of config.json's model_type. Files that
// are not there say nothing. Errors name the file and the key.
Result<BesideTokenizer> read_beside_tokenizer(const std::filesystem::path& folder);

}  // namespace sluice::core
