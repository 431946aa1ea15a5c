// SPDX-License-Identifier: Apache-2.0
#include "run/inputs/paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "io/hub_cache.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// The nearest directory that is there, which must let others be made in it.
Status can_make(std::string_view key, const fs::path& path, fs::path directory) {
  std::error_code ignored;
  while (!fs::exists(directory, ignored) && directory.has_relative_path())
    directory = directory.parent_path();
  if (!fs::is_directory(directory, ignored))
    return error(ErrorKind::Io, "{} = {}: {} is not a directory", key, path.string(), directory.string());
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return {};
  return error(ErrorKind::Io, "{} = {}: {} cannot be written to", key, path.string(), directory.string());
}

fs::path whole_path(const fs::path& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).lexically_normal();
}

}  // namespace

Status check_input(const RunConfig& config, std::string_view key, const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return {};
  const auto written = config.written_paths.find(path.string());
  if (written == config.written_paths.end())
    return error(ErrorKind::NotFound, "{} = {}: no such file or directory", key, path.string());
  const std::string& words = written->second;
  const std::string name = words.substr(1, std::max<size_t>(words.find('\'', 1), 1) - 1);
  const bool data = key.starts_with("data.");
  std::string hub;
  if (is_hub_name(name) && (data || key.starts_with("model.")))
    hub = fmt::format(
        "; nor is it in the cache of the Hugging Face hub, {}, where `hf download {}{}` would put it",
        hub_cache().string(), data ? "--repo-type dataset " : "",
        name.substr(0, name.find('/', name.find('/') + 1)));
  return error(ErrorKind::NotFound, "{}: {} is {}: no such file or directory{}", key, words, path.string(),
               hub);
}

Status check_texts(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (fs::path(file).extension() == ".toml" && file.find_first_of("*?[") == std::string::npos)
      return error(
          "{}: a configuration (TOML), no text; it stands alone, and text in TOML is named by a pattern, "
          "such as "
          "'*.toml'",
          file);
  }
  return {};
}

std::string_view key_of_part(const RunConfig& config, const std::string& path, std::string_view own) {
  return !config.model.path.empty() && path == config.model.path ? "model.path" : own;
}

Status check_directory(std::string_view key, const fs::path& path) {
  return can_make(key, path, whole_path(path));
}

Status check_output(std::string_view key, const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = whole_path(path), directory = whole.parent_path();
  if (fs::is_directory(whole, ignored))
    return error(ErrorKind::Io, "{} = {}: that is a directory; a file is needed", key, path.string());
  if (!fs::exists(directory, ignored))
    return error(ErrorKind::Io, "{} = {}: there is no directory {}", key, path.string(), directory.string());
  return can_make(key, path, directory);
}

}  // namespace sluice::core
