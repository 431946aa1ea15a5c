// SPDX-License-Identifier: Apache-2.0
// What is noticed while records become tokens: what usually is a mistake is said before anything runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "records/documents.h"

namespace sluice::core {

struct Findings {
  std::array<int64_t, 4> kinds{};  // documents of each Record::Kind
  // In documents; straddling: tokens over an edge of what is learnt; dropped: bytes or characters without a
  // token.
  int64_t without_learnt = 0, without_end = 0, two_begins = 0, straddling = 0, dropped = 0;
  int64_t lack_tools = 0, lack_tool_calls = 0, lack_messages = 0;
  int64_t lonely_files = 0;  // JSONL of one record
  int64_t malformed = 0;     // records that were skipped
  std::string first_malformed;

  void add(const Document& document, const TokenMaking& making);
  void add(const Skipped& skipped);

  // Sentences on what usually is a mistake.
  std::vector<std::string> warnings() const;

  // A line of JSON, and back. Errors: it is none of ours.
  std::string text() const;
  static Result<Findings> parse(std::string_view text);
};

}  // namespace sluice::core
