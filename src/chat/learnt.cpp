// SPDX-License-Identifier: Apache-2.0
#include "chat/learnt.h"

#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

constexpr std::string_view kNames[] = {"assistant", "last", "all-turns", "everything"};

using Stretch = Tokenizer::Stretch;

// Stretches that rise; those that touch become one.
void add_stretch(std::vector<Stretch>& stretches, size_t begin, size_t end) {
  if (!stretches.empty() && stretches.back().end == begin) {
    stretches.back().end = end;
  } else {
    stretches.push_back({begin, end});
  }
}

bool inside(Stretch token, const std::vector<Stretch>& stretches) {
  const auto it = std::upper_bound(stretches.begin(), stretches.end(), token.begin,
                                   [](size_t at, const Stretch& s) { return at < s.end; });
  return it != stretches.end() && it->begin <= token.begin && token.end <= it->end;
}

bool touches(Stretch token, const std::vector<Stretch>& stretches) {
  const auto it = std::upper_bound(stretches.begin(), stretches.end(), token.begin,
                                   [](size_t at, const Stretch& s) { return at < s.end; });
  return it != stretches.end() && it->begin < token.end;
}

Result<LearntTokens> encoded(std::string_view text, const std::vector<Stretch>& plain,
                             const std::vector<Stretch>& learnt, const Tokenizer& tokenizer) {
  LearntTokens tokens;
  tokens.reserve_for(text);
  SLUICE_TRY(tokenizer.encode_places(
      text, plain, [&](std::span<const int32_t> ids, std::span<const Stretch> places) -> Status {
        tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
        for (const Stretch& place : places) {
          const bool learns = inside(place, learnt);
          tokens.learnt.push_back(learns ? 1 : 0);
          tokens.learnt_bytes += learns ? int64_t(place.end - place.begin) : 0;
          if (!learns && touches(place, learnt)) ++tokens.straddling;
        }
        return {};
      }));
  return tokens;
}

}  // namespace

void LearntTokens::reserve_for(std::string_view text) {
  constexpr size_t kLong = size_t{1} << 20;
  if (text.size() < kLong) return;
  constexpr size_t kAround = 64;  // that a tokenizer puts there
  ids.reserve(text.size() + kAround);
  learnt.reserve(text.size() + kAround);
}

Result<Learn> parse_learn(std::string_view text) {
  if (text == "completion") return Learn::Assistant;
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), text);
  if (found == std::end(kNames))
    return error("'{}'; allowed are completion, {}", text, fmt::join(kNames, ", "));
  return Learn(found - std::begin(kNames));
}

std::string_view name_of(Learn learn) {
  return kNames[size_t(learn)];
}

Result<LearntTokens> learnt_tokens(const Conversation& conversation, const RenderedChat& chat, Learn learn,
                                   const Tokenizer& tokenizer) {
  const auto is_answer = [&](int32_t message) {
    return message >= 0 && conversation.messages[size_t(message)].find("role")->text == "assistant";
  };
  int32_t last_answer = -1;
  for (const ChatPiece& piece : chat.pieces) {
    if (is_answer(piece.message)) last_answer = std::max(last_answer, piece.message);
  }
  std::vector<Stretch> plain, learnt;
  for (const ChatPiece& piece : chat.pieces) {
    if (piece.data) add_stretch(plain, piece.begin, piece.end);
    const bool learns =
        learn == Learn::Everything ||
        (piece.own && (learn == Learn::AllTurns || (learn == Learn::Assistant && is_answer(piece.message)) ||
                       (learn == Learn::Last && piece.message == last_answer)));
    if (learns) add_stretch(learnt, piece.begin, piece.end);
  }
  return encoded(chat.text, plain, learnt, tokenizer);
}

Result<LearntTokens> learnt_tokens(std::string_view text, size_t learnt_from, int32_t end,
                                   const Tokenizer& tokenizer) {
  const auto before = tokenizer.tokens_before(), after = tokenizer.tokens_after();
  SLUICE_ASSIGN(LearntTokens tokens, encoded(text, {}, {{learnt_from, text.size()}}, tokenizer));
  tokens.ids.insert(tokens.ids.begin(), before.begin(), before.end());
  tokens.learnt.insert(tokens.learnt.begin(), before.size(), 0);
  tokens.ids.insert(tokens.ids.end(), after.begin(), after.end());
  if (end >= 0 && (tokens.ids.empty() || tokens.ids.back() != end)) tokens.ids.push_back(end);
  tokens.learnt.resize(tokens.ids.size(), 1);
  return tokens;
}

Result<LearntTokens> learnt_tokens(std::string_view text,
                                   const std::vector<std::pair<size_t, size_t>>& learnt,
                                   const Tokenizer& tokenizer) {
  std::vector<Stretch> stretches;
  for (const auto& [begin, end] : learnt) {
    if (begin < end) add_stretch(stretches, begin, end);
  }
  return encoded(text, {}, stretches, tokenizer);
}

}  // namespace sluice::core
