// SPDX-License-Identifier: Apache-2.0
// What happens to text before it is cut into pieces: NFC, Prepend, Replace.
#pragma once

#include <algorithm>
#include <cstddef>
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
class Normalizer {
 public:
  // The "normalizer" of a tokenizer.json, which may be null.
  static Result<Normalizer> read(const JsonValue& value);

  // Text may become four times as long, as real files make it at most, where that is no more than
  // `most_bytes`, and as long as `short_bytes` in any case: apply() refuses what a file would make of it
  // beyond that, before it takes the memory. `why` ends the error.
  void bound(int64_t short_bytes, int64_t most_bytes, std::string why) {
    short_bytes_ = size_t(short_bytes);
    most_bytes_ = size_t(most_bytes);
    why_ = std::move(why);
  }
  // The most bytes that a text of so many can become.
  size_t most_bytes(size_t before) const {
    constexpr size_t kMostGrowth = 4;
    return std::max(std::min(kMostGrowth * before, most_bytes_), short_bytes_);
  }

  bool empty() const { return steps_.empty(); }

  // `head` counts the bytes at the beginning that come from the first character of the whole text, and is
  // kept true. `begins`: the text is not the continuation of one, which nothing is put in front of.
  Status apply(std::string& text, size_t& head, RegexScratch& scratch, bool begins = true) const;

  // Whether a text that is cut before an ASCII character is normalized to the same in parts.
  bool works_in_parts() const;

 private:
  struct Nfc {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  std::vector<std::variant<Nfc, Prepend, Replace>> steps_;
  size_t short_bytes_ = SIZE_MAX, most_bytes_ = SIZE_MAX;
  std::string why_;
};

// Unicode's NFC with the tables of the library `tokenizers`.
std::string to_nfc(std::string_view text);

}  // namespace sluice::core
