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
  int64_t lack_tools = 0, lack_tool_calls = 0, lack_messages = 0, lack_reasoning = 0;
  int64_t empty_answers = 0;  // answers, not documents
  int64_t rendered = 0;       // by the chat template
  int64_t learnt_anew = 0;    // otherwise than Sluice 0.1.0 did, or not by it
  int64_t skipped_anew = 0;   // 1: records were skipped that it took
  int64_t reader = 0;         // kReader, of a corpus that was made by this version of the reader
  int64_t lonely_files = 0;   // JSONL of one record
  int64_t malformed = 0;      // records that were skipped
  std::string first_malformed;
  uint64_t unused = 0;       // keys of texts that have a meaning elsewhere: bits of Record::unused
  std::string first_unused;  // the file where the first of them is

  // What files were taken as, in the order of the files.
  struct Taken {
    std::string form;   // "messages (JSONL)"
    std::string first;  // the first of the files
    int64_t files = 0, documents = 0;
    std::string last = {};  // the last of them; not kept
  };
  std::vector<Taken> taken;

  static constexpr int64_t kReader = 2;

  // `file`: that the document is of.
  void add(const Document& document, const TokenMaking& making, const std::string& file);
  void add(const Skipped& skipped);
  // A document of a form that is told by the file's name.
  void take(std::string_view form, const std::string& file);

  // Sentences on what usually is a mistake.
  std::vector<std::string> warnings() const;

  // A line of JSON, and back. Errors: it is none of ours.
  std::string to_text() const;
  static Result<Findings> parse(std::string_view text);
};

}  // namespace sluice::core
