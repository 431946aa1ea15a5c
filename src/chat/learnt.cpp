// SPDX-License-Identifier: Apache-2.0
#include "chat/learnt.h"

#include <algorithm>
#include <cctype>

#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

constexpr std::string_view kNames[] = {"assistant", "last", "all-turns", "everything", "marked"};

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

Result<LearntTokens> encoded(std::string_view text, const Tokenizer::Plain& plain,
                             const std::vector<Stretch>& learnt, const Tokenizer& tokenizer) {
  LearntTokens tokens;
  tokens.reserve_for(text);
  EncodeCounts counts;
  const Tokenizer::TakePlaces take = [&](std::span<const int32_t> ids,
                                         std::span<const Stretch> places) -> Status {
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    for (const Stretch& place : places) {
      const bool learns = inside(place, learnt);
      tokens.learnt.push_back(learns ? 1 : 0);
      tokens.learnt_bytes += learns ? int64_t(place.end - place.begin) : 0;
      if (!learns && touches(place, learnt)) ++tokens.straddling;
    }
    return {};
  };
  SLUICE_TRY(tokenizer.encode_places(text, plain, take, &counts));
  tokens.written = counts.written;
  return tokens;
}

// Whether the template writes there that the assistant speaks.
bool turns_header(std::string_view text, const ChatPiece& piece) {
  constexpr std::string_view kRole = "assistant";
  const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
  return std::search(part.begin(), part.end(), kRole.begin(), kRole.end(),
                     [](char a, char b) { return std::tolower(uint8_t(a)) == b; }) != part.end();
}

// A message, as what is learnt of it goes by.
struct Turn {
  bool answers = false;  // it is the assistant's
  bool shown = false;    // something of it is in the text
  bool speaks = false;   // something of that is said, and more than white space
  Wish wish = Wish::None;
};

std::vector<Turn> turns_of(const Conversation& conversation, const RenderedChat& chat) {
  std::vector<Turn> turns(conversation.messages.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i].answers = conversation.messages[i].find("role")->text == "assistant";
    if (i < conversation.wishes.size()) turns[i].wish = conversation.wishes[i];
  }
  for (const ChatPiece& piece : chat.pieces) {
    if (piece.message < 0) continue;
    Turn& turn = turns[size_t(piece.message)];
    turn.shown = true;
    const std::string_view text = std::string_view(chat.text).substr(piece.begin, piece.end - piece.begin);
    turn.speaks = turn.speaks || (piece.own && piece.data && text.find_first_not_of(" \t\r\n") != text.npos);
  }
  return turns;
}

// Which pieces are learnt.
class Rule {
 public:
  Rule(const Conversation& conversation, const RenderedChat& chat, Learn learn, bool thoughts)
      : turns_(turns_of(conversation, chat)),
        learn_(learn),
        thoughts_(thoughts),
        answers_from_(conversation.answers_from) {
    for (size_t i = answers_from_; i < turns_.size(); ++i) {
      if (turns_[i].answers && turns_[i].speaks) last_ = int32_t(i);
      if (turns_[i].answers && turns_[i].shown) last_shown_ = int32_t(i);
    }
    marks_ = std::any_of(chat.pieces.begin(), chat.pieces.end(),
                         [](const ChatPiece& piece) { return piece.marked; });
  }

  const std::vector<Turn>& turns() const { return turns_; }
  bool learns(const ChatPiece& piece) const {
    if (piece.message < 0) return by_rule(piece);
    const Turn& turn = turns_[size_t(piece.message)];
    if (turn.wish == Wish::Context) return false;
    if (learn_ == Learn::Marked) return piece.marked;
    if (learn_ != Learn::Everything && !turn.speaks) return false;
    if (turn.wish == Wish::Learn) return piece.own && (thoughts_ || !piece.thought);
    return by_rule(piece);
  }
  // By whom a turn is, and nothing else.
  bool learnt_before(const ChatPiece& piece) const {
    if (learn_ != Learn::Last) return by_rule(piece);
    return piece.own && piece.message >= 0 && piece.message == last_shown_;
  }

 private:
  bool by_rule(const ChatPiece& piece) const {
    if (learn_ == Learn::Everything) return true;
    if (learn_ == Learn::Marked) return piece.marked;
    if (!piece.own || piece.message < 0 || (piece.thought && !thoughts_)) return false;
    if (marks_ && learn_ != Learn::AllTurns && !piece.marked) return false;
    const bool answers = turns_[size_t(piece.message)].answers && size_t(piece.message) >= answers_from_;
    return learn_ == Learn::AllTurns || (learn_ == Learn::Assistant ? answers : piece.message == last_);
  }

  std::vector<Turn> turns_;
  Learn learn_;
  bool thoughts_;
  size_t answers_from_;
  bool marks_ = false;  // the template has {% generation %}
  int32_t last_ = -1, last_shown_ = -1;
};

// Messages that Sluice 0.2 refused, or whose turn it ended before the template's last mark.
bool is_renewed(const ChatValue& message, Learn learn) {
  const ChatValue* content = message.find("content");
  if (content != nullptr && !content->is_null() && !content->is_string() && !content->is_array()) return true;
  const std::string& role = message.find("role")->text;
  return learn == Learn::AllTurns && role != "user" && role != "assistant" && role != "system";
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
                                   const Tokenizer& tokenizer, bool thoughts,
                                   std::span<const int32_t> special) {
  const Rule rule(conversation, chat, learn, thoughts);
  std::vector<Stretch> plain, learnt;
  bool anew = false, markup = false;
  for (const ChatPiece& piece : chat.pieces) {
    if (piece.data) add_stretch(plain, piece.begin, piece.end);
    const bool learns = rule.learns(piece);
    if (learns) {
      add_stretch(learnt, piece.begin, piece.end);
      markup = markup || (!piece.data && turns_header(chat.text, piece));
    }
    anew = anew || learns != rule.learnt_before(piece);
  }
  SLUICE_ASSIGN(LearntTokens tokens, encoded(chat.text, {plain, special}, learnt, tokenizer));
  tokens.anew = anew;
  tokens.markup = markup;
  const auto learns_of = [&](int32_t message) { return rule.learns({0, 0, message, /*own=*/true, false}); };
  tokens.renewed =
      learn != Learn::Everything && std::any_of(chat.renewed.begin(), chat.renewed.end(), learns_of);
  for (const ChatValue& message : conversation.messages)
    tokens.renewed = tokens.renewed || is_renewed(message, learn);
  for (size_t i = conversation.answers_from; i < rule.turns().size(); ++i) {
    const Turn& turn = rule.turns()[i];
    const bool calls = conversation.messages[i].find("tool_calls") != nullptr;
    if (turn.answers && turn.shown && !turn.speaks && !calls && turn.wish != Wish::Context)
      ++tokens.empty_answers;
  }
  return tokens;
}

std::vector<bool> learnt_pieces(const Conversation& conversation, const RenderedChat& chat, Learn learn,
                                bool thoughts) {
  const Rule rule(conversation, chat, learn, thoughts);
  std::vector<bool> learnt;
  for (const ChatPiece& piece : chat.pieces) learnt.push_back(rule.learns(piece));
  return learnt;
}

Result<LearntTokens> learnt_tokens(std::string_view text, size_t learnt_from, int32_t end,
                                   const Tokenizer& tokenizer, std::span<const int32_t> special) {
  const auto before = tokenizer.tokens_before(), after = tokenizer.tokens_after();
  SLUICE_ASSIGN(LearntTokens tokens, encoded(text, Tokenizer::Plain::everywhere(special),
                                             {{learnt_from, text.size()}}, tokenizer));
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
