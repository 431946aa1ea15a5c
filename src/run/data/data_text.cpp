// SPDX-License-Identifier: Apache-2.0
// A DataView as text and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/counts.h"
#include "base/printable.h"
#include "draw/axis.h"
#include "draw/markup.h"
#include "draw/palette.h"
#include "run/data/data_view.h"

namespace sluice::core {
namespace {

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * double(part) / double(whole) : 0;
}

std::string of_documents(const Inventory& i) {
  return fmt::format("{}, {}, of which {} are learnt ({:.1f} %)", counted(i.documents, "document"),
                     counted(i.tokens, "token"), grouped(double(i.learnt), 0), percent(i.learnt, i.tokens));
}

// Facts as names and values.
std::vector<std::pair<std::string, std::string>> facts_of(const DataView& v) {
  constexpr std::array<const char*, 2> kKinds[] = {{"of text", "of text"},
                                                   {"prompt with its completion", "prompts with completions"},
                                                   {"conversation", "conversations"},
                                                   {"with marks of its own", "with marks of their own"}};
  std::string kinds;
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    if (const int64_t n = v.findings.kinds[kind]; n > 0)
      kinds += fmt::format("; {} {}", grouped(double(n), 0), kKinds[kind][n == 1 ? 0 : 1]);
  }
  std::vector<std::pair<std::string, std::string>> facts{
      {"data", fmt::format("{}: {}{}", v.config, counted(v.files, "file"), kinds)},
      {"tokens by", v.tokenizer + (v.chat_template.empty() ? "" : "; chat template " + v.chat_template)},
      {"training", of_documents(v.train)}};
  // After what there is, what it was taken as.
  auto place = facts.begin() + 1;
  for (const Findings::Taken& t : v.findings.taken) {
    std::string files = t.first;
    if (t.files > 1) files += fmt::format(" and {} more", t.files - 1);
    const char* name = place == facts.begin() + 1 ? "read as" : "";
    place = facts.emplace(place, name,
                          fmt::format("{}: {}; {}", files, t.form, counted(t.documents, "document")));
    ++place;
  }
  if (v.heldout.documents > 0) {
    facts.emplace_back("held out", of_documents(v.heldout));
    facts.emplace_back("evaluated",
                       fmt::format("{} of {}, with {} that are learnt", grouped(double(v.evaluated.rows), 0),
                                   counted(v.heldout_rows, "row"), counted(v.evaluated.targets, "token")));
  }
  const RowCounts& c = v.counts;
  const bool packed = v.mode == BatchMode::Packed;
  facts.emplace_back("rows", fmt::format("{} of {} tokens, {}; {:.1f} % padding", grouped(double(c.rows), 0),
                                         grouped(double(v.sequence), 0), packed ? "packed" : "contiguous",
                                         percent(c.padding, c.all * v.sequence)));
  for (const DataView::Share& share : v.shares)
    facts.emplace_back("a share",
                       fmt::format("{} of the {} of {} in an epoch{}", grouped(double(share.an_epoch), 0),
                                   counted(share.rows, "row"), share.name,
                                   share.an_epoch < share.rows ? ", others in the next" : ""));
  std::string left_out = counted(c.left_out, "token");
  if (packed && c.cut > 0)
    left_out += fmt::format("; {} longer than a row and {}", counted(c.cut, "document", "is", "are"),
                            v.long_documents == "cut" ? "cut off" : "continued in the next");
  if (packed && c.dropped > 0)
    left_out += fmt::format("; {} left out as a whole", counted(c.dropped, "document", "is", "are"));
  facts.emplace_back("left out", left_out);
  facts.emplace_back("an epoch", fmt::format("{} of {}", counted(v.steps_per_epoch, "step"),
                                             counted(v.rows_per_step, "row")));
  return facts;
}

// From the first length that there is to the last: a name, the documents, and their share of the most.
void for_lengths(const Inventory& i, const std::function<void(const std::string&, int64_t, double)>& f) {
  const auto is_there = [](int64_t n) { return n > 0; };
  const auto first = std::find_if(i.lengths.begin(), i.lengths.end(), is_there);
  const auto last = std::find_if(i.lengths.rbegin(), i.lengths.rend(), is_there).base();
  const int64_t most = *std::max_element(i.lengths.begin(), i.lengths.end());
  for (auto it = first; it < last; ++it) {
    const int64_t low = int64_t{1} << (it - i.lengths.begin());
    f(low == 1 ? "1" : fmt::format("{} to {}", grouped(double(low), 0), grouped(double(2 * low - 1), 0)), *it,
      double(*it) / double(most));
  }
}

