// SPDX-License-Identifier: Apache-2.0
// The files that a corpus is made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::core {

struct SourceOptions {
  // Files, directories (with everything below them, except names that begin with a dot) or shell patterns
  // ("docs/*.md").
  std::vector<std::string> paths;
  // Endings of the file names to take inside directories, such as ".txt"; empty: all.
  std::vector<std::string> include;
  // Shell patterns of what directories and patterns leave out. They are compared with the path below the
  // directory that was named ('*' matches '/' too; a directory's name covers all below it) and with the bare
  // file name.
  std::vector<std::string> exclude;
};

// The content of a file, by its name.
enum class SourceForm : uint8_t {
  Text,     // one document, of bytes as they are
  Records,  // JSON, a table, or anything compressed (records/record.h)
  Tokens,   // a token file (dataset/token_file.h): it ends in .tokens or .bin
};
SourceForm form_of(const std::filesystem::path& path);

struct Source {
  std::string name;  // its path below the directory that was named
  std::filesystem::path path;
  SourceForm form = SourceForm::Text;
  size_t entry = 0;  // of `paths`
  int64_t bytes = 0;
  int64_t begin = 0;       // where its text begins: behind a byte order mark
  int64_t changed_ns = 0;  // when it was last written to, by its file system
};

// Every input once, in the order of its name, without empty files; adds to `used` the patterns and endings
// that some file has. Errors name what is not there.
Result<std::vector<Source>> find_sources(const SourceOptions& options, std::set<std::string>* used = nullptr);

// Where a file of text is not UTF-8; empty: it is.
Result<std::string> why_not_utf8(const Source& source);

// An error if a file is not what it was found as.
Status check_unchanged(const Source& source);

}  // namespace sluice::core
