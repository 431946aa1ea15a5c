// SPDX-License-Identifier: Apache-2.0
// A page of numbers with the formula of each, and its renderings. These compute nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "draw/bars.h"
#include "draw/plot.h"

namespace sluice::core {

// How a number is written.
enum class Form : uint8_t {
  Count,
  Number,  // with decimals
  Exact,   // with all of the digits that tell it from its neighbours
  Bytes,
  Memory,  // bytes, by 1,024 alone
  BytesPerSecond,
  Flops,
  FlopsPerSecond,
  Seconds,
  Hours,
  Usd,
  Share,  // of one, in per cent
};

struct Rule {
  double value;
  std::string formula;
};

struct Fact {
  std::string key;   // for programs: "kv_per_token"
  std::string what;  // for people: "of one token"
  double value;      // whole numbers are exact up to 2^53; bytes, seconds, hours as the form says
  Form form;
  std::string formula;
  // A rule of thumb to stand beside.
  std::optional<Rule> rule = std::nullopt;
};

struct Column {
  std::string key, title;
  Form form;
};
struct Row {
  std::string name;
  std::vector<std::optional<double>> values;  // by column
  std::string note = "";
};
struct Table {
  std::string key, title;
  std::string row_title;  // what the rows' names are
  std::vector<Column> columns;
  std::vector<Row> rows;
  std::vector<std::string> formulas = {};  // lines below it
  // The title of the rows' notes: for programs, and for people, who see none unless it is said.
  std::string note_key = "note", note_title = "";
};

struct Section {
  std::string key, title;
  std::vector<Fact> facts;
  std::vector<Table> tables;  // below the facts
  std::vector<std::string> notes;
  std::vector<Plot> plots = {};  // in pages for browsers
  std::vector<Bars> bars = {};   // the same
};

struct Page {
  std::string title;
  std::vector<std::string> legend;  // what the letters of formulas stand for
  std::vector<Section> sections;
};

// "6,738,149,376", "512 KiB", "43.2 µs".
std::string to_text(double value, Form form);

std::string to_text(const Page& page);
// Tables as GitHub shows them, facts as tables, without pictures.
std::string to_markdown(const Page& page);
// One object with an object per section; numbers in bytes, FLOPs, seconds, hours, and shares of one. Facts
// are {"value", "formula", "rule", "rule_formula"}, tables lists of rows by the columns' keys.
std::string to_json(const Page& page);
// A page that needs nothing beside it; pictures are in it.
std::string to_html(const Page& page);

}  // namespace sluice::core
