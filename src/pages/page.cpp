// SPDX-License-Identifier: Apache-2.0
#include "pages/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "draw/axis.h"
#include "draw/markup.h"
#include "draw/palette.h"

namespace sluice::core {
namespace {

// Four significant digits in the unit that fits, of powers of a thousand.
std::string in_thousands(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t i = 0;
  while (std::abs(value) >= 999.95 && i + 1 < std::size(kPrefixes)) value /= 1000, ++i;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[i], unit);
}

std::string bytes_text(double value) {
  if (std::abs(value) < 1024) return fmt::format("{:.6g} B", value);
  constexpr double kMost = 9e18;
  const double size = std::min(std::abs(value), kMost);
  std::string out = (value < 0 ? "-" : "") + format_bytes(int64_t(size));
  // People and data sheets count by thousands, memories by 1,024.
  if (size >= 1e9) out = in_thousands(value, "B") + " = " + out;
  return out;
}

std::string seconds_text(double s) {
  constexpr double kDay = 86400;
  if (s >= kDay) return fmt::format("{:.4g} days", s / kDay);
  if (s >= 3600) return fmt::format("{:.4g} h", s / 3600);
  if (s >= 1) return fmt::format("{:.4g} s", s);
  if (s >= 1e-3) return fmt::format("{:.4g} ms", s * 1e3);
  return fmt::format("{:.4g} µs", s * 1e6);
}

// As many columns as it takes on a terminal.
size_t width_of(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}
std::string padded(const std::string& text, size_t width, bool right) {
  const size_t now = width_of(text);
  const std::string gap(width > now ? width - now : 0, ' ');
  return right ? gap + text : text + gap;
}

// How far the rule is from the number.
std::string difference(const Fact& fact) {
  if (fact.value == 0) return "";
  const double percent = 100 * (fact.rule->value / fact.value - 1);
  return std::abs(percent) < 0.005 ? " (equal)" : fmt::format(" ({:+.2f} %)", percent);
}

constexpr size_t kLine = 118;

// Text in lines of at most kLine columns, each behind `indent` spaces; the first line begins where the
// caller stands.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out, line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + width_of(line) + 1 + width_of(word) > kLine) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + line + "\n";
}

std::string to_text(const std::vector<Fact>& facts) {
  size_t names = 0, values = 0;
  for (const Fact& f : facts) {
    names = std::max(names, width_of(f.what));
    values = std::max(values, width_of(to_text(f.value, f.form)));
    if (f.rule) values = std::max(values, width_of(to_text(f.rule->value, f.form)));
  }
  const size_t indent = 2 + names + 2 + values + 3;
  const auto line = [&](const std::string& what, const std::string& value, const std::string& formula) {
    return "  " + padded(what, names, false) + "  " + padded(value, values, true) + "   " +
           wrapped(formula, indent);
  };
  std::string out;
  for (const Fact& f : facts) {
    out += line(f.what, to_text(f.value, f.form), f.formula);
    if (f.rule) out += line("", to_text(f.rule->value, f.form), "rule: " + f.rule->formula + difference(f));
  }
  return out;
}

std::string cell_text(const Row& row, size_t column, Form form) {
  return column < row.values.size() && row.values[column] ? to_text(*row.values[column], form) : "-";
}

std::string to_text(const Table& table) {
  size_t names = width_of(table.row_title);
  for (const Row& r : table.rows) names = std::max(names, width_of(r.name));
  std::string out = "\n  " + table.title + "\n  " + padded(table.row_title, names, false);
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    size_t width = width_of(table.columns[c].title);
    for (const Row& r : table.rows) width = std::max(width, width_of(cell_text(r, c, table.columns[c].form)));
    widths.push_back(width);
    out += "  " + padded(table.columns[c].title, width, true);
  }
  out += (table.note_title.empty() ? "" : "  " + table.note_title) + "\n";
  for (const Row& r : table.rows) {
    std::string line = "  " + padded(r.name, names, false);
    for (size_t c = 0; c < table.columns.size(); ++c) {
      line += "  " + padded(cell_text(r, c, table.columns[c].form), widths[c], true);
    }
    out += line + (r.note.empty() ? "" : "  " + r.note) + "\n";
  }
  for (const std::string& formula : table.formulas) out += "  " + wrapped(formula, 2);
  return out;
}

using Json = nlohmann::ordered_json;

// Whole numbers without a decimal point, as far as they are exact.
Json number(double value) {
  constexpr double kExact = 9007199254740992.0;
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) <= kExact) return int64_t(value);
  return value;
}

