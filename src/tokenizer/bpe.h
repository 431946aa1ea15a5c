// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: pieces of text to ids, by merges in the order of their rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice::core {

// As the "model" of a tokenizer.json.
struct BpeOptions {
  std::vector<std::pair<std::string, int32_t>> vocab;       // a token once, an id once
  std::vector<std::pair<std::string, std::string>> merges;  // by rank; of equal pairs the last counts
  std::optional<std::string> unk_token;                     // for characters that are no token
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  int64_t most_piece_bytes = (int64_t{1} << 31) - 1;  // longer ones are refused
  std::string why = {};                               // ends that error
};

// Strings to ids: open addressing over one block of text.
class TokenMap {
 public:
  explicit TokenMap(size_t tokens);
  // The last of equal tokens counts.
  void insert(std::string_view token, int32_t id);
  // -1: none.
  int32_t find(std::string_view token) const;

 private:
  struct Slot {
    uint32_t begin = 0, size = 0;
    int32_t id = -1;
  };
  size_t slot_of(std::string_view token) const;

  std::string text_;
  std::vector<Slot> slots_;
};

// The character that stands for a byte in the tokens of byte-level vocabularies, as UTF-8.
const std::array<std::string, 256>& byte_characters();
// The bytes that a token of such characters stands for; nothing: it has another character.
std::optional<std::string> bytes_of_characters(std::string_view token);
// How many they are, where a text begins with them; 0: it does not.
size_t bytes_at_begin(std::string_view token, std::string_view text);

// Working memory of encoding, and remembered pieces: of bounded size, for one thread at a time, and for one
// of the two ways to encode.
class BpeScratch {
 public:
  BpeScratch();

 private:
  friend class Bpe;
  struct Symbol {
    int32_t id;          // -1: merged into the one before
    int32_t prev, next;  // indices; -1: none
  };
  struct Merge {
    uint64_t order;  // rank, then place: the smallest is next
    int32_t id;      // of the result
  };
  // A piece and its ids; an index of the table for each hash.
  struct Entry {
    static constexpr size_t kBytes = 30, kIds = 8;
    uint8_t size = 0, ids_size = 0;  // size 0: empty
    std::array<char, kBytes> text;
    std::array<int32_t, kIds> ids;
  };

  std::vector<Symbol> symbols_;
  std::vector<Merge> heap_;
  std::vector<Entry> cache_;
};

// Immutable; any thread may encode.
class Bpe {
 public:
  static Result<Bpe> create(BpeOptions options);

  // Gets ids as soon as there are many, and may empty them.
  using Taken = std::function<Status(std::vector<int32_t>& ids)>;
  // Appends the ids of a piece of UTF-8. `dropped` counts the characters (bytes, in the second) that have no
  // token and no way around it.
  Status encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids, int64_t& dropped,
                const Taken& taken = {}) const;
  // The same for a piece whose bytes became the characters that stand for them (byte_characters).
  Status encode_bytes(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids,
                      int64_t& dropped, const Taken& taken = {}) const;

  // Errors: more than a piece may have.
  Status check_piece(size_t bytes) const;

  int32_t find(std::string_view token) const { return tokens_.find(token); }
  int64_t size() const { return size_; }

  // Whether a text is encoded in its parts where never_joins() says so.
  bool works_in_parts() const { return !ignore_merges_; }
  // Whether no token that merges make has the characters before and at `at` beside each other, and both are
  // tokens: then the ids of a text are those of its parts before and from there.
  bool never_joins(std::string_view text, size_t at) const;

 private:
  // A character before merges.
  struct Start {
    std::array<int32_t, 4> ids;  // `count` of them
    int8_t count = 0;            // kUnknown: the unknown token; kDropped: nothing
    bool bytes = false;          // they are the tokens of its bytes
  };
  static constexpr int8_t kUnknown = -1, kDropped = -2;

  struct Pair {
    uint64_t key = kNoPair;
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  explicit Bpe(const BpeOptions& options);
  Status add_merges(const BpeOptions& options);
  Start start_of(std::string_view character) const;
  size_t pair_slot(uint64_t key) const;
  const Pair* find_pair(int32_t left, int32_t right) const;
  bool joins(uint32_t left, uint32_t right) const;
  // never_joins() of two bytes of a piece.
  bool never_joins_bytes(char left, char right) const;

  template <class NextStart>
  Status encode_piece(std::string_view piece, const NextStart& next_start, BpeScratch& scratch,
                      std::vector<int32_t>& ids, int64_t& dropped) const;
  void merge(BpeScratch& scratch) const;

  TokenMap tokens_;       // by text
  TokenMap byte_tokens_;  // by the bytes they stand for
  int64_t size_;
  std::array<Start, 128> ascii_;
  std::array<Start, 256> bytes_;
  std::array<int32_t, 256> fallback_;  // the id of <0xNN>; -1: none
  std::vector<Pair> pairs_;
  std::vector<uint64_t> joins_;  // pairs of characters inside tokens that merges make; open addressing
  std::array<std::array<uint64_t, 2>, 128> ascii_joins_{};
  std::optional<std::string> unk_;
  int32_t unk_id_ = -1;
  size_t most_piece_bytes_;
  std::string why_;
  bool fuse_unk_, byte_fallback_, ignore_merges_;
};

}  // namespace sluice::core
