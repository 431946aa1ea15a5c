// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

constexpr size_t kCacheEntries = size_t{1} << 16;
// So that an index of a symbol fits beside a rank.
constexpr size_t kMostSymbols = (size_t{1} << 31) - 1;
// A longer piece keeps nothing for the next one.
constexpr size_t kKeptSymbols = size_t{1} << 16;
// Ids that are handed on together.
constexpr size_t kIdsAtOnce = size_t{1} << 16;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size() * 0x9e3779b97f4a7c15;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word);
  }
  uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return mix(hash ^ word);
}

// Slots of a table for `count` entries: a power of two, half of it free.
size_t slots_for(size_t count) {
  return std::bit_ceil(std::max<size_t>(count, 4) * 2);
}

uint64_t pair_key(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}

std::string byte_token(unsigned byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> kCharacters = [] {
    std::array<std::string, 256> characters;
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      append_utf8(characters[byte], itself ? byte : next++);
    }
    return characters;
  }();
  return kCharacters;
}

namespace {

// The byte that the character at `at` stands for; -1: none.
int byte_at(std::string_view token, size_t at) {
  static const std::vector<int16_t> kBytes = [] {
    std::vector<int16_t> bytes(512, -1);
    for (int16_t byte = 0; byte < 256; ++byte) bytes[utf8_at(byte_characters()[size_t(byte)], 0)] = byte;
    return bytes;
  }();
  const uint32_t code = utf8_at(token, at);
  return code < kBytes.size() ? kBytes[code] : -1;
}

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += size_t(utf8_length(token[at]))) {
    const int byte = byte_at(token, at);
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

size_t bytes_at_begin(std::string_view token, std::string_view text) {
  size_t bytes = 0;
  for (size_t at = 0; at < token.size(); at += size_t(utf8_length(token[at]))) {
    if (bytes == text.size() || byte_at(token, at) != static_cast<unsigned char>(text[bytes])) return 0;
    ++bytes;
  }
  return bytes;
}

TokenMap::TokenMap(size_t tokens) : slots_(slots_for(tokens)) {}

size_t TokenMap::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t at = size_t(hash_of(token)) & mask;
  while (slots_[at].id >= 0 && std::string_view(text_).substr(slots_[at].begin, slots_[at].size) != token) {
    at = (at + 1) & mask;
  }
  return at;
}

void TokenMap::insert(std::string_view token, int32_t id) {
  Slot& slot = slots_[slot_of(token)];
  if (slot.id < 0) {
    slot.begin = uint32_t(text_.size());
    slot.size = uint32_t(token.size());
    text_ += token;
  }
  slot.id = id;
}

int32_t TokenMap::find(std::string_view token) const {
  return slots_[slot_of(token)].id;
}

BpeScratch::BpeScratch() : cache_(kCacheEntries) {}

Result<Bpe> Bpe::create(BpeOptions options) {
  size_t bytes = 0;
  for (const auto& [token, id] : options.vocab) bytes += token.size();
  if (bytes > std::numeric_limits<uint32_t>::max()) return error("vocab: {} bytes of tokens", bytes);
  Bpe bpe(options);
  SLUICE_TRY(bpe.add_merges(options));
  return bpe;
}

Bpe::Bpe(const BpeOptions& options)
    : tokens_(options.vocab.size()),
      byte_tokens_(options.vocab.size()),
      size_(int64_t(options.vocab.size())),
      unk_(options.unk_token),
      most_piece_bytes_(std::min(size_t(options.most_piece_bytes), kMostSymbols)),
      why_(options.why),
      fuse_unk_(options.fuse_unk),
      byte_fallback_(options.byte_fallback),
      ignore_merges_(options.ignore_merges) {
  for (const auto& [token, id] : options.vocab) {
    tokens_.insert(token, id);
    if (const auto bytes = bytes_of_characters(token)) byte_tokens_.insert(*bytes, id);
  }
  if (unk_) unk_id_ = tokens_.find(*unk_);
  for (unsigned byte = 0; byte < 256; ++byte) fallback_[byte] = tokens_.find(byte_token(byte));
  for (unsigned byte = 0; byte < 256; ++byte) bytes_[byte] = start_of(byte_characters()[byte]);
  for (unsigned code = 0; code < 128; ++code)
    ascii_[code] = start_of(std::string(1, static_cast<char>(code)));
}

