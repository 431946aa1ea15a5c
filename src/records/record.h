// SPDX-License-Identifier: Apache-2.0
// What people bring to learn from, one record at a time: text, pairs of prompt and completion, conversations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chat/chat_template.h"

namespace sluice::core {

struct Record {
  enum class Kind : uint8_t {
    Text,    // {"text": "..."}, or a file that is no JSONL: all of it
    Pair,    // {"prompt": "...", "completion": "..."}
    Chat,    // {"messages": [...], "tools": [...]}, or {"conversations": [{"from", "value"}, ...]}
    Marked,  // {"text": "...", "learnt": [[begin, end], ...]} in bytes: rendered elsewhere
  };
  Kind kind = Kind::Text;
  std::string text;                               // Text, Marked; of a Pair both, one after the other
  size_t completion = 0;                          // of a Pair: where it begins in the text
  std::vector<std::pair<size_t, size_t>> learnt;  // of Marked
  Conversation chat;
};
std::string_view name_of(Record::Kind kind);

// A line of JSONL. Messages are as OpenAI and Hugging Face write them; those of ShareGPT become such.
// Errors: the reason, without file and line.
Result<Record> parse_record(std::string_view line);

struct RecordOptions {
  bool skip_malformed = false;  // and count them, instead of refusing them
  int64_t most_line_bytes = int64_t{64} << 20;
  int64_t most_text_bytes = int64_t{1} << 30;  // of a file that is one text
  std::string why = {};                        // it may not be longer: ends that error
};

// Whether a file of this name is JSONL: it ends in .jsonl, .ndjson or .json, before .gz or .zst.
bool is_jsonl(const std::filesystem::path& path);
// Whether it ends in .gz or .zst.
bool is_compressed(const std::filesystem::path& path);

// A record as its file has it.
struct RawRecord {
  std::string text;  // a line of JSONL, or all of a text
  int64_t line = 0;  // from 1; 0: the file is one text
};

// The records of one file: JSONL if its name says so; else it is one text. All are of the first one's kind.
// In memory is one record. One thread at a time.
class RecordReader {
 public:
  static Result<RecordReader> open(const std::filesystem::path& path, const RecordOptions& options);
  RecordReader(RecordReader&&) noexcept;
  ~RecordReader();

  // false: there is none left. Errors name file, line and reason.
  Result<bool> next(Record& record);

  // The same in three steps, of which any thread may take the second.
  Result<bool> next(RawRecord& raw);
  // Takes the text of `raw`.
  Result<Record> parse(RawRecord& raw) const;
  // What came of the records, in their order: whether to take this one, or to skip it. `kind` does not matter
  // where `made` is an error.
  Result<bool> accept(const RawRecord& raw, Record::Kind kind, const Status& made);

  int64_t line() const;       // of the last one
  int64_t malformed() const;  // skipped so far
  // The first reason for which one was skipped, with its line; empty: none was.
  const std::string& first_malformed() const;

 private:
  class Impl;
  explicit RecordReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::core
