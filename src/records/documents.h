// SPDX-License-Identifier: Apache-2.0
// Records as tokens with what is learnt of them: by several threads, in bounded memory, in their order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "chat/learnt.h"
#include "records/record.h"

namespace sluice::core {

// What makes tokens of records.
struct TokenMaking {
  const Tokenizer* tokenizer = nullptr;
  // Null: conversations are refused, for the reason in no_template.
  const ChatTemplate* chat_template = nullptr;
  std::string no_template;
  Learn learn = Learn::Assistant;
  int32_t end = -1;  // the token that ends a text or a completion, unless it does so itself; -1: none
};

struct Document {
  Record::Kind kind = Record::Kind::Text;
  int64_t line = 0;  // of its file; 0: it is all of it
  LearntTokens tokens;
  // What the chat template does not show of it.
  bool lacks_tools = false, lacks_tool_calls = false, lacks_messages = false;
};

// Errors: the reason, without its place.
Result<Document> document_of(const Record& record, const TokenMaking& making);

struct ReadingOptions {
  RecordOptions records;
  int threads = 1;
  // Records of so many bytes are taken up at once for each thread; a larger one alone.
  int64_t batch_bytes = int64_t{1} << 20;
  // Told of bytes of records that have become tokens since the last time: of compressed files more than those
  // of the file.
  std::function<void(int64_t bytes)> progress;
};

struct Skipped {
  int64_t records = 0;
  std::string first;  // the first one, with its line and the reason; empty: there is none
};

// Calls `take` with every record of a file, in order, until it returns an error. A record that cannot become
// tokens is malformed like one that cannot be read. Errors name file, line and reason.
Result<Skipped> read_documents(const std::filesystem::path& path, const TokenMaking& making,
                               const ReadingOptions& options, const std::function<Status(Document&)>& take);

}  // namespace sluice::core
