// SPDX-License-Identifier: Apache-2.0
#include "records/documents.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace {

// Text is learnt as a whole, and may hold what no token stands for.
Result<LearntTokens> text_tokens(const std::string& text, const TokenMaking& making) {
  LearntTokens tokens;
  tokens.reserve_for(text);
  EncodeCounts counts;
  SLUICE_TRY(making.tokenizer->encode(text, /*special=*/true, tokens.ids, &counts));
  if (making.end >= 0 && (tokens.ids.empty() || tokens.ids.back() != making.end))
    tokens.ids.push_back(making.end);
  tokens.learnt.assign(tokens.ids.size(), 1);
  tokens.learnt_bytes = int64_t(text.size());
  tokens.dropped = counts.dropped;
  return tokens;
}

Result<LearntTokens> chat_tokens(const Conversation& chat, const TokenMaking& making, Document& document) {
  if (making.chat_template == nullptr) return error("a conversation: {}", making.no_template);
  SLUICE_ASSIGN(const RenderedChat rendered, making.chat_template->render(chat));
  document.lacks_tools = rendered.lacks_tools;
  document.lacks_tool_calls = rendered.lacks_tool_calls;
  document.lacks_messages = rendered.lacks_messages > 0;
  return learnt_tokens(chat, rendered, making.learn, *making.tokenizer);
}

Result<LearntTokens> tokens_of(const Record& record, const TokenMaking& making, Document& document) {
  const bool all = making.learn == Learn::Everything || making.learn == Learn::AllTurns;
  switch (record.kind) {
    case Record::Kind::Text:
      return text_tokens(record.text, making);
    case Record::Kind::Pair:
      return learnt_tokens(record.text, all ? 0 : record.completion, making.end, *making.tokenizer);
    case Record::Kind::Marked:
      return learnt_tokens(record.text, record.learnt, *making.tokenizer);
    case Record::Kind::Chat:
      break;
  }
  return chat_tokens(record.chat, making, document);
}

// A record on its way.
struct Job {
  RawRecord raw;
  std::optional<Result<Document>> made;
};

}  // namespace

Result<Document> document_of(const Record& record, const TokenMaking& making) {
  Document document;
  document.kind = record.kind;
  SLUICE_ASSIGN(document.tokens, tokens_of(record, making, document));
  return document;
}

Result<Skipped> read_documents(const std::filesystem::path& path, const TokenMaking& making,
                               const ReadingOptions& options, const std::function<Status(Document&)>& take) {
  SLUICE_ASSIGN(RecordReader reader, RecordReader::open(path, options.records));
  std::vector<Job> jobs;
  int64_t bytes = 0, held = 0;  // of their text, and with what else they take
  const auto finish = [&]() -> Status {
    for_each_parallel(int64_t(jobs.size()), options.threads, [&](int64_t i) {
      Job& job = jobs[size_t(i)];
      const Result<Record> record = reader.parse(job.raw);
      job.made = record.ok() ? document_of(*record, making) : Result<Document>(record.error());
    });
    for (Job& job : jobs) {
      const bool good = job.made->ok();
      SLUICE_ASSIGN(const bool taken, reader.accept(job.raw, good ? (*job.made)->kind : Record::Kind::Text,
                                                    good ? Status() : Status(job.made->error())));
      if (!taken) continue;
      (*job.made)->line = job.raw.line;
      SLUICE_TRY(take(**job.made));
    }
    jobs.clear();
    held = 0;
    if (options.progress) options.progress(std::exchange(bytes, 0));
    return {};
  };
  while (true) {
    Job job;
    const Result<bool> more = reader.next(job.raw);
    // What is before the place of an error comes first, for it may have one, too.
    if (!more.ok() || !*more) {
      SLUICE_TRY(finish());
      if (!more.ok()) return more.error();
      return Skipped{reader.malformed(), reader.first_malformed()};
    }
    // A long one has the memory for itself, and short ones take more than their text.
    const auto size = int64_t(job.raw.text.size());
    if (size > options.batch_bytes) SLUICE_TRY(finish());
    bytes += size;
    held += size + int64_t(sizeof(Job));
    jobs.push_back(std::move(job));
    if (size <= options.batch_bytes && held < options.batch_bytes * options.threads) continue;
    SLUICE_TRY(finish());
  }
}

}  // namespace sluice::core
