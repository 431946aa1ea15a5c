// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of Hugging Face's library `tokenizers`, with a BPE model: text to ids and back, exactly as
// that library does it with `encode` and `decode`. Truncation and padding in the file are left aside.
//
// Features of the library that are missing here are refused by name when the file is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// Counts over several calls of encode(), which add to them.
struct EncodeCounts {
  int64_t dropped = 0;   // bytes or characters that have no token, and that the library drops without a word
  int32_t written = -1;  // the first special token whose characters are but text (Tokenizer::Plain)
};

struct TokenizerOptions {
  // A longer text is encoded in parts of about so many bytes, where a place to cut it is known that changes
  // no token.
  int64_t part_bytes = int64_t{4} << 20;
  // A piece, in which tokens are merged, takes some 64 bytes of memory for each of its own. Longer ones are
  // refused. So is text that the normalizer makes longer than four times what it was, once it is longer than
  // a piece, or than 4 MiB.
  int64_t most_piece_bytes = (int64_t{1} << 31) - 1;
  // A limit on the normal form of a text and on its tokens: there may be one per byte.
  int64_t most_text_bytes = INT64_MAX;
  std::string why = {};  // they may not be longer: ends those errors
};

// Immutable; any thread may use it. Each thread that encodes holds some 5 MiB between calls.
class Tokenizer {
 public:
  // Errors name the file, the place in it, and what is allowed. open() has the tokens of the files beside it,
  // too (tokenizer/beside.h).
  static Result<Tokenizer> open(const std::filesystem::path& path, const TokenizerOptions& options = {});
  static Result<Tokenizer> parse(std::string_view json, const TokenizerOptions& options = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // A stretch of a text, in bytes.
  struct Stretch {
    size_t begin = 0, end = 0;
  };
  // Where the characters of a special token are but text: in stretches that rise. Tokens of `allowed` are
  // looked for there, too. Of encode(), encode_part() and part_bytes() that is everywhere, or nowhere.
  struct Plain {
    std::span<const Stretch> stretches;
    std::span<const int32_t> allowed;

    static Plain everywhere(std::span<const int32_t> allowed) {
      static constexpr Stretch kAll{0, SIZE_MAX};
      return {{&kAll, 1}, allowed};
    }
  };

  // Appends the ids of a text, between those that the post-processor puts around it if `special` is true.
  // Errors: what is not UTF-8, with its line; a text that a pattern gives up on.
  Status encode(std::string_view text, bool special, std::vector<int32_t>& ids,
                EncodeCounts* counts = nullptr, const Plain& plain = {}) const {
    return encode_part(text, TextPart{}, special, ids, counts, plain);
  }

  // A text that is too long to hold is encoded in parts, each after the other with the same ids as the whole
  // has. The part that begins `text` and goes on behind it: its bytes, or 0 where no place is known to change
  // nothing. REQUIRES: `text` is UTF-8, but for a character that its end may cut.
  size_t part_bytes(std::string_view text, bool begins, const Plain& plain = {}) const;
  struct TextPart {
    bool begins = true, ends = true;
  };
  Status encode_part(std::string_view text, TextPart part, bool special, std::vector<int32_t>& ids,
                     EncodeCounts* counts = nullptr, const Plain& plain = {}) const;

  // As encode() without what the post-processor puts around a text. `take` gets the ids in their order, some
  // at a time, and of every id the bytes that it stands for; of text that normalization changes, all up to
  // the next character that it leaves alone. It ends with the first error that `take` returns. Errors, too:
  // tokens that do not say which text they stand for, such as the unknown token.
  using TakePlaces = std::function<Status(std::span<const int32_t> ids, std::span<const Stretch> places)>;
  Status encode_places(std::string_view text, const Plain& plain, const TakePlaces& take,
                       EncodeCounts* counts = nullptr) const;

  // The first special token, but for those that are allowed, whose characters are in a text; -1: there is
  // none. Nothing: its normal form would have to be looked at.
  std::optional<int32_t> written_in(std::string_view text, std::span<const int32_t> allowed) const;

  // Ids that no token has are left out; so are special tokens, if `skip_special` is true.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const;

  // One past the largest id.
  int64_t vocab() const;
  // As the file spells them; a token that is not there: nothing, and -1.
  std::optional<std::string> token(int32_t id) const;
  int32_t id(std::string_view token) const;
  bool is_special(int32_t id) const;

  // Tokens that the post-processor puts before and after a text.
  std::span<const int32_t> tokens_before() const;
  std::span<const int32_t> tokens_after() const;

  // Equal for equal files.
  uint64_t content() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace sluice::core