struct Marks {
  const char *learnt, *learnt_end, *special, *special_end;
};
constexpr Marks kPlain{"{+", "+}", "@", "@"};
constexpr Marks kColours{"\x1b[32m", "\x1b[0m", "\x1b[1;35m", "\x1b[0m"};

std::string describe(const ShownDocument& document, const Marks& marks) {
  std::string out;
  bool learnt = false;
  const auto turn = [&](bool now) {
    if (now != learnt) out += now ? marks.learnt : marks.learnt_end;
    learnt = now;
  };
  for (const ShownRun& run : document.runs) {
    turn(run.part == Part::Learnt);
    if (run.special) {
      // Colours do not nest: what comes behind begins its own again.
      out += fmt::format("{}{}{}", marks.special, printable(run.text), marks.special_end);
      if (learnt && &marks == &kColours) out += marks.learnt;
    } else {
      out += printable(run.text);
    }
  }
  turn(false);
  return out;
}

std::string on_one_line(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out;
}

// Who wrote what, a line for each stretch.
std::string describe(const ShownChat& chat, const Marks& marks) {
  std::string out = fmt::format("\n{}, by who wrote it\n", printable(chat.place));
  for (const ShownChat::Stretch& s : chat.stretches)
    out += fmt::format("{:<10} {}{}{}\n", printable(s.by), s.learnt ? marks.learnt : "", on_one_line(s.text),
                       s.learnt ? marks.learnt_end : "");
  return out;
}

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>What is learnt</title>
<style>
)";

