// SPDX-License-Identifier: Apache-2.0
// Token files read as one sequence of documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/token_file.h"

namespace sluice::core {

// Immutable; any thread may read.
class TokenSet {
 public:
  // The files in this order; no document spans two.
  explicit TokenSet(std::vector<TokenFile> files);

  struct Document {
    int64_t begin, end;  // token indices in the set
    int64_t number = 0;  // among all documents, from 0
  };

  int64_t tokens() const { return first_.back(); }
  int64_t documents() const { return documents_; }
  int64_t learnt() const;  // tokens that are
  int32_t max_token() const;

  // An error with file and index when a token is not below `vocab`.
  Status check_vocab(int64_t vocab) const;

  // Copies tokens [first, first + out.size()). REQUIRES: they exist.
  void read(int64_t first, std::span<int32_t> out) const;
  // The same as targets: -1 where the token is context.
  void read_targets(int64_t first, std::span<int32_t> out) const;
  // The document that token `index` belongs to. REQUIRES: the token exists.
  Document document_at(int64_t index) const;
  // REQUIRES: it exists.
  Document document(int64_t number) const;

  // From which entry of what people named (Source::entry) a stretch of tokens is, which ends at `end`.
  struct Path {
    int64_t end;
    uint32_t entry;
  };
  // One after another up to the last token; none: all are of the first entry.
  void set_paths(std::vector<Path> paths) { paths_ = std::move(paths); }
  // The stretch that token `index` is in. REQUIRES: the token exists.
  Path path_at(int64_t index) const;

  // As MappedFile::release().
  void release() const {
    for (const TokenFile& file : files_) file.release();
  }

  // Files and counts, for errors and reports: "runs/a.tokens: 1200 tokens in 3 documents".
  std::string to_text() const;

 private:
  size_t file_at(int64_t index) const;
  template <class F>
  void for_parts(int64_t first, std::span<int32_t> out, F&& f) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> first_{0};  // index of each file's first token, and the token count
  std::vector<int64_t> before_;    // documents before those of each file
  int64_t documents_ = 0;
  std::vector<Path> paths_;
};

// The token files that `path` names: one file, or every file of a directory that ends in .tokens or .bin, by
// name.
Result<TokenSet> open_tokens(const std::filesystem::path& path);

}  // namespace sluice::core
