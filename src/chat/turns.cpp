// SPDX-License-Identifier: Apache-2.0
#include "chat/turns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "chat/origins.h"

namespace sluice::core {
namespace {

constexpr size_t kNowhere = std::string::npos;

bool is_said(ChatField field) {
  return field == ChatField::Content || field == ChatField::Thought || field == ChatField::Calls ||
         field == ChatField::Arguments;
}

// Whose a run is; nothing: the template wrote it outside of any message.
std::optional<ChatOrigin> whose(jinja::Origin origin) {
  if ((origin & ~jinja::kMarked) == jinja::kTemplate) return std::nullopt;
  return chat_origin(origin);
}

// The bytes of a message.
struct Place {
  size_t begin = kNowhere, end = 0;                 // of all that is its own, also by the template
  size_t said_begin = kNowhere, said_end = 0;       // of what it says
  size_t own_begin = kNowhere, own_end = kNowhere;  // of its turn
  size_t header = kNowhere;                         // of a later message, which says some of it again
  std::vector<std::pair<size_t, size_t>> others;    // between what it says, that others say; they rise
};

size_t common_prefix(std::string_view a, std::string_view b) {
  return size_t(
      std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

// Text from the first character that looks like a special token: "<|im_end|>", "[/INST]". Empty: none.
std::string_view token_from(std::string_view text) {
  if (text.empty() || (text[0] != '<' && text[0] != '[')) return {};
  const size_t close = text.find_first_of(text[0] == '<' ? ">\n" : "]\n");
  return close == text.npos || text[close] == '\n' ? std::string_view() : text.substr(0, close + 1);
}

// The same at the beginning of a text, behind white space; a text without brackets begins with a word.
std::string_view token_at_begin(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \n\t")));
  const bool bracket = !text.empty() && (text[0] == '<' || text[0] == '[');
  return bracket ? token_from(text) : text.substr(0, text.find_first_of(" \n<[", 1));
}

// Where the last special token of [at, end) begins, with which a header does; `end`: there is none.
size_t header_in(std::string_view text, size_t at, size_t end) {
  size_t found = end;
  for (size_t i = at; i < end; ++i) {
    const std::string_view token = token_from(text.substr(i, end - i));
    if (token.empty()) continue;
    found = i;
    i += token.size() - 1;
  }
  return found;
}

// A message's last stretch, and the end of the one before.
struct LastSaid {
  size_t begin = kNowhere, end = 0, before = 0;
  std::vector<std::string_view> all;  // that it said, but for this
};

// The header of a tool's result, which ends at `header_end`, may name the call with the words of the message
// that called: behind a special token, and before none that ends a turn.
void take_back_repeated(std::string_view text, const LastSaid& last, size_t header_end,
                        const std::vector<std::string>& ends, Place& place) {
  if (last.begin == kNowhere || place.said_end != last.end || last.all.empty()) return;
  const std::string_view header = text.substr(last.end, header_end - last.end);
  for (const std::string& end : ends) {
    if (header.find(end) != header.npos) return;
  }
  const std::string_view words = text.substr(last.begin, last.end - last.begin);
  const bool again = std::find(last.all.begin(), last.all.end(), words) != last.all.end();
  if (!again || header_in(text, last.before, last.begin) == last.begin) return;
  place.said_end = last.before;
  place.header = header_in(text, last.before, last.begin);
}

// Ignores repetitions of a message behind a later one. `ends`: the tokens that end turns, as far as they are
// known.
std::vector<Place> places_of(std::string_view text, const std::vector<jinja::Text::Run>& runs,
                             size_t messages, const std::vector<std::string>& ends) {
  std::vector<Place> places(messages);
  LastSaid last;
  int32_t speaker = -1;  // whose `last` is
  // The latest message that had begun when a field of a message was said.
  std::vector<std::array<int32_t, 8>> said_by(messages);
  for (auto& fields : said_by) fields.fill(-1);
  int32_t latest = -1;
  size_t begin = 0;
  for (const auto& run : runs) {
    if (const auto origin = whose(run.origin);
        origin && origin->message >= 0 && size_t(origin->message) < messages) {
      Place& place = places[size_t(origin->message)];
      place.begin = std::min(place.begin, begin);
      place.end = run.end;
      latest = std::max(latest, origin->message);
      const ChatField field = origin->field == ChatField::Arguments ? ChatField::Calls : origin->field;
      int32_t& by = said_by[size_t(origin->message)][size_t(field)];
      const bool repeats = by == origin->message && latest > origin->message;
      if (is_said(field) && !repeats) {
        if (speaker != origin->message) {
          if (speaker >= 0) take_back_repeated(text, last, begin, ends, places[size_t(speaker)]);
          // So may the name of a call that comes later, or has the same number, before an earlier message
          // speaks.
          if (speaker < origin->message && place.said_end > 0) place.said_begin = kNowhere;
          if (speaker > origin->message && place.said_end > 0)
            place.others.emplace_back(place.header == kNowhere ? place.said_end : place.header, begin);
          last = {};
          speaker = origin->message;
        }
        if (last.begin != kNowhere) last.all.push_back(text.substr(last.begin, last.end - last.begin));
        last.before = last.end;
        last.begin = begin, last.end = run.end;
        by = latest;
        place.said_begin = std::min(place.said_begin, begin);
        place.said_end = run.end;
      }
    }
    begin = run.end;
  }
  return places;
}

std::vector<std::string_view> tokens_in(std::string_view text) {
  std::vector<std::string_view> tokens;
  for (size_t at = 0; at < text.size();) {
    const std::string_view token = token_from(text.substr(at));
    if (!token.empty()) tokens.push_back(token);
    at += std::max<size_t>(1, token.size());
  }
  return tokens;
}

bool among(std::string_view token, const auto& tokens) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// The text without the half of a token that it ends with.
std::string_view whole_tokens(std::string_view text) {
  const size_t open = text.find_last_of("<[");
  return open != text.npos && token_from(text.substr(open)).empty() && text.find('\n', open) == text.npos
             ? text.substr(0, open)
             : text;
}

// The text without the tag of a thought that it ends with, such as "<think>"; the text: it ends with none.
std::string_view without_tag(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  const size_t open = rest.find_last_of("<[");
  if (open == rest.npos || token_from(rest.substr(open)) != rest.substr(open)) return text;
  const bool tag = std::all_of(rest.begin() + long(open) + 1, rest.end() - 1,
                               [](char c) { return c == '/' || (std::isalpha(uint8_t(c)) != 0); });
  return tag ? rest.substr(0, open) : text;
}

// The length of a thought that says nothing, such as "<think>\n\n</think>\n\n"; 0: there is none at the
// beginning.
size_t empty_thought(std::string_view text) {
  const char open = text.empty() ? '\0' : text[0];
  if (open != '<' && open != '[') return 0;
  const char close = open == '<' ? '>' : ']';
  const size_t end = text.find(close);
  if (end == text.npos || end < 2 || text[1] == '/') return 0;
  const std::string_view name = text.substr(1, end - 1);
  const size_t next = text.find_first_not_of(" \n", end + 1);
  if (next == text.npos || next == 0) return 0;
  const std::string closing = fmt::format("{}/{}{}", open, name, close);
  if (!text.substr(next).starts_with(closing)) return 0;
  return std::min(text.size(), text.find_first_not_of(" \n", next + closing.size()));
}

class Finder {
 public:
  Finder(const jinja::Text& text, const std::vector<Speaker>& speakers, const TurnMarks& marks)
      : text_(text.view()),
        runs_(text.runs()),
        speakers_(speakers),
        marks_(marks),
        places_(places_of(text_, runs_, speakers.size(), marks.ends)) {
    size_t said = 0;  // where the last one who spoke ended
    for (size_t m = 0; m < places_.size(); ++m) {
      if (places_[m].said_begin == kNowhere) say_nothing(m);
      if (places_[m].said_begin != kNowhere) order_.push_back(m);
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return places_[a].said_begin < places_[b].said_begin; });
    for (const size_t m : order_) {
      Place& place = places_[m];
      place.own_begin = begin_of(m, said);
      place.own_end = end_of(m);
      said = std::max(said, place.said_end);
      edges_.push_back(place.own_begin);
      edges_.push_back(place.own_end);
      for (const auto& [from, end] : place.others) edges_.insert(edges_.end(), {from, end});
    }
    find_thoughts();
    std::sort(edges_.begin(), edges_.end());
  }

  Turns turns() const {
    Turns turns{{}, unthought_};
    std::vector<ChatPiece>& pieces = turns.pieces;
    size_t begin = 0;
    for (const auto& run : runs_) {
      const auto origin = whose(run.origin);
      while (begin < run.end) {
        // Roles are known words, which some templates make special tokens of.
        const bool data = origin && origin->field != ChatField::Markup && origin->field != ChatField::Role;
        int32_t message = origin ? origin->message : -1;
        // Text of the template in a turn belongs to the turn.
        if (const int32_t turn = data ? -1 : turn_at(begin); turn >= 0) message = turn;
        const bool inside =
            message >= 0 && size_t(message) < places_.size() && owns(places_[size_t(message)], begin);
        const size_t end = std::min(run.end, next_edge(begin));
        add({begin, end, message, inside, data, (run.origin & jinja::kMarked) != 0, is_thought(begin)},
            pieces);
        begin = end;
      }
    }
    return turns;
  }

 private:
  static bool owns(const Place& place, size_t at) {
    if (place.own_begin == kNowhere || at < place.own_begin || at >= place.own_end) return false;
    const auto next = std::upper_bound(place.others.begin(), place.others.end(), at,
                                       [](size_t i, const auto& other) { return i < other.first; });
    return next == place.others.begin() || std::prev(next)->second <= at;
  }

  static void add(ChatPiece piece, std::vector<ChatPiece>& pieces) {
    if (!pieces.empty()) {
      ChatPiece& last = pieces.back();
      if (last.message == piece.message && last.own == piece.own && last.data == piece.data &&
          last.marked == piece.marked && last.thought == piece.thought) {
        last.end = piece.end;
        return;
      }
    }
    pieces.push_back(piece);
  }

  // Turns lie one behind the other; this is asked for rising places.
  int32_t turn_at(size_t at) const {
    while (turn_ < order_.size() && places_[order_[turn_]].own_end <= at) ++turn_;
    return turn_ < order_.size() && owns(places_[order_[turn_]], at) ? int32_t(order_[turn_]) : -1;
  }

  size_t next_edge(size_t at) const {
    const auto it = std::upper_bound(edges_.begin(), edges_.end(), at);
    return it == edges_.end() ? text_.size() : *it;
  }

  // A thought begins where what was said before ends, and ends behind its last tag and the lines after it.
  void find_thoughts() {
    std::vector<size_t> said(places_.size());
    size_t begin = 0;
    for (const auto& run : runs_) {
      const auto origin = whose(run.origin);
      const size_t from = std::exchange(begin, run.end);
      if (!origin || origin->message < 0 || !is_said(origin->field)) continue;
      const auto m = size_t(origin->message);
      const Place& place = places_[m];
      if (!owns(place, from)) continue;
      if (origin->field == ChatField::Thought) {
        thoughts_.emplace_back(std::max(place.own_begin, said[m]), behind_tag(run.end, place.own_end));
      } else {
        said[m] = run.end;
      }
    }
    // Some are part of the content.
    constexpr std::string_view kOpen = "<think>", kClose = "</think>";
    for (size_t m = 0; m < places_.size(); ++m) {
      const Place& place = places_[m];
      if (!answers(m) || place.own_begin == kNowhere) continue;
      const std::string_view text = text_.substr(0, place.own_end);
      const size_t close = text.find(kClose, place.own_begin);
      if (close == text.npos) continue;
      const size_t open = text.find(kOpen, place.own_begin);
      thoughts_.emplace_back(open < close ? open : place.own_begin, behind_tag(close, place.own_end));
    }
    std::sort(thoughts_.begin(), thoughts_.end());
    std::vector<std::pair<size_t, size_t>> apart;
    for (const auto& [from, end] : thoughts_) {
      if (!apart.empty() && from <= apart.back().second) {
        apart.back().second = std::max(apart.back().second, end);
      } else {
        apart.emplace_back(from, end);
      }
    }
    thoughts_ = std::move(apart);
    for (const auto& [from, end] : thoughts_) edges_.insert(edges_.end(), {from, end});
  }
  size_t behind_tag(size_t at, size_t limit) const {
    const std::string_view rest = text_.substr(at, limit - at);
    const std::string_view token = token_at_begin(rest);
    size_t end = at;
    if (token.starts_with('<') || token.starts_with('['))
      end += size_t(token.data() - rest.data()) + token.size();
    while (end < limit && text_[end] == '\n') ++end;
    return end;
  }
  bool is_thought(size_t at) const {
    const auto it = std::upper_bound(thoughts_.begin(), thoughts_.end(), at,
                                     [](size_t place, const auto& t) { return place < t.second; });
    return it != thoughts_.end() && it->first <= at;
  }

  // A turn that says nothing says so behind its header.
  void say_nothing(size_t m) {
    Place& place = places_[m];
    if (place.begin == kNowhere) return;
    size_t at = place.begin;
    const std::string_view all = text_.substr(place.begin, place.end - place.begin);
    for (const std::string& header : marks_.headers) {
      const size_t found = answers(m) && !header.empty() ? all.find(header) : all.npos;
      if (found == all.npos) continue;
      at += found + header.size();
      break;
    }
    at = behind_thought(m, at, place.end);
    if (const auto [end, size] = first_end(at, place.end); size > 0) at = end;
    place.said_begin = place.said_end = at;
  }

  bool answers(size_t m) const { return speakers_[m] == Speaker::Assistant; }
  // Marks before and behind the role in a header, as in that of an answer: special tokens and the end of the
  // line or the header. Empty: headers say no role.
  std::pair<std::string_view, std::string_view> around_role() const {
    if (marks_.headers.empty()) return {};
    const std::string_view header = marks_.headers.back();
    const size_t token = token_from(header).size();
    const size_t role = header.find_first_not_of("abcdefghijklmnopqrstuvwxyz", token);
    if (token == 0 || role == token || role == header.npos) return {};
    return {header.substr(0, token), header.substr(role)};
  }

  // Behind the header, in the bytes between what was said before and what is said now.
  size_t begin_of(size_t m, size_t said) {
    const Place& place = places_[m];
    const size_t first = place.said_begin;
    // The template may have written nothing but the message's content.
    const bool marked = place.begin < first;
    const size_t from = std::min(first, marked ? std::max(said, place.begin) : said);
    const std::string_view gap = text_.substr(from, first - from);
    if (speakers_[m] == Speaker::Asks) return first;
    if (speakers_[m] == Speaker::Other) {
      const auto [open, close] = around_role();
      if (open.empty()) return first;
      if (const size_t header = gap.rfind(open); header != gap.npos) {
        const size_t end = gap.find(close, header + open.size());
        return end == gap.npos ? first : from + end + close.size();
      }
      return marked && place.begin >= said ? from : first;
    }
    for (const std::string& header : marks_.headers) {
      if (header.empty()) continue;
      const size_t at = gap.rfind(header);
      if (at != gap.npos) return behind_thought(m, from + at + header.size(), first);
    }
    const std::string_view all = text_.substr(std::min(said, first), first - std::min(said, first));
    if (!marks_.after_user.empty() && all.starts_with(marks_.after_user))
      return behind_thought(m, std::max(said + marks_.after_user.size(), from), first);
    if (marked && place.begin >= said) return behind_thought(m, from, first);
    return gap.ends_with(marks_.before) ? first - marks_.before.size() : first;
  }
  size_t behind_thought(size_t m, size_t at, size_t first) {
    size_t end = at + empty_thought(text_.substr(at, first - at));
    // The header may begin it, with a tag of its own.
    constexpr size_t kLongestTag = 64;
    const size_t from = at - std::min(at, kLongestTag);
    const size_t open = from + text_.substr(from, at - from).find_last_of("<[");
    if (end == at && open >= from && open < at)
      end = std::max(at, open + empty_thought(text_.substr(open, first - open)));
    if (end > at) unthought_.push_back(int32_t(m));
    return end;
  }

  // Behind the first token that ends a turn, or all that the template writes of this one.
  size_t end_of(size_t m) const {
    const Place& place = places_[m];
    size_t limit = place.said_end, own = place.said_end;
    bool gap = false;
    auto run = std::upper_bound(runs_.begin(), runs_.end(), place.said_end,
                                [](size_t at, const auto& r) { return at < r.end; });
    for (; run != runs_.end(); ++run) {
      const auto origin = whose(run->origin);
      if (origin && size_t(origin->message) != m) break;
      if (origin && is_said(origin->field)) break;
      gap = gap || !origin;
      limit = run->end;
      if (!gap) own = limit;
    }
    if (const auto [at, size] = first_end(place.said_end, limit); size > 0) return at + size;
    if (place.header != kNowhere && place.header >= place.said_end) return place.header;
    if (marks_.next_role && answers(m)) {
      const std::string_view rest = text_.substr(own), token = token_at_begin(rest);
      if (token.starts_with('<') || token.starts_with('['))
        return own + size_t(token.data() - rest.data()) + token.size();
    }
    return own;
  }

  // Where the first token that ends a turn begins, and its size; 0: there is none.
  std::pair<size_t, size_t> first_end(size_t begin, size_t end) const {
    std::pair<size_t, size_t> first{kNowhere, 0};
    const std::string_view text = text_.substr(begin, end - begin);
    for (const std::string& token : marks_.ends) {
      const size_t at = text.find(token);
      if (at != text.npos && begin + at < first.first) first = {begin + at, token.size()};
    }
    return first;
  }

  std::string_view text_;
  std::vector<jinja::Text::Run> runs_;
  const std::vector<Speaker>& speakers_;
  const TurnMarks& marks_;
  std::vector<Place> places_;
  std::vector<size_t> order_;  // of those who speak, as they stand in the text
  std::vector<size_t> edges_;
  std::vector<int32_t> unthought_;
  std::vector<std::pair<size_t, size_t>> thoughts_;  // that rise
  mutable size_t turn_ = 0;
};

}  // namespace

namespace {

// Which tokens end an answer. `after`: what stands behind the last one; `next`: from an earlier one to the
// next question; `own`: the part of that which the answer's turn wrote.
void find_ends(std::string_view after, std::string_view next, std::string_view own,
               const std::vector<std::string>& stops, TurnMarks& marks) {
  std::vector<std::string_view> header;
  for (const std::string& text : marks.headers) {
    for (const std::string_view token : tokens_in(text)) header.push_back(token);
  }
  const auto chosen = [&](std::vector<std::string_view> tokens) {
    std::erase_if(tokens, [&](std::string_view token) { return among(token, header); });
    if (tokens.empty()) return std::string_view();
    const auto stop =
        std::find_if(tokens.begin(), tokens.end(), [&](std::string_view t) { return among(t, stops); });
    return stop == tokens.end() ? tokens.back() : *stop;
  };
  const std::vector<std::string_view> last = tokens_in(after), inner = tokens_in(next);
  std::vector<std::string_view> both;
  std::copy_if(last.begin(), last.end(), std::back_inserter(both),
               [&](std::string_view token) { return among(token, inner); });
  if (const std::string_view end = chosen(both); !end.empty()) {
    marks.ends.emplace_back(end);
    return;
  }
  const std::string_view begin = token_at_begin(next);
  if (const std::string_view end = chosen(last); !end.empty()) {
    marks.ends.emplace_back(end);
    if (!begin.empty() && among(begin, inner)) marks.ends.emplace_back(begin);
  } else if (!begin.empty() && among(begin, inner)) {
    marks.ends.emplace_back(begin);
    marks.next_role = own.find(begin) == own.npos;
  } else if (const std::string_view word = token_at_begin(after);
             !word.empty() && next.find(word) != next.npos) {
    marks.ends.emplace_back(word);
  }
}

}  // namespace

TurnMarks turn_marks(const jinja::Text& asked, const jinja::Text& prompt, const jinja::Text& chat,
                     const std::vector<std::string>& stops) {
  TurnMarks marks;
  const std::vector<Place> question = places_of(asked.view(), asked.runs(), 1, {}),
                           waiting = places_of(prompt.view(), prompt.runs(), 1, {}),
                           places = places_of(chat.view(), chat.runs(), 4, {});
  const auto known = [](const Place& place) { return place.said_begin != kNowhere; };
  if (!known(waiting[0]) || !std::all_of(places.begin(), places.end(), known)) return marks;
  const std::string_view tail = prompt.view().substr(waiting[0].said_end);
  const auto between = [&](size_t a, size_t b) {
    return chat.view().substr(places[a].said_end, places[b].said_begin - places[a].said_end);
  };
  if (places[1].said_begin < places[0].said_end || places[2].said_begin < places[1].said_end ||
      places[3].said_begin < places[2].said_end)
    return marks;
  // The question's end stands in both; the header is what the prompt has beyond that.
  const std::string_view ended =
      known(question[0]) ? asked.view().substr(question[0].said_end) : std::string_view();
  const size_t without =
      known(question[0]) ? whole_tokens(tail.substr(0, common_prefix(ended, tail))).size() : kNowhere;
  const auto add_header = [&](std::string_view header) {
    if (!header.empty() && !among(header, marks.headers)) marks.headers.emplace_back(header);
  };
  for (const std::string_view gap : {between(2, 3), between(0, 1)}) {
    const size_t shared = common_prefix(gap, tail);
    marks.after_user = gap.substr(0, shared);
    marks.before = gap.substr(shared);
    if (without < shared) add_header(gap.substr(without, shared - without));
    if (without < shared) add_header(without_tag(gap.substr(without, shared - without)));
  }
  if (without < tail.size() && !marks.headers.empty() && without_tag(tail) != tail &&
      tail.find("</") == tail.npos)
    add_header(tail.substr(without));
  std::sort(marks.headers.begin(), marks.headers.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const std::string_view own = chat.view().substr(
      places[1].said_end, std::max(places[1].end, places[1].said_end) - places[1].said_end);
  find_ends(chat.view().substr(places[3].said_end), between(1, 2), own, stops, marks);
  return marks;
}

Speaker speaker_of(std::string_view role) {
  if (role == "assistant") return Speaker::Assistant;
  return role == "user" || role == "system" || role == "developer" ? Speaker::Asks : Speaker::Other;
}

Turns turns_of(const jinja::Text& text, const std::vector<Speaker>& speakers, const TurnMarks& marks) {
  return Finder(text, speakers, marks).turns();
}

}  // namespace sluice::core
