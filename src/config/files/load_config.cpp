// SPDX-License-Identifier: Apache-2.0
#include "config/files/load_config.h"

#include <filesystem>
#include <utility>

#include "io/directory.h"
#include "io/hub_cache.h"
#include "io/model_folder.h"
#include "io/toml_file.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Where a setting was written: what its paths are relative to, and what people call the place.
struct Place {
  fs::path base;
  std::string words;
};

fs::path absolute(const fs::path& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).lexically_normal();
}

std::string resolved(RunConfig& config, std::string_view key, const std::string& path, const Place& place) {
  if (path.empty()) return path;
  if (fs::path(path).is_absolute()) return followed(path).string();
  std::string out = followed((place.base / path).lexically_normal()).string();
  std::error_code ignored;
  // What is there where one stands comes before a name of the hub, and patterns of it do, too.
  if (!fs::exists(out, ignored) && !fs::exists(place.base / *fs::path(path).begin(), ignored)) {
    const auto kept = find_in_hub_cache(path, key.starts_with("data.") ? HubKind::Dataset : HubKind::Model);
    if (kept) out = kept->string();
  }
  config.written_paths[out] = fmt::format("'{}' {}", path, place.words);
  return out;
}

PathReader read_from(const Place& place) {
  return [place](RunConfig& config, std::string_view key, const std::string& path) {
    return resolved(config, key, path, place);
  };
}

// From here on the parts of the model that no key of their own names are named.
void name_parts(RunConfig& config) {
  auto& m = config.model;
  for (std::string* part : {&m.path, &m.config, &m.weights}) {
    if (!part->empty()) *part = model_folder(*part).string();
  }
  if (m.config.empty()) m.config = m.path;
  if (is_config_file(m.path)) {
    if (m.weights.empty())
      config.notices.push_back(
          fmt::format("model.path = {}: a config.json alone, so the weights are random", m.path));
  } else if (m.weights.empty()) {
    m.weights = m.path;
  }
}

}  // namespace

Result<RunConfig> load_config(const std::string& path, const std::vector<std::string>& settings,
                              RunConfig config) {
  if (!path.empty()) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
      return error(
          "{}: a folder; what is given here is a configuration (TOML), whose model.path may name a "
          "model's folder, and data.paths one of data",
          path);
    SLUICE_ASSIGN(const Settings file, read_toml(path));
    const Place place{absolute(path).parent_path(), "in " + path};
    for (const auto& [name, setting] : file) {
      const Status status = apply_setting(config, name, setting, read_from(place));
      if (!status.ok()) return error_at(fmt::format("{}:{}", path, setting.line), status.error());
    }
  }
  const Place here{absolute("."), "in the working directory"};
  for (const std::string& text : settings) SLUICE_TRY(apply_typed(config, text, read_from(here)));
  name_preset(config);
  name_parts(config);
  SLUICE_TRY(check_config(config));
  return config;
}

std::string to_toml(const RunConfig& config) {
  return to_toml(config, [](const std::string& path) { return absolute(path).string(); });
}

}  // namespace sluice::core
