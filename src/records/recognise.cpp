// SPDX-License-Identifier: Apache-2.0
#include "records/recognise.h"

#include <algorithm>
#include <string>

#include "records/record.h"

namespace sluice::core {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Whether the brackets of a line are closed again, and none before it is opened.
bool is_whole(std::string_view line) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else {
      in_string = c == '"';
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    }
  }
  return depth <= 0 && !in_string;
}

// A first line that ends inside its object is one of several, unless the next one begins an object, too: then
// it is JSONL with a broken line.
bool goes_on_below(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos || text[begin] != '{') return false;
  const size_t end = text.find('\n', begin);
  if (end == text.npos || is_whole(text.substr(begin, end - begin))) return false;
  const size_t next = text.find_first_not_of(kSpace, end);
  return next != text.npos && text[next] != '{';
}

struct Foreign {
  std::string_view magic, ending;  // either tells it
  std::string_view name, library, reader;
};
constexpr Foreign kForeign[] = {
    {"PAR1", ".parquet", "Parquet", "pandas", "read_parquet"},
    {"ARROW1", ".feather", "Arrow", "pandas", "read_feather"},
    {"", ".arrow", "Arrow", "datasets", "Dataset.from_file"},
    {"", ".xlsx", "an Excel workbook", "pandas", "read_excel"},
    {"", ".xls", "an Excel workbook", "pandas", "read_excel"},
};

struct Compression {
  std::string_view name, ending, magic;
};
constexpr Compression kCompressions[] = {{"gzip", ".gz", "\x1f\x8b"}, {"zstd", ".zst", "\x28\xb5\x2f\xfd"}};

}  // namespace

std::string_view compression_of(std::string_view first_bytes) {
  for (const Compression& c : kCompressions) {
    if (first_bytes.starts_with(c.magic)) return c.name;
  }
  return {};
}

Status check_compression(const std::filesystem::path& path, std::string_view compression) {
  std::string_view named;
  std::string right = name_before_compression(path).string();
  for (const Compression& c : kCompressions) {
    if (path.extension() == c.ending) named = c.name;
    if (compression == c.name) right += c.ending;
  }
  if (named == compression) return {};
  if (named.empty())
    return error("{}: compressed by {}, which its name does not say; rename it to {}", path.string(),
                 compression, right);
  return error("{}: its name says {}, but it is {}; rename it to {}", path.string(), named,
               compression.empty() ? "not compressed" : fmt::format("compressed by {}", compression), right);
}

std::filesystem::path name_before_compression(const std::filesystem::path& path) {
  return is_compressed(path) ? path.stem() : path.filename();
}

bool begins_with_record(std::string_view text) {
  constexpr std::string_view kKeys[] = {"\"messages\"", "\"conversations\"", "\"conversation\"",
                                        "\"prompt\"",   "\"instruction\"",   "\"question\"",
                                        "\"text\"",     "\"completion\""};
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t key = line.find_first_not_of(kSpace, 1);
  if (!line.starts_with('{') || key == line.npos || line[key] != '"') return false;
  return std::any_of(std::begin(kKeys), std::end(kKeys), [&](auto k) { return line.find(k) != line.npos; });
}

Container container_of(const std::filesystem::path& path, std::string_view first_bytes) {
  if (!has_records(path)) return Container::Text;
  const std::string ending = name_before_compression(path).extension().string();
  if (ending == ".csv" || ending == ".tsv") return Container::Table;
  const size_t begin = first_bytes.find_first_not_of(kSpace);
  if (begin != first_bytes.npos && first_bytes[begin] == '[') return Container::List;
  return goes_on_below(first_bytes) ? Container::Values : Container::Lines;
}

Status check_format(const std::filesystem::path& path, std::string_view first_bytes) {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  if (first_bytes.starts_with(kPointer))
    return error("{}: a pointer of Git LFS instead of the file; `git lfs pull` fetches it", path.string());
  const std::string ending = name_before_compression(path).extension().string();
  for (const Foreign& f : kForeign) {
    if (!(ending == f.ending || (!f.magic.empty() && first_bytes.starts_with(f.magic)))) continue;
    return error(
        "{}: {}, which Sluice does not read. To convert it: python3 -c \"import {}; "
        "{}.{}('{}').to_json('{}', "
        "orient='records', lines=True, force_ascii=False)\"; data.exclude leaves it out",
        path.string(), f.name, f.library, f.library, f.reader, path.filename().string(),
        path.stem().string() + ".jsonl");
  }
  return {};
}

char separator_of(const std::filesystem::path& path, std::string_view header) {
  if (name_before_compression(path).extension() == ".tsv") return '\t';
  const auto count = [&](char c) { return std::count(header.begin(), header.end(), c); };
  if (count(',') > 0 || (count(';') == 0 && count('\t') == 0)) return ',';
  return count(';') > 0 ? ';' : '\t';
}

}  // namespace sluice::core
