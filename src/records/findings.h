// SPDX-License-Identifier: Apache-2.0
// What is noticed while records become tokens: what usually is a mistake is said before anything runs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "records/documents.h"

namespace sluice::core {

enum class FindingKind : uint8_t {
  NothingLearnt,
  OpenEnds,
  TwoBegins,
  HiddenTools,
  HiddenCalls,
  HiddenMessages,
  HiddenReasoning,
  EmptyAnswers,
  RenderedChats,
  CutTokens,  // over an edge of what is learnt
  NoToken,    // bytes or characters that have none
  OneRecord,  // JSONL files of one record
  Malformed,
  UnusedKeys,
  HeldOutToo,     // held-out documents that are also trained on
  NoRow,          // documents that no row holds
  UnlearntChats,  // conversations of which nothing is learnt
  LearntMarkup,   // conversations of which a header of the assistant is
  TypedEnds,      // an answer ends with a special token that is written out
  RecordsAsText,  // files of records whose names say that they are text
  WrittenTokens,  // text has the characters of a special token
};
constexpr size_t kFindingKinds = size_t(FindingKind::WrittenTokens) + 1;
// As people name it: "nothing-learnt".
std::string_view name_of(FindingKind kind);
// Errors name those that there are, and which of them may be meant.
Result<FindingKind> parse_finding_kind(std::string_view name);

// How often there is something of a kind, and where.
struct Found {
  int64_t count = 0;   // documents, or what the kind counts
  int64_t places = 0;  // that there are; 0: they are not known
  std::vector<std::string> first;

  void add(int64_t n, const std::string& place, const std::function<void(const std::string&)>& told = {});
  // ": a.jsonl:3, a.jsonl:9, a.jsonl:12 and 4 more (sluice data --list KIND)"; empty: they are not known.
  std::string where(FindingKind kind) const;
};

// Where a document is, as people find it: "a.jsonl:3", "a.csv:5 (record 4)", "a.txt"; of a token file, which
// has no lines, "a.tokens (document 2)", whose place is 1.
std::string place_text(std::string_view file, int64_t line, int64_t place);

struct Findings {
  std::array<int64_t, 4> kinds{};  // documents of each Record::Kind
  std::array<Found, kFindingKinds> found;
  int64_t rendered = 0;  // documents, by the chat template
  // Documents that are learnt otherwise than Sluice 0.1.0 did, or not by it; and than the reader after it
  // did.
  int64_t learnt_anew = 0, learnt_later = 0;
  // 1: records were skipped that they took.
  int64_t skipped_anew = 0, skipped_later = 0;
  int64_t renewed = 0;  // documents that are learnt otherwise than by the renderers before templates were run
  int64_t marks = 0;    // kMarks, of a corpus that was marked by this version
  int64_t reader = 0;   // kReader, of a corpus that was made by this version of the reader

  // Keys that are not read, in the order in which they came.
  struct Unused {
    std::string key, first;  // the first document that has it
    int64_t documents = 0;
  };
  std::vector<Unused> unused;

  // Kinds of the files, in their order.
  struct Taken {
    std::string form;   // "messages (JSONL)"
    std::string first;  // the first of the files
    int64_t files = 0, documents = 0;
    std::string last = {};  // the last of them; not kept
  };
  std::vector<Taken> taken;

  static constexpr int64_t kReader = 3;
  static constexpr int64_t kMarks = 2;
  // The first marks by which these documents are learnt so; 0: they always were.
  int64_t marked_since() const { return count(FindingKind::WrittenTokens) > 0 ? 2 : renewed > 0 ? 1 : 0; }

  // Told of every place that is found. Not kept.
  using Told = std::function<void(FindingKind, const std::string& place)>;
  Told told;

  int64_t count(FindingKind kind) const { return found[size_t(kind)].count; }
  void add(FindingKind kind, int64_t n, const std::string& place);
  // `file`: that the document is of.
  void add(const Document& document, const TokenMaking& making, const std::string& file);
  // Text, of a file or of a record, with the characters of a special token.
  void add_written(int32_t token, const Tokenizer& tokenizer, const std::string& place);
  // A record, or a file, that was skipped.
  void skip(const Error& at);
  // A document of a form that is told by the file's name.
  void take(std::string_view form, const std::string& file);

  // Sentences on what usually is a mistake, and on what is passed over.
  std::vector<std::string> warnings() const;

  // A line of JSON, and back. Errors: it is none of ours.
  std::string to_text() const;
  static Result<Findings> parse(std::string_view text);

 private:
  void note_unused(const Document& document, const std::string& file);
};

}  // namespace sluice::core
