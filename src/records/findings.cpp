// SPDX-License-Identifier: Apache-2.0
#include "records/findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/counts.h"
#include "base/nearest.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

struct KindNames {
  std::string_view name;  // as people say it
  const char* kept;       // as findings are kept; null: they are not
};
// In the order of FindingKind.
constexpr KindNames kFindingNames[] = {{"nothing-learnt", "without_learnt"},
                                       {"open-ends", "without_end"},
                                       {"two-begins", "two_begins"},
                                       {"hidden-tools", "lack_tools"},
                                       {"hidden-calls", "lack_tool_calls"},
                                       {"hidden-messages", "lack_messages"},
                                       {"hidden-reasoning", "lack_reasoning"},
                                       {"empty-answers", "empty_answers"},
                                       {"rendered-chats", "rendered_chats"},
                                       {"cut-tokens", "straddling"},
                                       {"no-token", "dropped"},
                                       {"one-record", "lonely_files"},
                                       {"malformed", "malformed"},
                                       {"unused-keys", "unused_keys"},
                                       {"held-out-too", "held_out_too"},
                                       {"no-row", nullptr},
                                       {"unlearnt-chats", "unlearnt_chats"},
                                       {"learnt-markup", "learnt_markup"},
                                       {"typed-ends", "typed_ends"},
                                       {"records-as-text", "records_as_text"},
                                       {"written-tokens", "written_tokens"}};
static_assert(std::size(kFindingNames) == kFindingKinds);

// Calls f(name, field) for every number that was always kept.
void visit_first_numbers(auto& findings, auto&& f) {
  using Kind = FindingKind;
  const auto kind = [&](Kind k) { f(kFindingNames[size_t(k)].kept, findings.found[size_t(k)].count); };
  f("text", findings.kinds[0]), f("pair", findings.kinds[1]), f("chat", findings.kinds[2]),
      f("marked", findings.kinds[3]);
  for (const Kind k :
       {Kind::NothingLearnt, Kind::OpenEnds, Kind::TwoBegins, Kind::CutTokens, Kind::NoToken,
        Kind::HiddenTools, Kind::HiddenCalls, Kind::HiddenMessages, Kind::OneRecord, Kind::Malformed})
    kind(k);
}

// For those that came later.
void visit_later_numbers(auto& findings, auto&& f) {
  f("lack_reasoning", findings.found[size_t(FindingKind::HiddenReasoning)].count),
      f("empty_answers", findings.found[size_t(FindingKind::EmptyAnswers)].count);
  f("rendered", findings.rendered), f("learnt_anew", findings.learnt_anew);
  f("skipped_anew", findings.skipped_anew), f("reader", findings.reader);
}

// And for those that are kept where they are not zero.
void visit_rare_numbers(auto& findings, auto&& f) {
  f("rendered_chats", findings.found[size_t(FindingKind::RenderedChats)].count),
      f("unused_keys", findings.found[size_t(FindingKind::UnusedKeys)].count);
  for (const FindingKind k : {FindingKind::UnlearntChats, FindingKind::LearntMarkup, FindingKind::TypedEnds,
                              FindingKind::RecordsAsText, FindingKind::WrittenTokens})
    f(kFindingNames[size_t(k)].kept, findings.found[size_t(k)].count);
  f("learnt_later", findings.learnt_later), f("skipped_later", findings.skipped_later);
  f("renewed", findings.renewed), f("marks", findings.marks);
  f("held_out_too", findings.found[size_t(FindingKind::HeldOutToo)].count);
}

constexpr size_t kMostPlaces = 3;
// Keys are few, but data may have any.
constexpr size_t kMostUnused = 40;

// Forms are few, but data.fields and what records hold make their names.
constexpr size_t kMostForms = 40;

// Whether every stretch that is learnt ends with a token that ends something; behind it may be white space.
bool every_end_is_learnt(const LearntTokens& tokens, const TokenMaking& making) {
  const auto ends = [&](int32_t id) { return id == making.end || making.tokenizer->is_special(id); };
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.learnt[i] == 0) continue;
    if (i + 1 < tokens.ids.size() && tokens.learnt[i + 1] != 0) continue;
    size_t at = i;
    while (at > 0 && tokens.learnt[at - 1] != 0 && !ends(tokens.ids[at]) &&
           is_blank(tokens.ids[at], *making.tokenizer))
      --at;
    if (!ends(tokens.ids[at])) return false;
  }
  return true;
}

}  // namespace

