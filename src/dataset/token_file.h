// SPDX-License-Identifier: Apache-2.0
// Files of token ids, memory-mapped.
//
// Sluice's own format (little-endian): TokenFileHeader, tokens as uint16 or uint32, zeros up to a multiple of
// 8, then documents + 1 int64 token indices. These say where each document begins, and the token count.
// Documents have tokens. That is version 2, where every token is learnt. In version 3 a bit for each token
// follows, from the lowest of the first byte on, up to a multiple of 8 bytes. It is 1 where the token is
// context, which nobody learns to say. llm.c's format: 256 int32 (magic 20240520 for uint16 tokens or
// 20240801 for uint32, version 1, token count, zeros), then the tokens. It marks no documents, so the file is
// one. docs/data.md shows how to write either.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/status.h"
#include "io/file.h"

namespace sluice::core {

struct TokenFileHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t token_bytes;  // 2 or 4
  int64_t tokens, documents;
  int64_t max_token, max_token_index;  // the largest id and where it stands first
  uint64_t checksum[2];  // XXH3 of 128 bits, high and low, of all that follows and of the header, where these
                         // are 0
};
static_assert(sizeof(TokenFileHeader) == 64);

class TokenFile {
 public:
  // Reads the file once: for its checksum, which an llm.c file has not, and for its largest token, which is
  // not believed. Checks the header, the size and the document boundaries. What is read is released behind
  // it.
  static Result<TokenFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  int64_t tokens() const { return tokens_; }
  // Where each document begins, and the token count at the end.
  std::span<const int64_t> boundaries() const { return boundaries_; }
  int32_t max_token() const { return max_token_; }
  int64_t max_token_index() const { return max_token_index_; }
  // The checksum of a file in our own format.
  Checksum checksum() const { return checksum_; }

  // Those that are learnt.
  int64_t learnt() const { return learnt_; }

  // Copies tokens [first, first + out.size()). REQUIRES: they exist.
  void read(int64_t first, std::span<int32_t> out) const;
  // The same as targets: -1 where the token is context.
  void read_targets(int64_t first, std::span<int32_t> out) const;
  // As MappedFile::release().
  void release() const { file_.release(); }

 private:
  explicit TokenFile(MappedFile file) : file_(std::move(file)) {}
  Status open_own();
  Status open_llmc();
  Status find_max();

  MappedFile file_;
  const std::byte* data_ = nullptr;
  int64_t token_bytes_ = 0, tokens_ = 0;
  std::span<const int64_t> boundaries_;
  std::span<const std::byte> context_;  // a bit for each token; empty: all are learnt
  int64_t learnt_ = 0;
  std::vector<int64_t> whole_;  // the boundaries of a file without them
  int32_t max_token_ = 0;
  int64_t max_token_index_ = 0;
  Checksum checksum_;
};

// Writes a TokenFile in order; it appears on commit() (AtomicFile). In memory are 8 bytes for each document,
// and a bit for each token once one is context.
class TokenFileWriter {
 public:
  // token_bytes: 2 or 4.
  static Result<TokenFileWriter> create(const std::filesystem::path& path, int token_bytes);

  // Appends to the current document. REQUIRES: the ids fit token_bytes.
  Status append(std::span<const int32_t> tokens);
  // Appends tokens, of which some are context: where `learnt` is 0. REQUIRES: as many of both.
  Status append(std::span<const int32_t> tokens, std::span<const uint8_t> learnt);
  // The next token begins another document. A document without tokens leaves no trace in the file.
  void end_document();
  int64_t tokens() const { return header_.tokens; }
  // Where each document begins, and where the last one that was ended ends.
  std::span<const int64_t> boundaries() const { return boundaries_; }
  // Documents without tokens, by how many were ended before them, ascending.
  const std::vector<int64_t>& empty_documents() const { return empty_; }
  // Ends the last document. REQUIRES: there is a token.
  Status commit();

 private:
  TokenFileWriter(AtomicFile file, int token_bytes);

  AtomicFile file_;
  TokenFileHeader header_;
  std::vector<int64_t> boundaries_{0};
  std::vector<int64_t> empty_;
  std::vector<uint8_t> context_;  // up to the last token that is
  std::vector<std::byte> buffer_;
  Checksummer sum_;  // of what follows the header
};

}  // namespace sluice::core
