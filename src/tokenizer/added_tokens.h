// SPDX-License-Identifier: Apache-2.0
// Tokens that are looked for in the text before anything else happens to it, such as <|endoftext|>.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tokenizer/code_set.h"

namespace sluice::core {

struct AddedToken {
  std::string content;
  std::string text;  // what it is looked for as: its content, normalized if `normalized`
  int32_t id = 0;
  bool single_word = false;             // not beside a letter, a digit or their like
  bool lstrip = false, rstrip = false;  // takes the white space before or after it
  bool normalized = false;              // looked for in normalized text
  bool special = false;                 // no part of decoded text
};

// Finds the tokens of one list: of those that begin first the longest, none inside another. Immutable.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;  // with the white space that the token takes
    const AddedToken* token;
  };

  AddedTokenFinder() = default;
  // Errors: an empty text, or one that two tokens have.
  static Result<AddedTokenFinder> create(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // The next match of a search that began with `at` and `done` zero; both are the search's own: how far it
  // is, and where its last match ended. REQUIRES: the text is UTF-8.
  bool next(std::string_view text, size_t& at, size_t& done, Match& match) const;

  // Whether a token lies across `place` or begins there.
  bool touches(std::string_view text, size_t place) const;
  size_t longest_bytes() const { return longest_bytes_; }

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  struct Node {
    int32_t token = -1;
    std::vector<std::pair<char, int32_t>> next;  // by byte
  };
  int32_t child(int32_t node, char byte) const;
  // The longest token at `at`, or -1.
  int32_t longest(std::string_view text, size_t at) const;
  size_t find_first(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_{};  // the node after a first byte; 0: none
  std::string first_bytes_;
  size_t longest_bytes_ = 0;
};

}  // namespace sluice::core