Json json_of(const Section& section) {
  Json out = Json::object();
  for (const Fact& f : section.facts) {
    Json& fact = out[f.key];
    fact["value"] = number(f.value);
    fact["formula"] = f.formula;
    if (f.rule) fact["rule"] = number(f.rule->value), fact["rule_formula"] = f.rule->formula;
  }
  for (const Table& table : section.tables) {
    Json rows = Json::array();
    for (const Row& r : table.rows) {
      Json row = {{"name", r.name}};
      for (size_t c = 0; c < table.columns.size(); ++c) {
        row[table.columns[c].key] = c < r.values.size() && r.values[c] ? number(*r.values[c]) : Json(nullptr);
      }
      if (!r.note.empty()) row[table.note_key] = r.note;
      rows.push_back(std::move(row));
    }
    out[table.key] = std::move(rows);
  }
  return out;
}

std::string html_of(const std::vector<Fact>& facts) {
  if (facts.empty()) return "";
  std::string out = "<table><tr><th></th><th></th><th>formula</th></tr>\n";
  const auto line = [&](const std::string& what, const std::string& value, const std::string& formula,
                        const char* style) {
    out += fmt::format("<tr{}><th scope=\"row\">{}</th><td class=\"n\">{}</td><td>{}</td></tr>\n", style,
                       escape_markup(what), escape_markup(value), escape_markup(formula));
  };
  for (const Fact& f : facts) {
    line(f.what, to_text(f.value, f.form), f.formula, "");
    if (f.rule) {
      line("", to_text(f.rule->value, f.form), "rule: " + f.rule->formula + difference(f), " class=\"rule\"");
    }
  }
  return out + "</table>\n";
}

std::string html_of(const Table& table) {
  std::string out = fmt::format("<h3>{}</h3>\n<div class=\"wide\"><table><tr><th>{}</th>",
                                escape_markup(table.title), escape_markup(table.row_title));
  for (const Column& c : table.columns) out += fmt::format("<th class=\"n\">{}</th>", escape_markup(c.title));
  out += fmt::format("<th>{}</th></tr>\n", escape_markup(table.note_title));
  for (const Row& r : table.rows) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escape_markup(r.name));
    for (size_t c = 0; c < table.columns.size(); ++c) {
      out += fmt::format("<td class=\"n\">{}</td>", escape_markup(cell_text(r, c, table.columns[c].form)));
    }
    out += fmt::format("<td>{}</td></tr>\n", escape_markup(r.note));
  }
  out += "</table></div>\n";
  for (const std::string& f : table.formulas) out += fmt::format("<p>{}</p>\n", escape_markup(f));
  return out;
}

constexpr std::string_view kPhone = "(max-width: 520px)";

std::string in_url(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = uint8_t(c);
    const bool plain = std::isalnum(u) != 0 || std::string_view("-_.~/:=;()").find(c) != text.npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", u);
  }
  return out;
}

// Each picture is a document of its own: the classes of one mean nothing to another. A phone shows the narrow
// one, or where there is none the same, which scrolls so that its letters stay legible.
std::string image(std::string_view title, std::string_view svg, std::string_view narrow = {}) {
  constexpr std::string_view kData = "data:image/svg+xml,";
  const std::string source =
      narrow.empty() ? ""
                     : fmt::format("<source media=\"{}\" srcset=\"{}{}\">", kPhone, kData, in_url(narrow));
  return fmt::format("<div class=\"{}\"><picture>{}<img alt=\"{}\" src=\"{}{}\"></picture></div>\n",
                     narrow.empty() ? "wide" : "fits", source, escape_markup(title), kData, in_url(svg));
}

std::string image(const Bars& bars) {
  constexpr double kShort = 60;
  Bars narrow = bars;
  narrow.subtitle.clear();
  return image(bars.title, render(bars), render(narrow, kShort));
}

constexpr std::string_view kStyle = R"(
h2 { margin-top: 30px; font-size: 18px; } p, .rule, .rule th { color: var(--muted); }
th[scope=row] { color: var(--ink); } .wide th[scope=row] { position: sticky; left: 0; min-width: 84px;
                       background: var(--bg); }
img { display: block; max-width: 100%; height: auto; }
@media (max-width: 520px) { .wide img { max-width: none; } }
)";

}  // namespace

