// SPDX-License-Identifier: Apache-2.0
// The tokenizer that needs no files: a token is a byte. Documents are told apart by their boundaries, not by
// a token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {

struct ByteTokenizer {
  static constexpr int64_t kVocab = 256;

  static std::vector<int32_t> encode(std::string_view text) {
    const auto bytes = std::span(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    return {bytes.begin(), bytes.end()};
  }
  // Tokens outside the vocabulary become '?'.
  static std::string decode(std::span<const int32_t> tokens) {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) text += token >= 0 && token < kVocab ? static_cast<char>(token) : '?';
    return text;
  }
};

// The same as a Tokenizer, for text that is UTF-8.
Result<Tokenizer> byte_tokenizer(const TokenizerOptions& options = {});

}  // namespace sluice::core