std::string_view name_of(FindingKind kind) {
  return kFindingNames[size_t(kind)].name;
}

Result<FindingKind> parse_finding_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const KindNames& kind : kFindingNames) {
    if (kind.name == name) return FindingKind(names.size());
    names.emplace_back(kind.name);
  }
  const std::string near = nearest(name, names);
  return error("'{}'; {}allowed are {}", name,
               similar(name, near) ? fmt::format("did you mean {}? ", near) : "", fmt::join(names, ", "));
}

void Found::add(int64_t n, const std::string& place, const std::function<void(const std::string&)>& told) {
  count += n;
  if (place.empty()) return;
  ++places;
  if (first.size() < kMostPlaces) first.push_back(place);
  if (told) told(place);
}

std::string Found::where(FindingKind kind) const {
  if (first.empty()) return {};
  const int64_t more = places - std::ssize(first);
  return fmt::format(
      ": {}{}", fmt::join(first, ", "),
      more > 0 ? fmt::format(" and {} more (sluice data --list {})", more, name_of(kind)) : "");
}

std::string place_text(std::string_view file, int64_t line, int64_t place) {
  if (line == 0) return place == 0 ? std::string(file) : fmt::format("{} (document {})", file, place + 1);
  return fmt::format("{}:{}{}", file, line, place == line ? "" : fmt::format(" (record {})", place));
}

void Findings::add(FindingKind kind, int64_t n, const std::string& place) {
  if (n == 0) return;
  found[size_t(kind)].add(n, place, [&](const std::string& p) {
    if (told) told(kind, p);
  });
}

void Findings::add(const Document& document, const TokenMaking& making, const std::string& file) {
  using Kind = FindingKind;
  const LearntTokens& tokens = document.tokens;
  const int64_t learnt = std::accumulate(tokens.learnt.begin(), tokens.learnt.end(), int64_t{0});
  ++kinds[size_t(document.kind)];
  const auto say = [&](Kind kind, int64_t n) {
    if (n > 0) add(kind, n, place_text(file, document.line, document.place));
  };
  say(Kind::NothingLearnt, learnt == 0 ? 1 : 0);
  say(Kind::UnlearntChats, document.rendered && learnt == 0 ? 1 : 0);
  say(Kind::LearntMarkup, tokens.markup ? 1 : 0);
  say(Kind::TypedEnds, document.typed_end ? 1 : 0);
  // Plain text, or a turn with all that is around it, need not end.
  const bool answers = document.kind != Record::Kind::Text && making.learn != Learn::Everything && learnt > 0;
  say(Kind::OpenEnds, answers && !every_end_is_learnt(tokens, making) ? 1 : 0);
  const bool two = tokens.ids.size() > 1 && tokens.ids[0] == tokens.ids[1];
  say(Kind::TwoBegins, two && making.tokenizer->is_special(tokens.ids[0]) ? 1 : 0);
  say(Kind::CutTokens, tokens.straddling);
  say(Kind::NoToken, tokens.dropped);
  if (!document.rendered && tokens.written >= 0)
    add_written(tokens.written, *making.tokenizer, place_text(file, document.line, document.place));
  say(Kind::HiddenTools, document.lacks_tools ? 1 : 0);
  say(Kind::HiddenCalls, document.lacks_tool_calls ? 1 : 0);
  say(Kind::HiddenMessages, document.lacks_messages ? 1 : 0);
  say(Kind::HiddenReasoning, document.lacks_reasoning ? 1 : 0);
  say(Kind::EmptyAnswers, tokens.empty_answers);
  say(Kind::RenderedChats, !document.rendered_turn.empty() && making.learn != Learn::Everything ? 1 : 0);
  rendered += document.rendered ? 1 : 0;
  learnt_anew += document.learnt_anew ? 1 : 0;
  learnt_later += document.learnt_later ? 1 : 0;
  renewed += tokens.renewed ? 1 : 0;
  note_unused(document, file);
  std::string form = document.form;
  if (document.rendered && document.kind == Record::Kind::Pair) form += ", as turns";
  take(form, file);
}

void Findings::add_written(int32_t token, const Tokenizer& tokenizer, const std::string& place) {
  add(FindingKind::WrittenTokens, 1, fmt::format("{}: {}", place, tokenizer.token(token).value_or("")));
}

