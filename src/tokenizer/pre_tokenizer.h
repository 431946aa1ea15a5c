// SPDX-License-Identifier: Apache-2.0
// Cuts normalized text into pieces that are encoded alone: Split, Digits, ByteLevel, Metaspace.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "tokenizer/json_value.h"
#include "tokenizer/pattern.h"

namespace sluice::core {

// Immutable; any thread may use it.
class PreTokenizer {
 public:
  // Room for rewritten text; one thread at a time.
  struct Scratch {
    std::vector<std::string> text;  // two for each step
  };
  using Use = std::function<Status(std::string_view piece)>;

  // The "pre_tokenizer" of a tokenizer.json, which may be null.
  static Result<PreTokenizer> read(const JsonValue& value);

  // Calls use(piece) for every piece of the text in order; none is empty, and none lives on. `head` and
  // `begins` are those of Normalizer::apply.
  Status cut(std::string_view text, size_t head, bool begins, RegexScratch& regex, Scratch& scratch,
             const Use& use) const;

  // Whether pieces are raw bytes for Bpe::encode_bytes.
  bool makes_bytes() const;

  // The last place from `from` on that is `allowed` and where the text may be cut in two: its pieces are
  // those of the two parts, whatever follows the text. 0: none is known.
  size_t last_boundary(std::string_view text, size_t from, const std::function<bool(size_t)>& allowed,
                       RegexScratch& regex) const;
  bool empty() const { return steps_.empty(); }
  // Whether a ByteLevel puts a space before a text; nothing: there is none.
  std::optional<bool> prefix_space() const;

 private:
  enum class Behavior : uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;
  };
  struct Digits {
    bool individual;
  };
  struct ByteLevel {
    bool prefix_space, use_regex;
    std::vector<Pattern> words;  // GPT-2's pattern, if it is used
  };
  enum class Prefix : uint8_t { First, Never, Always };
  struct Metaspace {
    std::string mark;
    Prefix prefix;
    bool split;
  };
  class Cutter;
  class Joiner;

  static Result<Split> read_split(const JsonValue& value);
  static Result<Metaspace> read_metaspace(const JsonValue& value);

  std::vector<std::variant<Split, Digits, ByteLevel, Metaspace>> steps_;
};

// How a Metaspace in a tokenizer.json says what it puts in front: "first", "never" or "always".
Result<std::string> read_prepend_scheme(const JsonValue& metaspace);

}  // namespace sluice::core
