// SPDX-License-Identifier: Apache-2.0
#include "chat/turns.h"

#include <algorithm>
#include <optional>

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
};

std::vector<Place> places_of(const std::vector<jinja::Text::Run>& runs, size_t messages) {
  std::vector<Place> places(messages);
  size_t begin = 0;
  for (const auto& run : runs) {
    if (const auto origin = whose(run.origin);
        origin && origin->message >= 0 && size_t(origin->message) < messages) {
      Place& place = places[size_t(origin->message)];
      place.begin = std::min(place.begin, begin);
      place.end = run.end;
      if (is_said(origin->field)) {
        place.said_begin = std::min(place.said_begin, begin);
        place.said_end = run.end;
      }
    }
    begin = run.end;
  }
  return places;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return size_t(
      std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

// What looks like a special token at the beginning of a text, behind white space: "<|im_end|>", "[/INST]".
std::string token_at_begin(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\t");
  if (begin == text.npos) return {};
  text.remove_prefix(begin);
  const char open = text[0];
  if (open != '<' && open != '[') return std::string(text.substr(0, text.find_first_of(" \n<[", 1)));
  const size_t close = text.find(open == '<' ? '>' : ']');
  return close == text.npos ? std::string() : std::string(text.substr(0, close + 1));
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
  Finder(const jinja::Text& text, const std::vector<bool>& assistants, const TurnMarks& marks)
      : text_(text.view()),
        runs_(text.runs()),
        assistants_(assistants),
        marks_(marks),
        places_(places_of(runs_, assistants.size())) {
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
    }
    std::sort(edges_.begin(), edges_.end());
  }

  Turns turns() const {
    Turns turns{{}, unthought_};
    std::vector<ChatPiece>& pieces = turns.pieces;
    size_t begin = 0;
    for (const auto& run : runs_) {
      const auto origin = whose(run.origin);
      while (begin < run.end) {
        int32_t message = origin ? origin->message : -1;
        // What the template writes in a turn is of the turn.
        if (!origin) message = turn_at(begin);
        const bool inside =
            message >= 0 && size_t(message) < places_.size() && owns(places_[size_t(message)], begin);
        const size_t end = std::min(run.end, next_edge(begin));
        const bool data = origin && origin->field != ChatField::Markup;
        add({begin, end, message, inside, data}, pieces);
        begin = end;
      }
    }
    return turns;
  }

 private:
  static bool owns(const Place& place, size_t at) {
    return place.own_begin != kNowhere && place.own_begin <= at && at < place.own_end;
  }

  static void add(ChatPiece piece, std::vector<ChatPiece>& pieces) {
    if (!pieces.empty()) {
      ChatPiece& last = pieces.back();
      if (last.message == piece.message && last.own == piece.own && last.data == piece.data) {
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

  // A turn that says nothing says so behind its header.
  void say_nothing(size_t m) {
    Place& place = places_[m];
    if (place.begin == kNowhere) return;
    size_t at = place.begin;
    const std::string_view all = text_.substr(place.begin, place.end - place.begin);
    for (const std::string& header : marks_.headers) {
      const size_t found = assistants_[m] && !header.empty() ? all.find(header) : all.npos;
      if (found == all.npos) continue;
      at += found + header.size();
      break;
    }
    at = behind_thought(m, at, place.end);
    const size_t end = text_.substr(at, place.end - at).find(marks_.end);
    if (!marks_.end.empty() && end != text_.npos) at += end;
    place.said_begin = place.said_end = at;
  }

  // Behind the header, in the bytes between what was said before and what is said now.
  size_t begin_of(size_t m, size_t said) {
    const Place& place = places_[m];
    const size_t first = place.said_begin;
    // Of a message the template may have written nothing but what it says.
    const bool marked = place.begin < first;
    const size_t from = std::min(first, marked ? std::max(said, place.begin) : said);
    const std::string_view gap = text_.substr(from, first - from);
    // Of other roles it is what they say, up to the end.
    if (!assistants_[m]) return first;
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
    if (!marks_.end.empty()) {
      const size_t at = text_.substr(place.said_end, limit - place.said_end).find(marks_.end);
      if (at != text_.npos) return place.said_end + at + marks_.end.size();
    }
    return own;
  }

  std::string_view text_;
  std::vector<jinja::Text::Run> runs_;
  const std::vector<bool>& assistants_;
  const TurnMarks& marks_;
  std::vector<Place> places_;
  std::vector<size_t> order_;  // of those who speak, as they stand in the text
  std::vector<size_t> edges_;
  std::vector<int32_t> unthought_;
  mutable size_t turn_ = 0;
};

}  // namespace

TurnMarks turn_marks(const jinja::Text& asked, const jinja::Text& prompt, const jinja::Text& chat) {
  TurnMarks marks;
  const std::vector<Place> question = places_of(asked.runs(), 1), waiting = places_of(prompt.runs(), 1),
                           places = places_of(chat.runs(), 4);
  const auto known = [](const Place& place) { return place.said_begin != kNowhere; };
  if (!known(waiting[0]) || !std::all_of(places.begin(), places.end(), known)) return marks;
  const std::string_view tail = prompt.view().substr(waiting[0].said_end);
  const auto between = [&](size_t a, size_t b) {
    return chat.view().substr(places[a].said_end, places[b].said_begin - places[a].said_end);
  };
  if (places[1].said_begin < places[0].said_end || places[2].said_begin < places[1].said_end ||
      places[3].said_begin < places[2].said_end)
    return marks;
  const size_t without = known(question[0]) && prompt.view().starts_with(asked.view())
                             ? asked.size() - question[0].said_end
                             : kNowhere;
  for (const std::string_view gap : {between(2, 3), between(0, 1)}) {
    const size_t shared = common_prefix(gap, tail);
    marks.after_user = gap.substr(0, shared);
    marks.before = gap.substr(shared);
    if (without < shared) marks.headers.emplace_back(gap.substr(without, shared - without));
  }
  std::sort(marks.headers.begin(), marks.headers.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const std::string_view after = chat.view().substr(places[3].said_end), next = between(1, 2);
  marks.end = token_at_begin(after);
  if (marks.end.empty() || next.find(marks.end) == next.npos) {
    // What only ends the whole text ends the last turn, where nothing ends the others.
    const std::string first = token_at_begin(next);
    if (!first.empty() && after.find(first) != after.npos) marks.end = first;
  }
  return marks;
}

Turns turns_of(const jinja::Text& text, const std::vector<bool>& assistants, const TurnMarks& marks) {
  return Finder(text, assistants, marks).turns();
}

}  // namespace sluice::core