void Findings::note_unused(const Document& document, const std::string& file) {
  if (document.unused.empty()) return;
  const std::string place = place_text(file, document.line, document.place);
  std::string names;
  for (auto key = document.unused.begin(); key != document.unused.end(); ++key) {
    if (std::find(document.unused.begin(), key, *key) != key) continue;
    names += (names.empty() ? "" : ", ") + *key;
    auto it = std::find_if(unused.begin(), unused.end(), [&](const Unused& u) { return u.key == *key; });
    if (it == unused.end() && unused.size() == kMostUnused) continue;
    if (it == unused.end()) it = unused.insert(unused.end(), {*key, place});
    ++it->documents;
  }
  add(FindingKind::UnusedKeys, 1, fmt::format("{}: {}", place, names));
}

void Findings::take(std::string_view form, const std::string& file) {
  if (form.empty()) return;
  auto it = std::find_if(taken.begin(), taken.end(), [&](const Taken& t) { return t.form == form; });
  if (it == taken.end() && taken.size() == kMostForms) form = "other forms";
  if (it == taken.end())
    it = std::find_if(taken.begin(), taken.end(), [&](const Taken& t) { return t.form == form; });
  if (it == taken.end()) it = taken.insert(taken.end(), {std::string(form), file});
  it->files += it->last == file && it->files > 0 ? 0 : 1;
  it->last = file;
  ++it->documents;
}

void Findings::skip(const Error& at) {
  add(FindingKind::Malformed, 1, at.message);
  if (!at.detail("later").empty()) {
    skipped_later = 1;
  } else if (!at.detail("key").empty()) {
    skipped_anew = 1;
  }
}

std::vector<std::string> Findings::warnings() const {
  using Kind = FindingKind;
  const int64_t documents = std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
  std::vector<std::string> lines;
  const auto where = [&](Kind kind) { return found[size_t(kind)].where(kind); };
  const auto say = [&](Kind kind, std::string_view what, std::string_view way = "") {
    if (count(kind) > 0)
      lines.push_back(fmt::format("in {} of {} {}{}{}", count(kind), counted(documents, "document"), what,
                                  where(kind), way));
  };
  const auto say_number = [&](Kind kind, const auto& text) {
    if (count(kind) > 0) lines.push_back(text(count(kind)) + where(kind));
  };
  say(Kind::NothingLearnt, "nothing is learnt");
  say(Kind::OpenEnds, "no special token ends an answer, and a model does not learn to stop there");
  say(Kind::TwoBegins, "the same special token stands at the beginning twice");
  say(Kind::HiddenTools, "there are tools, which the chat template does not show");
  say(Kind::HiddenCalls,
      "tools are called, which the chat template does not show; turns that only call are not learnt");
  say(Kind::HiddenMessages, "there is a message that the chat template does not show");
  say(Kind::HiddenReasoning, "there is reasoning, which the chat template does not show");
  say(Kind::RenderedChats, "text begins with the turn of a chat that was rendered elsewhere",
      ". As plain text all of it is learnt, what the user says too, and inside a message it is rendered "
      "twice. Bring such chats as messages, or say which bytes are learnt, with \"learnt\"; data.learn = "
      "everything says that all is meant");
  say(Kind::TypedEnds, "an answer ends with a special token that is written out",
      ". There it is text, which is learnt letter by letter, and the chat template ends the turn behind it. "
      "Leave it out, or name it in data.special_in_text");
  say(Kind::WrittenTokens, "a special token is written out, which is text there",
      ". data.special_in_text makes tokens of those that it names; chats belong in messages");
  say_number(Kind::EmptyAnswers, [](int64_t n) {
    return fmt::format("{} empty and not learnt, as a model would learn from it to say nothing",
                       counted(n, "answer", "is", "are"));
  });
  say_number(Kind::CutTokens, [](int64_t n) {
    return counted(n, "token", "is not learnt, as only a part of its text is",
                   "are not learnt, as only a part of their text is");
  });
  say_number(Kind::NoToken, [](int64_t n) {
    return fmt::format("{} characters or bytes have no token and are left out", n);
  });
  say_number(Kind::OneRecord, [](int64_t n) {
    return fmt::format("{} one record only, and in JSONL each line is a document",
                       counted(n, "JSONL file", "has", "have"));
  });
  say_number(Kind::RecordsAsText, [](int64_t n) {
    return fmt::format(
        "{} with records of JSON, all of which is learnt as text: a name that ends in .jsonl says "
        "that they are records",
        counted(n, "file", "begins", "begin"));
  });
  say_number(Kind::Malformed, [](int64_t n) {
    return fmt::format("{} skipped", counted(n, "malformed record", "was", "were"));
  });
  if (unused.empty()) return lines;
  std::vector<std::string> keys;
  for (const Unused& u : unused) keys.push_back(u.key);
  lines.push_back(
      fmt::format("in {} of {} there are keys that nothing is read of: {} (first in {}); data.ignore = "
                  "[\"{}\"] says that they "
                  "are known",
                  count(Kind::UnusedKeys), counted(documents, "document"), fmt::join(keys, ", "),
                  unused.front().first, fmt::join(keys, "\", \"")));
  return lines;
}

