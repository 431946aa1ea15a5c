// SPDX-License-Identifier: Apache-2.0
// The files of a benchmark: numbers for programs, tables for documents, a page and pictures for people. Each
// says on which machine and with which Sluice they were made.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/file.h"
#include "pages/page.h"

namespace sluice::core {

// Where and with what numbers were made.
struct Stamp {
  std::string machine;  // in words
  std::string sluice;   // version and commit
};
Stamp stamp_on(const std::string& machine);

// A line of JSON per row of a table, {"table", "name", columns by key}, per fact, and per line of a picture,
// {"picture", "line", "points": [[x, y], ...]}. All have the stamp. Numbers in base units.
std::string to_jsonl(const Page& page, const Stamp& stamp);

// Writes NAME.md, NAME.html and a picture NAME.svg, NAME-2.svg, ... for each of the page into `dir`, which is
// made if it is not there. The stamp is added to the page. Returns the paths.
Result<std::vector<std::filesystem::path>> write_page(Page page, const Stamp& stamp,
                                                      const std::filesystem::path& dir,
                                                      const std::string& name);

// The results that a file of lines has, as `parse` makes them, by their inputs; the last one of each. None
// where there is no file. What is no result, as a line that a killed process left unfinished, is left out.
template <class Found>
Result<std::map<std::string, Found>> load_measured(const std::filesystem::path& path,
                                                   std::optional<Found> (*parse)(const nlohmann::json&)) {
  std::map<std::string, Found> out;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return out;
  SLUICE_ASSIGN(const std::string all, read_file(path));
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (auto found = parse(json)) out[found->inputs] = std::move(*found);
  }
  return out;
}

}  // namespace sluice::core
