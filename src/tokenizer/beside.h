// SPDX-License-Identifier: Apache-2.0
// What the files beside a tokenizer.json say of its tokens, as transformers 5 takes them: tokens that it
// lacks, and which of them begin and end texts.
#pragma once

#include <filesystem>
#include <map>
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
};

// Of a folder's tokenizer_config.json, and where that does not list its added tokens of
// special_tokens_map.json and added_tokens.json. What none of them says of the first and the last token is
// said by the class of tokenizers that is named there, or is the usual one of config.json's model_type.
// Files that are not there say nothing. Errors name the file and the key.
Result<BesideTokenizer> read_beside_tokenizer(const std::filesystem::path& folder);

}  // namespace sluice::core
