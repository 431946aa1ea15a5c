// SPDX-License-Identifier: Apache-2.0
#include "records/findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/counts.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

// Calls f(name, field) for every number that was always kept.
void visit_first_numbers(auto& findings, auto&& f) {
  f("text", findings.kinds[0]), f("pair", findings.kinds[1]), f("chat", findings.kinds[2]),
      f("marked", findings.kinds[3]);
  f("without_learnt", findings.without_learnt), f("without_end", findings.without_end),
      f("two_begins", findings.two_begins), f("straddling", findings.straddling);
  f("dropped", findings.dropped), f("lack_tools", findings.lack_tools),
      f("lack_tool_calls", findings.lack_tool_calls), f("lack_messages", findings.lack_messages);
  f("lonely_files", findings.lonely_files), f("malformed", findings.malformed);
}

// And for those that came later.
void visit_later_numbers(auto& findings, auto&& f) {
  f("lack_reasoning", findings.lack_reasoning), f("empty_answers", findings.empty_answers);
  f("rendered", findings.rendered), f("learnt_anew", findings.learnt_anew);
  f("skipped_anew", findings.skipped_anew), f("reader", findings.reader);
}

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

void Findings::add(const Document& document, const TokenMaking& making, const std::string& file) {
  const LearntTokens& tokens = document.tokens;
  const int64_t learnt = std::accumulate(tokens.learnt.begin(), tokens.learnt.end(), int64_t{0});
  ++kinds[size_t(document.kind)];
  without_learnt += learnt == 0 ? 1 : 0;
  // Of text nobody expects that it ends, nor of a turn with all that is around it.
  const bool answers = document.kind != Record::Kind::Text && making.learn != Learn::Everything && learnt > 0;
  without_end += answers && !every_end_is_learnt(tokens, making) ? 1 : 0;
  const bool two = tokens.ids.size() > 1 && tokens.ids[0] == tokens.ids[1];
  two_begins += two && making.tokenizer->is_special(tokens.ids[0]) ? 1 : 0;
  straddling += tokens.straddling;
  dropped += tokens.dropped;
  lack_tools += document.lacks_tools ? 1 : 0;
  lack_tool_calls += document.lacks_tool_calls ? 1 : 0;
  lack_messages += document.lacks_messages ? 1 : 0;
  lack_reasoning += document.lacks_reasoning ? 1 : 0;
  empty_answers += tokens.empty_answers;
  rendered += document.rendered ? 1 : 0;
  learnt_anew += document.learnt_anew ? 1 : 0;
  if (unused == 0 && document.unused != 0) first_unused = file;
  unused |= document.unused;
  std::string form = document.form;
  if (document.rendered && document.kind == Record::Kind::Pair) form += ", as turns";
  take(form, file);
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

void Findings::add(const Skipped& skipped) {
  malformed += skipped.records;
  if (first_malformed.empty()) first_malformed = skipped.first;
  skipped_anew |= skipped.anew ? 1 : 0;
}

std::vector<std::string> Findings::warnings() const {
  const int64_t documents = std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
  std::vector<std::string> lines;
  const auto say = [&](int64_t count, std::string_view what) {
    if (count > 0)
      lines.push_back(fmt::format("in {} of {} {}", count, counted(documents, "document"), what));
  };
  say(without_learnt, "nothing is learnt");
  say(without_end, "no special token ends an answer: a model does not learn to stop there");
  say(two_begins, "the same special token stands at the beginning twice");
  say(lack_tools, "there are tools, which the chat template does not show");
  say(lack_tool_calls,
      "tools are called, which the chat template does not show; turns that only call are not learnt");
  say(lack_messages, "there is a message that the chat template does not show");
  say(lack_reasoning, "there is reasoning, which the chat template does not show");
  if (empty_answers > 0)
    lines.push_back(fmt::format("{} empty and not learnt: a model would learn from it to say nothing",
                                counted(empty_answers, "answer", "is", "are")));
  if (unused != 0)
    lines.push_back(
        fmt::format("plain text has keys that are not used: {} (first in {}); all of its text is learnt",
                    fmt::join(unused_names(unused), ", "), first_unused));
  if (straddling > 0)
    lines.push_back(counted(straddling, "token", "is not learnt: only a part of its text is",
                            "are not learnt: only a part of their text is"));
  if (dropped > 0)
    lines.push_back(fmt::format("{} characters or bytes have no token and are left out", dropped));
  if (lonely_files > 0)
    lines.push_back(fmt::format("{} one record only: in JSONL each line is a document",
                                counted(lonely_files, "JSONL file", "has", "have")));
  if (malformed > 0)
    lines.push_back(fmt::format("{} skipped, first {}", counted(malformed, "malformed record", "was", "were"),
                                first_malformed));
  return lines;
}

std::string Findings::to_text() const {
  nlohmann::ordered_json json = {{"first_malformed", first_malformed}};
  const auto put = [&](const char* name, int64_t value) { json[name] = value; };
  visit_first_numbers(*this, put);
  visit_later_numbers(*this, put);
  json["unused"] = unused;
  json["first_unused"] = first_unused;
  json["taken"] = nlohmann::ordered_json::array();
  for (const Taken& t : taken) json["taken"].push_back({t.form, t.first, t.files, t.documents});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<Findings> Findings::parse(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
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
    whole = whole && json.contains("unused") && json["unused"].is_number_integer() &&
            json.contains("first_unused") && json["first_unused"].is_string() && json.contains("taken") &&
            json["taken"].is_array();
    if (whole) findings.unused = json["unused"].get<uint64_t>();
    if (whole) findings.first_unused = json["first_unused"].get<std::string>();
    for (size_t i = 0; whole && i < json["taken"].size(); ++i) {
      const auto& item = json["taken"][i];
      whole = item.is_array() && item.size() == 4 && item[0].is_string() && item[1].is_string() &&
              item[2].is_number_integer() && item[3].is_number_integer();
      if (whole)
        findings.taken.push_back({item[0].get<std::string>(), item[1].get<std::string>(),
                                  item[2].get<int64_t>(), item[3].get<int64_t>()});
    }
  }
  if (!whole) return error("findings: '{:.60}' is not what they are written as", text);
  findings.first_malformed = json["first_malformed"].get<std::string>();
  return findings;
}

}  // namespace sluice::core
