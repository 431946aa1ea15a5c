// SPDX-License-Identifier: Apache-2.0
#include "dataset/sources.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <tuple>

#include "io/file.h"
#include "io/hub_cache.h"
#include "io/pieces.h"
#include "records/record.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

Source source(const std::string& name, const fs::path& path) {
  return {name, path, form_of(path)};
}

int64_t changed_ns(const fs::path& path, std::error_code& code) {
  const auto when = fs::last_write_time(path, code).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when).count();
}

// The searched names, and which patterns and endings of it some file had.
struct Search {
  const SourceOptions& options;
  std::set<std::string>& used;

  bool excludes(const std::string& name) const {
    return any(options.exclude, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), FNM_LEADING_DIR) == 0 ||
             fnmatch(pattern.c_str(), fs::path(name).filename().c_str(), 0) == 0;
    });
  }
  bool includes(const std::string& name) const {
    return options.include.empty() ||
           any(options.include, [&](const std::string& ending) { return name.ends_with(ending); });
  }

 private:
  bool any(const std::vector<std::string>& list, auto&& matches) const {
    bool found = false;
    for (const std::string& item : list) {
      if (!matches(item)) continue;
      used.insert(item);
      found = true;
    }
    return found;
  }
};

std::vector<std::string> expand(const std::string& pattern) {
  glob_t matches{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  return paths;
}

// The directory in front of the first wildcard.
fs::path fixed_part(const std::string& pattern) {
  return fs::path(pattern.substr(0, pattern.find_first_of("*?["))).parent_path();
}

// Keeps the part of a hub's data set that is for training: without files about the repository, and only those
// called train if there are any.
void keep_training_part(std::vector<fs::path>& files) {
  std::erase_if(files, [](const fs::path& file) {
    const std::string name = file.filename().string();
    return name == "README.md" || name == "dataset_infos.json" || name.starts_with("LICENSE") ||
           file.extension() == ".py";
  });
  const auto trains = [](const fs::path& file) {
    return file.generic_string().find("train") != std::string::npos;
  };
  if (std::any_of(files.begin(), files.end(), trains))
    std::erase_if(files, [&](const fs::path& file) { return !trains(file); });
}

Status gather_directory(const fs::path& directory, const fs::path& root, const Search& search,
                        std::vector<Source>& sources) {
  SLUICE_ASSIGN(auto files, list_files(directory));
  if (is_hub_dataset(directory)) keep_training_part(files);
  for (const fs::path& file : files) {
    const fs::path path = directory / file;
    const std::string name = path.lexically_relative(root).generic_string();
    if (search.includes(name) && !search.excludes(name)) sources.push_back(source(name, path));
  }
  return {};
}

Status gather(const std::string& path, const Search& search, std::vector<Source>& sources) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return gather_directory(path, path, search, sources);
  if (fs::exists(path, ignored)) {
    sources.push_back(source(fs::path(path).filename().generic_string(), path));
    return {};
  }
  const auto matches = expand(path);
  if (matches.empty())
    return error(ErrorKind::NotFound,
                 "data: '{}' is neither a file, a directory nor a pattern that matches one", path);
  const fs::path root = fixed_part(path);
  for (const std::string& match : matches) {
    if (fs::is_directory(match, ignored)) {
      SLUICE_TRY(gather_directory(match, root, search, sources));
    } else if (const auto name = fs::path(match).lexically_relative(root).generic_string();
               !search.excludes(name)) {
      sources.push_back(source(name, match));
    }
  }
  return {};
}

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + item;
  return text + "]";
}

}  // namespace

SourceForm form_of(const fs::path& path) {
  if (has_records(path) || is_compressed(path)) return SourceForm::Records;
  return path.extension() == ".tokens" || path.extension() == ".bin" ? SourceForm::Tokens : SourceForm::Text;
}

Result<std::vector<Source>> find_sources(const SourceOptions& options, std::set<std::string>* used) {
  std::set<std::string> of_one;
  const Search search{options, used == nullptr ? of_one : *used};
  std::vector<Source> found;
  for (size_t entry = 0; entry < options.paths.size(); ++entry) {
    const size_t before = found.size();
    SLUICE_TRY(gather(options.paths[entry], search, found));
    for (size_t i = before; i < found.size(); ++i) found[i].entry = entry;
  }
  std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  std::set<fs::path> seen;
  std::vector<Source> sources;
  for (Source& source : found) {
    std::error_code code;
    const bool is_new = seen.insert(fs::canonical(source.path, code)).second;
    if (!code) source.bytes = static_cast<int64_t>(fs::file_size(source.path, code));
    if (!code) source.changed_ns = changed_ns(source.path, code);
    if (code) return error_at("data", file_error("inspect", source.path, code.value()));
    if (is_new && source.bytes > 0) sources.push_back(std::move(source));
  }
  if (sources.empty()) {
    const std::string endings = options.include.empty() ? "" : " with endings " + list(options.include);
    return error(ErrorKind::NotFound, "data: no file with content among {}{}", list(options.paths), endings);
  }
  return sources;
}

Result<std::string> why_not_utf8(const Source& source) {
  std::string text, why;  // what a piece cuts stays for the next one
  int64_t line = 1;
  SLUICE_TRY(read_pieces(source.path, 0, source.bytes, [&](std::string_view piece) -> Status {
    if (!why.empty()) return {};
    text += piece;
    size_t whole = find_invalid_utf8(text);
    if (whole == text.npos) whole = text.size();
    constexpr size_t kMostCut = 3;  // bytes of a character that its last byte is missing of
    if (text.size() - whole > kMostCut) why = fmt::format("byte 0x{:02x} is not UTF-8", uint8_t(text[whole]));
    line += std::count(text.begin(), text.begin() + std::ptrdiff_t(whole), '\n');
    text.erase(0, whole);
    return {};
  }));
  if (why.empty() && !text.empty()) why = fmt::format("byte 0x{:02x} is not UTF-8", uint8_t(text[0]));
  return why.empty() ? why : fmt::format("line {}: {}", line, why);
}

Status check_unchanged(const Source& source) {
  std::error_code code;
  const auto bytes = static_cast<int64_t>(fs::file_size(source.path, code));
  const int64_t changed = code ? 0 : changed_ns(source.path, code);
  if (code || bytes != source.bytes || changed != source.changed_ns)
    return error(ErrorKind::Io, "data: {} changed while it was read", source.path.string());
  return {};
}

}  // namespace sluice::core
