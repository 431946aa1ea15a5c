// SPDX-License-Identifier: Apache-2.0
// Text files as tokens, split into training and held-out documents and cached as token files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"
#include "tokens/token_set.h"

namespace sluice::core {

struct CorpusOptions {
  // Files, directories (with everything below them, except names that begin with a dot) or shell patterns
  // ("docs/*.md").
  std::vector<std::string> paths;
  // Endings of the file names to take inside directories, such as ".txt"; empty: all.
  std::vector<std::string> include;
  // Shell patterns of what directories and patterns leave out, compared with the path below the directory
  // that was named ('*' matches '/' too; a directory's name covers all below it) and with the bare file name.
  std::vector<std::string> exclude;
  // Fraction of the files to hold out, 0 to below 1. Every file draws by its path below the named directory
  // and the seed, so that files added later move no other. If the fraction is positive, both sides get at
  // least one file; a corpus of a single file is cut instead, and its last part held out.
  double heldout = 0.05;
  uint64_t seed = 0;
  // Null: a token is a byte (ByteTokenizer).
  const Tokenizer* tokenizer = nullptr;
  int threads = 1;  // that encode
};

struct Corpus {
  TokenSet train;
  std::optional<TokenSet> heldout;
  int64_t files = 0;   // that are not empty
  bool built = false;  // false: the cache had it
  std::string key;     // equal for equal options, files, contents and tokenizers
  std::string notice;  // why what the cache had was not believed; empty: it was, or had nothing
  // Characters or bytes that the tokenizer has no token for and leaves out; counted when the tokens are
  // built.
  int64_t dropped = 0;
};

// A document is a file; documents are in the order of their paths. The token files are in
// `cache_directory`/<hash of options, paths, contents and tokenizer>/ with their checksums and what they were
// made of, so changed input is found again or built, never mixed up; what is damaged there, or somebody
// else's, is built anew.
Result<Corpus> open_corpus(const CorpusOptions& options, const std::filesystem::path& cache_directory);

}  // namespace sluice::core