Status Bpe::add_merges(const BpeOptions& options) {
  pairs_.resize(slots_for(options.merges.size()));
  std::vector<uint64_t> joined;
  for (size_t rank = 0; rank < options.merges.size(); ++rank) {
    const std::string &left = options.merges[rank].first, &right = options.merges[rank].second;
    const std::string both = left + right;
    const auto id_of = [&](const std::string& token) -> Result<int32_t> {
      const int32_t id = tokens_.find(token);
      if (id < 0)
        return error("merges: number {} ('{}' and '{}') needs the token '{}', which vocab lacks", rank, left,
                     right, token);
      return id;
    };
    SLUICE_ASSIGN(const int32_t left_id, id_of(left));
    SLUICE_ASSIGN(const int32_t right_id, id_of(right));
    SLUICE_ASSIGN(const int32_t id, id_of(both));
    const uint64_t key = pair_key(uint32_t(left_id), uint32_t(right_id));
    pairs_[pair_slot(key)] = {key, uint32_t(rank), id};
    for (size_t at = 0, next = 0; at < both.size(); at = next) {
      next = at + size_t(utf8_length(both[at]));
      if (next < both.size()) joined.push_back(pair_key(utf8_at(both, at), utf8_at(both, next)));
    }
  }
  std::sort(joined.begin(), joined.end());
  joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
  joins_.assign(slots_for(joined.size()), kNoPair);
  for (const uint64_t key : joined) {
    const auto left = uint32_t(key >> 32), right = uint32_t(key);
    if (left < 128 && right < 128) {
      ascii_joins_[left][right / 64] |= uint64_t{1} << (right % 64);
      continue;
    }
    size_t at = size_t(mix(key)) & (joins_.size() - 1);
    while (joins_[at] != kNoPair) at = (at + 1) & (joins_.size() - 1);
    joins_[at] = key;
  }
  return {};
}

Bpe::Start Bpe::start_of(std::string_view character) const {
  Start start{};
  if (const int32_t id = tokens_.find(character); id >= 0) {
    start.ids[0] = id;
    start.count = 1;
    return start;
  }
  if (byte_fallback_) {
    bool all = true;
    for (const char c : character) all = all && fallback_[static_cast<unsigned char>(c)] >= 0;
    if (all) {
      for (const char c : character)
        start.ids[size_t(start.count++)] = fallback_[static_cast<unsigned char>(c)];
      start.bytes = true;
      return start;
    }
  }
  start.count = unk_ ? kUnknown : kDropped;
  return start;
}

size_t Bpe::pair_slot(uint64_t key) const {
  const size_t mask = pairs_.size() - 1;
  size_t at = size_t(mix(key)) & mask;
  while (pairs_[at].key != key && pairs_[at].key != kNoPair) at = (at + 1) & mask;
  return at;
}

const Bpe::Pair* Bpe::find_pair(int32_t left, int32_t right) const {
  const Pair& pair = pairs_[pair_slot(pair_key(uint32_t(left), uint32_t(right)))];
  return pair.key == kNoPair ? nullptr : &pair;
}

bool Bpe::joins(uint32_t left, uint32_t right) const {
  if (left < 128 && right < 128) return (ascii_joins_[left][right / 64] >> (right % 64) & 1) != 0;
  const uint64_t key = pair_key(left, right);
  for (size_t at = size_t(mix(key)) & (joins_.size() - 1);; at = (at + 1) & (joins_.size() - 1)) {
    if (joins_[at] == key) return true;
    if (joins_[at] == kNoPair) return false;
  }
}

bool Bpe::never_joins(std::string_view text, size_t at) const {
  const size_t before = utf8_before(text, at);
  if (joins(utf8_at(text, before), utf8_at(text, at))) return false;
  const auto is_token = [&](size_t begin) {
    return tokens_.find(text.substr(begin, size_t(utf8_length(text[begin])))) >= 0;
  };
  return is_token(before) && is_token(at);
}

bool Bpe::never_joins_bytes(char left, char right) const {
  const auto l = static_cast<unsigned char>(left), r = static_cast<unsigned char>(right);
  return bytes_[l].count == 1 && bytes_[r].count == 1 &&
         !joins(utf8_at(byte_characters()[l], 0), utf8_at(byte_characters()[r], 0));
}

// Merges pairs in the order of rank and place. What the heap holds may be of a pair that is gone: it counts
// if the pair that is there now makes the same token, as in the library that this follows.
void Bpe::merge(BpeScratch& s) const {
  auto& symbols = s.symbols_;
  auto& heap = s.heap_;
  const auto later = [](const BpeScratch::Merge& a, const BpeScratch::Merge& b) { return a.order > b.order; };
  const auto found = [&](int32_t at) -> const Pair* {
    return at < 0 || symbols[size_t(at)].next < 0
               ? nullptr
               : find_pair(symbols[size_t(at)].id, symbols[size_t(symbols[size_t(at)].next)].id);
  };
  heap.clear();
  heap.reserve(symbols.size());
  for (int32_t at = 0; at + 1 < int32_t(symbols.size()); ++at) {
    if (const Pair* pair = found(at)) heap.push_back({pair_key(pair->rank, uint32_t(at)), pair->id});
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t at) {
    const Pair* pair = found(at);
    if (pair == nullptr) return;
    heap.push_back({pair_key(pair->rank, uint32_t(at)), pair->id});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Merge top = heap.back();
    heap.pop_back();
    const auto at = int32_t(uint32_t(top.order));
    auto& left = symbols[size_t(at)];
    if (left.id < 0) continue;
    const Pair* pair = found(at);
    if (pair == nullptr || pair->id != top.id) continue;
    auto& right = symbols[size_t(left.next)];
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[size_t(left.next)].prev = at;
    push(left.prev);
    push(at);
  }
}

