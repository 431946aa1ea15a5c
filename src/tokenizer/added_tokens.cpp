// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace sluice::core {
namespace {

bool is_space(uint32_t code) {
  static const CodeTable kTable(space_ranges());
  return kTable.contains(code);
}

bool is_word(uint32_t code) {
  static const CodeTable kTable(word_ranges());
  return kTable.contains(code);
}

}  // namespace

Result<AddedTokenFinder> AddedTokenFinder::create(std::vector<AddedToken> tokens) {
  AddedTokenFinder finder;
  finder.tokens_ = std::move(tokens);
  finder.nodes_.emplace_back();
  for (size_t t = 0; t < finder.tokens_.size(); ++t) {
    const AddedToken& token = finder.tokens_[t];
    if (token.text.empty()) return error("added_tokens: '{}' is normalized to nothing", token.content);
    finder.longest_bytes_ = std::max(finder.longest_bytes_, token.text.size());
    int32_t node = 0;
    for (const char c : token.text) {
      int32_t next = finder.child(node, c);
      if (next < 0) {
        next = int32_t(finder.nodes_.size());
        auto& children = finder.nodes_[size_t(node)].next;
        const std::pair<char, int32_t> link{c, next};
        children.insert(std::upper_bound(children.begin(), children.end(), link), link);
        finder.nodes_.emplace_back();
      }
      node = next;
    }
    int32_t& last = finder.nodes_[size_t(node)].token;
    if (last >= 0) {
      return error("added_tokens: '{}' and '{}' are looked for as the same text",
                   finder.tokens_[size_t(last)].content, token.content);
    }
    last = int32_t(t);
  }
  for (const auto& [byte, node] : finder.nodes_.front().next) {
    finder.first_[static_cast<unsigned char>(byte)] = node;
    finder.first_bytes_ += byte;
  }
  return finder;
}

int32_t AddedTokenFinder::child(int32_t node, char byte) const {
  const auto& next = nodes_[size_t(node)].next;
  const auto it =
      std::lower_bound(next.begin(), next.end(), byte,
                       [](const std::pair<char, int32_t>& link, char b) { return link.first < b; });
  return it != next.end() && it->first == byte ? it->second : -1;
}

int32_t AddedTokenFinder::longest(std::string_view text, size_t at) const {
  int32_t node = first_[static_cast<unsigned char>(text[at])], found = -1;
  for (; node > 0; node = at < text.size() ? child(node, text[at]) : -1) {
    if (nodes_[size_t(node)].token >= 0) found = nodes_[size_t(node)].token;
    ++at;
  }
  return found;
}

// The next place at which a token might begin.
size_t AddedTokenFinder::find_first(std::string_view text, size_t at) const {
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_.front(), at), text.size());
  while (at < text.size() && first_[static_cast<unsigned char>(text[at])] == 0) ++at;
  return at;
}

bool AddedTokenFinder::touches(std::string_view text, size_t place) const {
  if (tokens_.empty()) return false;
  for (size_t at = place - std::min(place, longest_bytes_); at <= place && at < text.size(); ++at) {
    const int32_t found = longest(text, at);
    if (found >= 0 && (at == place || at + tokens_[size_t(found)].text.size() > place)) return true;
  }
  return false;
}

bool AddedTokenFinder::next(std::string_view text, size_t& at, size_t& done, Match& match) const {
  if (tokens_.empty()) return false;
  for (at = find_first(text, at); at < text.size(); at = find_first(text, at)) {
    const int32_t found = longest(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[size_t(found)];
    const size_t begin = at, end = at + token.text.size();
    at = end;
    if (token.single_word) {
      const bool before = begin > 0 && is_word(utf8_at(text, utf8_before(text, begin)));
      const bool after = end < text.size() && is_word(utf8_at(text, end));
      if (before || after) continue;
    }
    match = {begin, end, &token};
    if (token.lstrip) {
      while (match.begin > done && is_space(utf8_at(text, utf8_before(text, match.begin)))) {
        match.begin = utf8_before(text, match.begin);
      }
    }
    if (token.rstrip) {
      while (match.end < text.size() && is_space(utf8_at(text, match.end))) {
        match.end += size_t(utf8_length(text[match.end]));
      }
    }
    done = match.end;
    return true;
  }
  return false;
}

}  // namespace sluice::core