std::string Findings::to_text() const {
  const Found& malformed = found[size_t(FindingKind::Malformed)];
  nlohmann::ordered_json json = {{"first_malformed", malformed.first.empty() ? "" : malformed.first.front()}};
  const auto put = [&](const char* name, int64_t value) { json[name] = value; };
  visit_first_numbers(*this, put);
  visit_later_numbers(*this, put);
  json["unused"] = 0, json["first_unused"] = "";  // an earlier program's
  json["taken"] = nlohmann::ordered_json::array();
  for (const Taken& t : taken) json["taken"].push_back({t.form, t.first, t.files, t.documents});
  visit_rare_numbers(*this, [&](const char* name, int64_t value) {
    if (value != 0) json[name] = value;
  });
  for (size_t i = 0; i < kFindingKinds; ++i) {
    if (kFindingNames[i].kept != nullptr && found[i].places > 0)
      json["places"].push_back({kFindingNames[i].kept, found[i].places, found[i].first});
  }
  for (const Unused& u : unused) json["keys"].push_back({u.key, u.first, u.documents});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

namespace {

using Json = nlohmann::json;

// Takes every item of a list, which has texts and then numbers. No list: it is empty.
bool parse_list(const Json& json, const char* name, size_t texts, size_t numbers, auto&& take) {
  if (!json.contains(name)) return true;
  if (!json[name].is_array()) return false;
  for (const Json& item : json[name]) {
    bool whole = item.is_array() && item.size() == texts + numbers;
    for (size_t i = 0; whole && i < item.size(); ++i)
      whole = i < texts ? item[i].is_string() : item[i].is_number_integer();
    if (!whole) return false;
    take(item);
  }
  return true;
}

bool parse_places(const Json& json, std::array<Found, kFindingKinds>& found) {
  if (!json.contains("places")) return true;
  if (!json["places"].is_array()) return false;
  for (const Json& item : json["places"]) {
    const bool whole =
        item.is_array() && item.size() == 3 && item[0].is_string() && item[1].is_number_integer() &&
        item[2].is_array() &&
        std::all_of(item[2].begin(), item[2].end(), [](const Json& p) { return p.is_string(); });
    if (!whole) return false;
    for (size_t i = 0; i < kFindingKinds; ++i) {
      if (kFindingNames[i].kept == nullptr || item[0] != kFindingNames[i].kept) continue;
      found[i].places = item[1].get<int64_t>();
      found[i].first = item[2].get<std::vector<std::string>>();
    }
  }
  return true;
}

}  // namespace

Result<Findings> Findings::parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  Findings findings;
  bool whole = json.is_object() && json.contains("first_malformed") && json["first_malformed"].is_string();
  const auto number = [&](const char* name, int64_t& value) {
    whole = whole && json.contains(name) && json[name].is_number_integer();
    if (whole) value = json[name].get<int64_t>();
  };
  visit_first_numbers(findings, number);
  // Sluice 0.1.0 kept no more.
  if (whole && json.contains("reader")) {
    visit_later_numbers(findings, number);
    visit_rare_numbers(findings, [&](const char* name, int64_t& value) {
      if (whole && json.contains(name)) number(name, value);
    });
    Found& malformed = findings.found[size_t(FindingKind::Malformed)];
    if (whole && malformed.count > 0) malformed.first = {json["first_malformed"].get<std::string>()};
    whole = whole &&
            parse_list(json, "taken", 2, 2,
                       [&](const Json& item) {
                         findings.taken.push_back({item[0], item[1], item[2], item[3]});
                       }) &&
            parse_list(json, "keys", 2, 1,
                       [&](const Json& item) {
                         findings.unused.push_back({item[0], item[1], item[2]});
                       }) &&
            parse_places(json, findings.found);
  }
  if (!whole) return error("findings: '{:.60}' is not what they are written as", text);
  return findings;
}

}  // namespace sluice::core
