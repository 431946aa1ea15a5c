// SPDX-License-Identifier: Apache-2.0
#include "dataset/tokenize.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/parallel.h"
#include "io/file.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

// Documents that are encoded before their tokens are written, so that small ones do not wait for each other.
constexpr size_t kMostJobs = 4096;

struct Open {
  MappedFile file;
  std::string_view text;  // of the document
};

Result<std::shared_ptr<const Open>> open(const TextRange& range) {
  SLUICE_ASSIGN(MappedFile file, MappedFile::open(range.path));
  const auto bytes = file.bytes();
  if (int64_t(bytes.size()) != range.file_bytes)
    return error(ErrorKind::Io, "data: {} changed while it was read", range.path.string());
  const std::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view text = whole.substr(size_t(range.begin), size_t(range.end - range.begin));
  return std::make_shared<const Open>(Open{std::move(file), text});
}

// A part of a document, and its tokens.
struct Job {
  const TextRange* range = nullptr;
  std::shared_ptr<const Open> document;
  size_t begin = 0, end = 0;  // in the document's text
  std::vector<int32_t> ids;
  EncodeCounts counts;
  Status status;

  Tokenizer::TextPart part() const { return {begin == 0, end == document->text.size()}; }
};

Error at_line(const Job& job, size_t place, const Error& e) {
  const auto* whole = reinterpret_cast<const char*>(job.document->file.bytes().data());
  const auto line = 1 + std::count(whole, job.document->text.data() + place, '\n');
  return error(e.kind, "{}: line {}: {}", job.range->path.string(), line, e.message);
}

// Without a character that its end may cut.
std::string_view whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const char c = text[text.size() - back];
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;
    return static_cast<unsigned char>(c) >= 0xc0 && size_t(utf8_length(c)) > back
               ? text.substr(0, text.size() - back)
               : text;
  }
  return text;
}

class Writing {
 public:
  Writing(const Tokenizer& tokenizer, const TokenizeOptions& options, TokenFileWriter& writer)
      : tokenizer_(tokenizer),
        options_(options),
        plain_(Tokenizer::Plain::everywhere(options.special)),
        writer_(writer) {}

  Status add(const TextRange& range) {
    SLUICE_ASSIGN(const auto document, open(range));
    for (size_t at = 0; at < document->text.size();) {
      Job job{&range, document, at, document->text.size()};
      SLUICE_TRY(find_end(job));
      at = job.end;
      bytes_ += int64_t(job.end - job.begin);
      jobs_.push_back(std::move(job));
      if (bytes_ >= options_.part_bytes * options_.threads || jobs_.size() >= kMostJobs) SLUICE_TRY(flush());
    }
    return {};
  }

  Status flush() {
    for_each_parallel(int64_t(jobs_.size()), options_.threads, [&](int64_t i) {
      Job& job = jobs_[size_t(i)];
      const std::string_view text = job.document->text.substr(job.begin, job.end - job.begin);
      const size_t bad = find_invalid_utf8(text);
      job.status = bad == text.npos ? tokenizer_.encode_part(text, job.part(), /*special=*/true, job.ids,
                                                             &job.counts, plain_)
                                    : not_utf8(text[bad]);
      if (!job.status.ok())
        job.status = at_line(job, job.begin + (bad == text.npos ? 0 : bad), job.status.error());
    });
    for (Job& job : jobs_) {
      SLUICE_TRY(std::exchange(job.status, Status{}));
      if (options_.noticed) options_.noticed(*job.range, job.counts);
      const bool ends_file = job.part().ends && job.range->end == job.range->file_bytes;
      if (ends_file && options_.end >= 0 && (job.ids.empty() || job.ids.back() != options_.end))
        job.ids.push_back(options_.end);
      SLUICE_TRY(writer_.append(job.ids));
      job.ids = {};
      if (job.part().ends) writer_.end_document();
      if (options_.progress) options_.progress(int64_t(job.end - job.begin));
      job.document->file.release();
    }
    jobs_.clear();
    bytes_ = 0;
    return {};
  }

 private:
  static Error not_utf8(char byte) {
    return error(
        "byte 0x{:02x} is not UTF-8, which this model's tokenizer takes; convert the file, or leave it out "
        "with "
        "data.exclude",
        static_cast<unsigned char>(byte));
  }

  // Where the part that begins with the job ends. What is cut is checked first: places are known of UTF-8
  // only.
  Status find_end(Job& job) const {
    const std::string_view rest = job.document->text.substr(job.begin);
    for (auto window = size_t(options_.part_bytes); window < rest.size(); window *= 2) {
      const std::string_view text = whole_characters(rest.substr(0, window));
      if (const size_t bad = find_invalid_utf8(text); bad != text.npos)
        return at_line(job, job.begin + bad, not_utf8(text[bad]));
      if (const size_t bytes = tokenizer_.part_bytes(text, job.begin == 0, plain_); bytes > 0) {
        job.end = job.begin + bytes;
        return {};
      }
      if (window * 2 > size_t(options_.most_bytes) && rest.size() > size_t(options_.most_bytes)) {
        return at_line(job, job.begin,
                       error("from here on there are {} without a place where the document could be cut and "
                             "keep its tokens{}; make it several files",
                             format_bytes(int64_t(window)), options_.why));
      }
    }
    return {};
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const Tokenizer::Plain plain_;
  TokenFileWriter& writer_;
  std::vector<Job> jobs_;
  int64_t bytes_ = 0;  // of the jobs
};

}  // namespace

Status tokenize(std::span<const TextRange> documents, const Tokenizer& tokenizer,
                const TokenizeOptions& options, TokenFileWriter& writer) {
  Writing writing(tokenizer, options, writer);
  for (const TextRange& document : documents) SLUICE_TRY(writing.add(document));
  return writing.flush();
}

int token_bytes(const Tokenizer& tokenizer) {
  return tokenizer.vocab() <= int64_t{UINT16_MAX} + 1 ? 2 : 4;
}

int64_t place_between(std::string_view text, int64_t at) {
  constexpr size_t kSoon = size_t{1} << 16;
  const auto from = size_t(at);
  const size_t line = text.substr(0, from + kSoon).find('\n', from - 1);
  if (line != text.npos && line + 1 < text.size()) return int64_t(line) + 1;
  size_t place = from;
  while (place > 1 && (static_cast<unsigned char>(text[place]) & 0xc0) == 0x80) --place;
  return int64_t(place);
}

}  // namespace sluice::core