std::string to_text(double value, Form form) {
  if (!std::isfinite(value)) return "no limit";
  switch (form) {
    case Form::Count:
      return grouped(value, 0);
    case Form::Number:
      return std::abs(value) >= 1000 ? grouped(value, 0) : fmt::format("{:.4g}", value);
    case Form::Exact:
      return fmt::format("{}", value);
    case Form::Bytes:
      return bytes_text(value);
    case Form::Memory:
      return format_bytes(int64_t(value));
    case Form::BytesPerSecond:
      return in_thousands(value, "B/s");
    case Form::Flops:
      return in_thousands(value, "FLOP");
    case Form::FlopsPerSecond:
      return in_thousands(value, "FLOP/s");
    case Form::Seconds:
      return seconds_text(value);
    case Form::Hours:
      return grouped(value, value < 1000 ? 2 : 0) + " h";
    case Form::Usd:
      if (value > 0 && value < 0.1) return fmt::format("{:.2g} USD", value);
      return grouped(value, value < 1000 ? 2 : 0) + " USD";
    case Form::Share:
      return fmt::format("{:.2f} %", 100 * value);
  }
  return "";
}

std::string to_text(const Page& page) {
  std::string out = page.title + "\n";
  for (const std::string& line : page.legend) out += "  " + wrapped(line, 2);
  for (const Section& s : page.sections) {
    out += "\n" + s.title + "\n" + to_text(s.facts);
    for (const Table& table : s.tables) out += to_text(table);
    for (const std::string& note : s.notes) out += "  " + wrapped(note, 2);
  }
  return out;
}

std::string to_markdown(const Page& page) {
  const auto cell = [](std::string words) {
    for (size_t at = 0; (at = words.find('|', at)) != words.npos; at += 2) words.insert(at, "\\");
    return words + " |";
  };
  std::string out = "# " + page.title + "\n";
  for (const std::string& line : page.legend) out += "\n" + line + "\n";
  for (const Section& s : page.sections) {
    out += "\n## " + s.title + "\n";
    if (!s.facts.empty()) out += "\n| what | value | formula |\n|---|---:|---|\n";
    for (const Fact& f : s.facts) {
      out += "| " + cell(f.what) + " " + cell(to_text(f.value, f.form)) + " " + cell(f.formula) + "\n";
      if (f.rule) {
        out += "| | " + cell(to_text(f.rule->value, f.form)) + " " +
               cell("rule: " + f.rule->formula + difference(f)) + "\n";
      }
    }
    for (const Table& table : s.tables) {
      const bool notes =
          std::any_of(table.rows.begin(), table.rows.end(), [](const Row& r) { return !r.note.empty(); });
      out += "\n### " + table.title + "\n\n| " + cell(table.row_title);
      for (const Column& c : table.columns) out += " " + cell(c.title);
      if (notes) out += " " + cell(table.note_title);
      out += "\n|---|";
      for (size_t c = 0; c < table.columns.size(); ++c) out += "---:|";
      out += notes ? "---|\n" : "\n";
      for (const Row& r : table.rows) {
        out += "| " + cell(r.name);
        for (size_t c = 0; c < table.columns.size(); ++c)
          out += " " + cell(cell_text(r, c, table.columns[c].form));
        if (notes) out += " " + cell(r.note);
        out += "\n";
      }
      for (const std::string& formula : table.formulas) out += "\n" + formula + "\n";
    }
    for (const std::string& note : s.notes) out += "\n" + note + "\n";
  }
  return out;
}

std::string to_json(const Page& page) {
  Json out = {{"title", page.title}, {"legend", page.legend}};
  for (const Section& s : page.sections) out[s.key] = json_of(s);
  return out.dump(1) + "\n";
}

std::string to_html(const Page& page) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
      "style-src 'unsafe-inline'\">\n"
      "<title>{0}</title>\n<style>{1}{2}</style></head>\n<body><main>\n<h1>{0}</h1>\n",
      escape_markup(page.title), page_style(), kStyle);
  for (const std::string& line : page.legend) out += fmt::format("<p>{}</p>\n", escape_markup(line));
  for (const Section& s : page.sections) {
    out += fmt::format("<h2 id=\"{}\">{}</h2>\n{}", escape_markup(s.key), escape_markup(s.title),
                       html_of(s.facts));
    for (const Table& table : s.tables) out += html_of(table);
    for (const std::string& note : s.notes) out += fmt::format("<p>{}</p>\n", escape_markup(note));
    for (const Plot& plot : s.plots) out += image(plot.title, render(plot));
    for (const Bars& bars : s.bars) out += image(bars);
  }
  return out + "</main></body></html>\n";
}

}  // namespace sluice::core