Status Bpe::check_piece(size_t bytes) const {
  if (bytes <= most_piece_bytes_) return {};
  return error("a piece of {} bytes that cannot be cut; allowed are {}{}", bytes, most_piece_bytes_, why_);
}

// `next_start` returns what the next character of the piece is and moves past it.
template <class NextStart>
Status Bpe::encode_piece(std::string_view piece, const NextStart& next_start, BpeScratch& s,
                         std::vector<int32_t>& ids, int64_t& dropped) const {
  const auto cached = piece.size() <= BpeScratch::Entry::kBytes
                          ? &s.cache_[size_t(hash_of(piece)) & (kCacheEntries - 1)]
                          : nullptr;
  if (cached != nullptr && std::string_view(cached->text.data(), cached->size) == piece) {
    ids.insert(ids.end(), cached->ids.begin(), cached->ids.begin() + cached->ids_size);
    return {};
  }
  SLUICE_TRY(check_piece(piece.size()));
  auto& symbols = s.symbols_;
  symbols.clear();
  if (piece.size() > kKeptSymbols) symbols.reserve(piece.size());
  const auto add = [&](int32_t id) {
    const auto at = int32_t(symbols.size());
    if (at > 0) symbols.back().next = at;
    symbols.push_back({id, at - 1, -1});
  };
  // An unknown token waits for the next character that is a token: bytes that stand for a character come
  // before it, as in the library that this follows.
  bool waits = false;
  const int64_t dropped_before = dropped;
  for (size_t at = 0; at < piece.size();) {
    const Start start = next_start(at);
    if (start.count == kUnknown) {
      if (unk_id_ < 0) return error("unk_token '{}' is not in vocab, and the text has what needs it", *unk_);
      if (waits && !fuse_unk_) add(unk_id_);
      waits = true;
    } else if (start.count == kDropped) {
      ++dropped;
    } else {
      if (waits && !start.bytes) {
        add(unk_id_);
        waits = false;
      }
      for (int8_t i = 0; i < start.count; ++i) add(start.ids[size_t(i)]);
    }
  }
  if (waits) add(unk_id_);
  merge(s);
  const size_t first = ids.size();
  for (const auto& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
  const size_t count = ids.size() - first;
  if (symbols.capacity() > kKeptSymbols) {
    symbols = {};
    s.heap_ = {};
  }
  if (cached != nullptr && count <= BpeScratch::Entry::kIds && dropped == dropped_before) {
    cached->size = uint8_t(piece.size());
    cached->ids_size = uint8_t(count);
    std::copy(piece.begin(), piece.end(), cached->text.begin());
    std::copy(ids.begin() + std::ptrdiff_t(first), ids.end(), cached->ids.begin());
  }
  return {};
}

Status Bpe::encode(std::string_view piece, BpeScratch& s, std::vector<int32_t>& ids, int64_t& dropped,
                   const Taken& taken) const {
  if (ignore_merges_) {
    if (const int32_t id = tokens_.find(piece); id >= 0) {
      ids.push_back(id);
      return {};
    }
  }
  // Parts that no merge joins are encoded alone, so that words are found among those that are remembered.
  size_t begin = 0;
  const auto encode_part = [&](size_t end) -> Status {
    const std::string_view part = piece.substr(begin, end - begin);
    begin = end;
    SLUICE_TRY(encode_piece(
        part,
        [&](size_t& at) {
          const size_t length = size_t(utf8_length(part[at]));
          const size_t from = std::exchange(at, at + length);
          return length == 1 ? ascii_[static_cast<unsigned char>(part[from])]
                             : start_of(part.substr(from, length));
        },
        s, ids, dropped));
    return taken && ids.size() >= kIdsAtOnce ? taken(ids) : Status{};
  };
  for (size_t at = 0; at < piece.size(); at += size_t(utf8_length(piece[at]))) {
    if (at > begin && never_joins(piece, at)) SLUICE_TRY(encode_part(at));
  }
  return encode_part(piece.size());
}

Status Bpe::encode_bytes(std::string_view piece, BpeScratch& s, std::vector<int32_t>& ids, int64_t& dropped,
                         const Taken& taken) const {
  if (ignore_merges_) {
    if (const int32_t id = byte_tokens_.find(piece); id >= 0) {
      ids.push_back(id);
      return {};
    }
  }
  // Long pieces go in parts that no merge joins, where there are such.
  while (true) {
    size_t end = std::min(piece.size(), kKeptSymbols);
    while (end < piece.size() && !never_joins_bytes(piece[end - 1], piece[end])) ++end;
    const std::string_view part = piece.substr(0, end);
    SLUICE_TRY(encode_piece(
        part, [&](size_t& at) { return bytes_[static_cast<unsigned char>(part[at++])]; }, s, ids, dropped));
    if (taken && ids.size() >= kIdsAtOnce) SLUICE_TRY(taken(ids));
    piece.remove_prefix(end);
    if (piece.empty()) return {};
  }
}

}  // namespace sluice::core
