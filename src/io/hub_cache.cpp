// SPDX-License-Identifier: Apache-2.0
#include "io/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "io/file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_name_part(std::string_view part) {
  constexpr std::string_view kSigns = "-_.";
  return !part.empty() && part.front() != '.' && part.front() != '~' &&
         std::all_of(part.begin(), part.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  kSigns.find(c) != kSigns.npos;
         });
}

// The snapshot of main, or the only one.
fs::path snapshot_in(const fs::path& repository) {
  std::error_code ignored;
  const auto revision = read_file(repository / "refs" / "main", 1 << 10);
  if (revision.ok()) {
    const std::string commit = revision->substr(0, revision->find_first_of(" \r\n"));
    if (is_name_part(commit) && fs::is_directory(repository / "snapshots" / commit, ignored))
      return repository / "snapshots" / commit;
  }
  fs::path only;
  for (fs::directory_iterator it(repository / "snapshots", ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    if (!only.empty()) return {};
    only = it->path();
  }
  return only;
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = environment(name); !cache.empty()) return cache;
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = (fs::path(environment("HOME")) / ".cache").string();
  return fs::path(cache) / "huggingface" / "hub";
}

bool is_hub_name(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == path.npos) return false;
  const std::string_view rest = path.substr(slash + 1);
  return is_name_part(path.substr(0, slash)) && is_name_part(rest.substr(0, rest.find('/')));
}

std::optional<fs::path> find_in_hub_cache(std::string_view name, HubKind kind) {
  if (!is_hub_name(name)) return std::nullopt;
  const size_t slash = name.find('/'), end = std::min(name.find('/', slash + 1), name.size());
  const fs::path repository =
      hub_cache() / fmt::format("{}--{}--{}", kind == HubKind::Model ? "models" : "datasets",
                                name.substr(0, slash), name.substr(slash + 1, end - slash - 1));
  const fs::path snapshot = snapshot_in(repository);
  if (snapshot.empty()) return std::nullopt;
  return end + 1 < name.size() ? snapshot / name.substr(end + 1) : snapshot;
}

std::string base_name(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  const std::string repository = snapshots.parent_path().filename().string();
  constexpr std::string_view kModels = "models--", kBetween = "--";
  const size_t slash = repository.find(kBetween, kModels.size());
  if (snapshots.filename() != "snapshots" || !repository.starts_with(kModels) || slash == repository.npos)
    return folder.string();
  return fmt::format("{}/{}", repository.substr(kModels.size(), slash - kModels.size()),
                     repository.substr(slash + kBetween.size()));
}

bool is_hub_dataset(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" &&
         snapshots.parent_path().filename().string().starts_with("datasets--");
}

}  // namespace sluice::core
