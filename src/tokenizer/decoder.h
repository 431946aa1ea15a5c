// SPDX-License-Identifier: Apache-2.0
// Tokens to text: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "tokenizer/json_value.h"
#include "tokenizer/pattern.h"

namespace sluice::core {

// Immutable; any thread may use it.
class Decoder {
 public:
  // The "decoder" of a tokenizer.json, which may be null: then spaces come between tokens.
  static Result<Decoder> read(const JsonValue& value);

  Result<std::string> decode(std::vector<std::string> tokens, RegexScratch& scratch) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // a character
    int64_t start, stop;  // how many are taken away at most
  };
  struct Metaspace {
    std::string mark;
    bool drops_first;  // marks of the first token are no spaces
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace>;

  static Result<Step> read_step(const JsonValue& value);
  static Result<std::string> replaced(std::string_view token, const Replace& replace, RegexScratch& scratch);

  bool present_ = false;
  std::vector<Step> steps_;
};

}  // namespace sluice::core
