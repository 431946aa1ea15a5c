// SPDX-License-Identifier: Apache-2.0
// The files of a benchmark: numbers for programs, tables for documents, a page and pictures for people. Each
// says on which machine and with which Sluice they were made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "pages/page.h"

namespace sluice::core {

// Where and with what numbers were made.
struct Stamp {
  std::string machine;  // in words
  std::string sluice;   // version and commit
};
Stamp stamp_on(const std::string& machine);

// A line of JSON per row of a table, {"table", "name", columns by key}, per fact, and per line of a picture,
// {"picture", "line", "points": [[x, y], ...]}; all with the stamp. Numbers in base units.
std::string to_jsonl(const Page& page, const Stamp& stamp);

// Writes NAME.md, NAME.html and a picture NAME.svg, NAME-2.svg, ... for each of the page into `dir`, which is
// made if it is not there. The stamp is added to the page. Returns the paths.
Result<std::vector<std::filesystem::path>> write_page(Page page, const Stamp& stamp,
                                                      const std::filesystem::path& dir,
                                                      const std::string& name);

}  // namespace sluice::core
