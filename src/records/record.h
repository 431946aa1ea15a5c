// SPDX-License-Identifier: Apache-2.0
// What people bring to learn from, one record at a time: text, pairs of prompt and completion, conversations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chat/chat_template.h"
#include "objective/objective.h"

namespace sluice::core {

struct Record {
  enum class Kind : uint8_t {
    Text,    // {"text": "..."}, or a file that has no records: all of it
    Pair,    // a prompt and its completion, under these names or others
    Chat,    // a conversation, or a prompt and its completion as lists of messages
    Marked,  // {"text": "...", "learnt": [[begin, end], ...]} in bytes, or segments: rendered elsewhere
  };
  Kind kind = Kind::Text;
  std::string text;                               // Text, Marked; of a Pair both, one after the other
  size_t completion = 0;                          // of a Pair: where it begins in the text
  std::vector<std::pair<size_t, size_t>> learnt;  // of Marked
  Conversation chat;
  // Whether a Pair's keys say a question and its answer, which become turns by a chat template. Prompt and
  // completion are two parts of one text.
  bool asks = false;
  std::string context, system;  // of such: what belongs to the question, and the system's turn
  std::vector<std::pair<std::string, std::string>> history;  // of such: earlier questions and their answers

  std::vector<Record> worse;  // of a pair of answers: the same prompt with the other one
  bool bad = false;           // the answer is marked so

  std::string form;                 // as what it was taken: "messages", "question, answered by answer"
  std::vector<std::string> unused;  // keys that are not read, and that nobody knows to be harmless
  // Whether Sluice 0.1.0 read something else in it, or nothing; and whether the reader after it did, too.
  bool read_anew = false, read_later = false;
};
std::string_view name_of(Record::Kind kind);

// Which keys of records have what is read, where it is not under the names that are known; empty: there.
struct FieldNames {
  std::string text, prompt, completion, messages;
};

struct RecordOptions {
  bool skip_malformed = false;  // and count them, instead of refusing them
  FieldNames fields = {};
  Compares compares = Compares::Nothing;
  std::vector<std::string> ignore = {};         // keys of records and messages that are passed over
  std::vector<std::string> roles = {};          // of messages, that are taken beside those that are known
  const ChatTemplate* chat_template = nullptr;  // keys of messages that it mentions are known
  int64_t most_line_bytes = int64_t{64} << 20;  // of a line, a row or a value
  int64_t most_text_bytes = int64_t{1} << 30;   // of a file that is one text
  std::string why = {};                         // it may not be longer: ends that error
};

// A record as JSON. Messages are as OpenAI and Hugging Face write them; those of ShareGPT become such. What
// the keys of records and messages mean is in records/keys.h. Errors: the reason, without file and line.
Result<Record> parse_record(std::string_view json, const RecordOptions& options = {});

// A row of a table, of whose columns the names stand in `header`: the record that has its fields as strings.
Result<Record> parse_row(std::string_view row, char separator, const std::vector<std::string>& header,
                         const RecordOptions& options = {});

// Whether a file of this name has records: it ends in .jsonl, .ndjson, .json, .csv or .tsv, before .gz or
// .zst.
bool has_records(const std::filesystem::path& path);
// Whether it ends in .gz or .zst.
bool is_compressed(const std::filesystem::path& path);

// A record as its file has it.
struct RawRecord {
  std::string text;   // a line of JSONL, a value, a row, or all of a text
  int64_t line = 0;   // where it begins, from 1; 0: the file is one text
  int64_t place = 0;  // its own in the file: the line in JSONL, else its number from 1
};

// The records of one file, if its name says that it has some. How it begins tells its form: an object on each
// line (JSONL), a list of objects, objects over several lines, or rows (CSV, TSV). Else it is one text. All
// are of the first one's kind. In memory is one record. One thread at a time.
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
  // Says of each record, in their order, whether to take it, or to skip it, which `skipped` is
  // told with the place and the reason. `kind` does not matter where `made` is an error.
  using OnSkipped = std::function<void(const Error& at)>;
  Result<bool> accept(const RawRecord& raw, Record::Kind kind, const Status& made,
                      const OnSkipped& skipped = {});

  // The kind of the file: "JSONL", "a JSON list", "JSON over several lines", "CSV", "TSV", "text".
  std::string_view container() const;
  int64_t line() const;       // of the last one
  int64_t malformed() const;  // skipped so far

 private:
  class Impl;
  explicit RecordReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::core
