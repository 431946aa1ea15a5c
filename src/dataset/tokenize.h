// SPDX-License-Identifier: Apache-2.0
// Documents of text files to token files, by several threads and in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "dataset/token_file.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {

// A stretch of a file that is one document.
struct TextRange {
  std::filesystem::path path;
  int64_t begin = 0, end = 0;  // bytes
  int64_t file_bytes = 0;      // of the whole file, which has to have as many when it is read
};

struct TokenizeOptions {
  int threads = 1;
  // A document of more bytes is encoded in parts of about so many, where a place to cut it is known that
  // changes no token (Tokenizer::part_bytes).
  int64_t part_bytes = int64_t{4} << 20;
  // A document of more bytes is split.
  int64_t most_bytes = int64_t{64} << 20;
  std::string why = {};  // there may not be more: ends that error
  // The token that ends a document with the last of its file, unless it does so itself; -1: none.
  int32_t end = -1;
  // Told of bytes that have become tokens since the last time.
  std::function<void(int64_t bytes)> progress;
  // Special tokens that are looked for in the text.
  std::span<const int32_t> special = {};
  // Told of what is noticed in a part.
  std::function<void(const TextRange&, const EncodeCounts&)> noticed;
};

// Writes the tokens of each document in order, as Tokenizer::encode makes them, between those that are put
// around a text. In memory
// at one time are some part_bytes of text for each thread, or one document of most_bytes. Errors name the
// file and the line: of what is not UTF-8, and of a part without a place to cut it.
Status tokenize(std::span<const TextRange> documents, const Tokenizer& tokenizer,
                const TokenizeOptions& options, TokenFileWriter& writer);

// Bytes that hold a token of the vocabulary: 2 or 4.
int token_bytes(const Tokenizer& tokenizer);

// The place for a document of this text to be cut in two, near `at`: behind a line if there is one soon, or
// else between two characters.
int64_t place_between(std::string_view text, int64_t at);

}  // namespace sluice::core