constexpr std::string_view kStyle = R"(
:root { --learnt: #d8f0d8; --special: #a0288c; }
@media (prefers-color-scheme: dark) { :root { --learnt: #1e4620; --special: #f09be0; } }
h2 { margin-top: 30px; font-size: 18px; }
.bar { display: inline-block; height: 10px; max-width: 40vw; background: var(--accent); }
pre { border: 1px solid var(--line); background: var(--card); padding: 10px; }
.learnt { background: var(--learnt); } .special { color: var(--special); font-weight: 600; }
.warning { border-left: 4px solid var(--again); padding-left: 10px; }
</style></head><body><main>
<h1>What is learnt</h1>
)";

}  // namespace

std::string overview(const DataView& v) {
  std::string out;
  for (const auto& [name, value] : facts_of(v)) out += fmt::format("{:<10} {}\n", name, printable(value));
  out += "\ndocuments by their tokens\n";
  for_lengths(v.train, [&](const std::string& name, int64_t n, double share) {
    const std::string bar(size_t(30 * share + 0.5), '#');
    out += fmt::format("{:>18} {:>9}{}{}\n", name, grouped(double(n), 0), bar.empty() ? "" : " ", bar);
  });
  if (!v.warnings.empty()) out += "\n";
  for (const std::string& warning : v.warnings)
    out += fmt::format("warning: {}\n", printable_message(warning));
  return out;
}

std::string rows_as_text(const DataView& v, bool colours) {
  std::string out;
  const Marks& marks = colours ? kColours : kPlain;
  if (!v.rows.empty())
    out += fmt::format("\nfirst rows; {0}what is learnt{1} and {2}special tokens{3} are marked\n",
                       marks.learnt, marks.learnt_end, marks.special, marks.special_end);
  for (size_t i = 0; i < v.rows.size(); ++i) {
    for (const ShownDocument& document : v.rows[i].documents) {
      out += fmt::format("--- row {}: {}, {} learnt\n{}\n", i + 1, counted(document.tokens, "token"),
                         document.learnt, describe(document, marks));
    }
    if (v.rows[i].padding > 0)
      out += fmt::format("--- row {}: {} of padding\n", i + 1, counted(v.rows[i].padding, "token"));
  }
  return v.first_chat ? out + describe(*v.first_chat, marks) : out;
}

std::string to_json(const DataView& v) {
  using Json = nlohmann::ordered_json;
  const auto inventory = [](const Inventory& i) {
    return Json{
        {"documents", i.documents}, {"tokens", i.tokens}, {"learnt", i.learnt}, {"longest", i.longest}};
  };
  Json out = {{"format", "sluice data 1"},
              {"data", v.config},
              {"files", v.files},
              {"tokenizer", v.tokenizer},
              {"chat_template", v.chat_template},
              {"read_as", Json::array()},
              {"training", inventory(v.train)},
              {"heldout", inventory(v.heldout)}};
  for (const Findings::Taken& t : v.findings.taken)
    out["read_as"].push_back(
        {{"form", t.form}, {"first", t.first}, {"files", t.files}, {"documents", t.documents}});
  out["rows"] = {
      {"an_epoch", v.counts.rows},   {"all", v.counts.all},
      {"tokens", v.sequence},        {"mode", v.mode == BatchMode::Packed ? "packed" : "contiguous"},
      {"padding", v.counts.padding}, {"left_out", v.counts.left_out},
      {"a_step", v.rows_per_step},   {"steps_an_epoch", v.steps_per_epoch}};
  out["shares"] = Json::array();
  for (const DataView::Share& share : v.shares)
    out["shares"].push_back({{"path", share.name}, {"rows", share.rows}, {"an_epoch", share.an_epoch}});
  out["findings"] = Json::array();
  for (size_t i = 0; i < kFindingKinds; ++i) {
    const Found& found = v.findings.found[i];
    if (found.count > 0)
      out["findings"].push_back(
          {{"kind", name_of(FindingKind(i))}, {"count", found.count}, {"places", found.first}});
  }
  out["unused_keys"] = Json::array();
  for (const Findings::Unused& u : v.findings.unused)
    out["unused_keys"].push_back({{"key", u.key}, {"documents", u.documents}, {"first", u.first}});
  out["warnings"] = v.warnings;
  out["first_rows"] = Json::array();
  for (const ShownRow& row : v.rows) {
    Json documents = Json::array();
    for (const ShownDocument& document : row.documents) {
      Json runs = Json::array();
      for (const ShownRun& run : document.runs)
        runs.push_back({{"text", run.text}, {"learnt", run.part == Part::Learnt}, {"special", run.special}});
      documents.push_back({{"tokens", document.tokens}, {"learnt", document.learnt}, {"runs", runs}});
    }
    out["first_rows"].push_back({{"documents", documents}, {"padding", row.padding}});
  }
  if (!v.first_chat) return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  Json stretches = Json::array();
  for (const ShownChat::Stretch& s : v.first_chat->stretches)
    stretches.push_back({{"by", s.by}, {"learnt", s.learnt}, {"text", s.text}});
  out["first_conversation"] = {{"place", v.first_chat->place}, {"stretches", stretches}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_html(const DataView& v) {
  std::string out = std::string(kHead) + page_style() + std::string(kStyle);
  out += "<table>\n";
  for (const auto& [name, value] : facts_of(v))
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, escape_markup(value));
  out += "</table>\n";
  for (const std::string& warning : v.warnings)
    out += fmt::format("<p class=\"warning\">{}</p>\n", escape_markup(printable(warning)));
  out += "<h2>Documents by their tokens</h2>\n<table>\n";
  for_lengths(v.train, [&](const std::string& name, int64_t n, double share) {
    out += fmt::format(
        "<tr><th>{}</th><td>{}</td><td><span class=\"bar\" style=\"width: {:.1f}em\"></span></td></tr>\n",
        name, grouped(double(n), 0), 20 * share);
  });
  out +=
      "</table>\n<h2>First rows</h2>\n<p><span class=\"learnt\">Learnt</span>, <span "
      "class=\"special\">special "
      "token</span>, context.</p>\n";
  for (size_t i = 0; i < v.rows.size(); ++i) {
    out += fmt::format("<h3>Row {}</h3>\n", i + 1);
    for (const ShownDocument& document : v.rows[i].documents) {
      out += fmt::format("<p>{}, {} learnt</p>\n<pre>", counted(document.tokens, "token"), document.learnt);
      for (const ShownRun& run : document.runs)
        out += fmt::format("<span class=\"{}{}\">{}</span>", run.part == Part::Learnt ? "learnt" : "context",
                           run.special ? " special" : "", escape_markup(printable(run.text)));
      out += "</pre>\n";
    }
    if (v.rows[i].padding > 0)
      out += fmt::format("<p>{} of padding</p>\n", counted(v.rows[i].padding, "token"));
  }
  return out + "</main></body></html>\n";
}

}  // namespace sluice::core
