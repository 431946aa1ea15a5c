// SPDX-License-Identifier: Apache-2.0
#include "config/files/load_config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/directory.h"
#include "io/file.h"
#include "io/hub_cache.h"
#include "io/model_folder.h"
#include "io/shards.h"
#include "io/toml_file.h"
#include "model/families/adapter_config.h"
#include "model/families/families.h"

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
  // Existing files, and patterns of them, come before a name of the hub.
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

// Keys that are left open get what the adapter's own file says.
Status read_adapter(RunConfig& config, const std::string& text) {
  auto& a = config.adapter;
  SLUICE_ASSIGN(const AdapterConfig file, parse_adapter_config(text));
  const Adapters& own = file.adapters;
  if (a.rank != 0 && a.rank != own.rank)
    return error("adapter.rank = {}: the adapter has rank {}", a.rank, own.rank);
  a.rank = own.rank;
  if (!a.alpha) a.alpha = own.alpha;
  a.rslora = a.rslora || own.rslora;
  if (a.dora && !own.dora)
    return error(
        "adapter.dora = true: the adapter has no magnitudes; start without adapter.path, or leave it out");
  a.dora = own.dora;
  if (!config.given.contains("adapter.dropout")) a.dropout = own.dropout;
  const auto take = [](std::vector<std::string>& key, const std::vector<std::string>& is) {
    if (key.empty()) key = is;
  };
  take(a.targets, own.targets);
  take(a.exclude, own.exclude);
  take(a.modules_to_save, own.whole);
  const auto others = [&](std::vector<std::string>& key, const std::vector<Adapters::Other>& is) {
    std::vector<std::string> texts;
    for (const auto& [pattern, value] : is) texts.push_back(fmt::format("{}={}", pattern, value));
    take(key, texts);
  };
  others(a.rank_pattern, own.ranks);
  others(a.alpha_pattern, own.alphas);
  const auto ids = [&](std::vector<std::string>& key, const std::vector<int64_t>& is) {
    std::vector<std::string> texts;
    for (const int64_t id : is) texts.push_back(std::to_string(id));
    take(key, texts);
  };
  ids(a.tokens, own.tokens);
  ids(a.head_tokens, own.head_tokens);
  return {};
}

// A model that is an adapter's folder becomes two: adapter.path is the adapter, model.path its base.
Status name_adapter(RunConfig& config) {
  auto& m = config.model;
  auto& a = config.adapter;
  if (!a.path.empty()) a.path = model_folder(a.path).string();
  for (std::string* part : {&m.path, &m.config, &m.weights}) {
    if (!part->empty() && is_adapter_folder(*part)) a.path = std::exchange(*part, "");
  }
  if (a.path.empty()) {
    if (!a.base.empty()) return error("adapter.base = {}: it is the base of no adapter", a.base);
    return {};
  }
  const fs::path file = fs::path(a.path) / kAdapterConfigName;
  std::error_code ignored;
  if (!is_adapter_folder(a.path)) {
    // A run that goes on has all in its own checkpoint.
    if (a.rank > 0 && !fs::exists(file, ignored)) return {};
    return error("adapter.path = {}: it is no adapter's folder, which has {} and {}", a.path,
                 kAdapterConfigName, kAdapterName);
  }
  SLUICE_ASSIGN(const std::string text, read_file(file, kMostConfigBytes));
  const Status read = read_adapter(config, text);
  if (!read.ok()) return error_at(file.string(), read.error());
  if (!a.base.empty()) {
    m.path = model_folder(std::exchange(a.base, "")).string();
  } else if (m.path.empty() && m.weights.empty()) {
    SLUICE_ASSIGN(const fs::path base, base_of_adapter(a.path, ""));
    m.path = base.string();
  }
  return {};
}

// Texts of tokens that tokenizer.json of the model adds become their ids; all else stays.
Status name_tokens(RunConfig& config) {
  std::map<std::string, std::string> ids;
  const fs::path file = fs::path(config.model.path) / "tokenizer.json";
  std::error_code ignored;
  for (std::vector<std::string>* tokens : {&config.adapter.tokens, &config.adapter.head_tokens}) {
    for (std::string& token : *tokens) {
      if (token.find_first_not_of("0123456789") == token.npos || !fs::exists(file, ignored)) continue;
      if (ids.empty()) {
        SLUICE_ASSIGN(const std::string text, read_file(file));
        const auto parsed = nlohmann::json::parse(text, nullptr, false);
        if (!parsed.is_object()) return error("{}: it is no JSON object", file.string());
        for (const auto& added : parsed.value("added_tokens", nlohmann::json::array())) {
          if (added.is_object() && added.contains("content") && added.contains("id"))
            ids[added["content"].is_string() ? added["content"].get<std::string>() : ""] = added["id"].dump();
        }
      }
      if (const auto known = ids.find(token); known != ids.end()) token = known->second;
    }
  }
  return {};
}

// From here on the parts of the model that no key of their own names are named.
Status name_parts(RunConfig& config) {
  auto& m = config.model;
  if (!m.path.empty() && m.preset != ModelKeys().preset)
    return error("model.preset = {}: model.path = {} names another model; leave one of them out", m.preset,
                 m.path);
  for (std::string* part : {&m.path, &m.config, &m.weights}) {
    if (!part->empty()) *part = model_folder(*part).string();
  }
  SLUICE_TRY(name_adapter(config));
  SLUICE_TRY(name_tokens(config));
  if (m.config.empty()) m.config = m.path;
  if (is_config_file(m.path)) {
    if (m.weights.empty())
      config.notices.push_back(
          fmt::format("model.path = {}: a config.json alone, so the weights are random", m.path));
  } else if (m.weights.empty()) {
    m.weights = m.path;
  }
  return {};
}

}  // namespace

Result<fs::path> base_of_adapter(const fs::path& adapter, const std::string& named) {
  if (!named.empty()) return model_folder(named);
  const fs::path file = adapter / kAdapterConfigName;
  SLUICE_ASSIGN(const std::string text, read_file(file, kMostConfigBytes));
  const auto config = parse_adapter_config(text);
  if (!config.ok()) return error_at(file.string(), config.error());
  std::error_code ignored;
  const fs::path& base = config->base;
  for (const fs::path& place : {base, adapter / base}) {
    if (!base.empty() && fs::is_directory(place, ignored))
      return fs::absolute(place, ignored).lexically_normal();
  }
  if (const auto kept = find_in_hub_cache(config->base, HubKind::Model)) return *kept;
  return error(
      ErrorKind::NotFound,
      "{}: base_model_name_or_path = {}: no folder of that name is there, and none in the Hugging Face "
      "cache; adapter.base (--base) names it",
      file.string(), config->base);
}

namespace {

// Whatever else is given in a configuration's place is told what takes it.
Result<Settings> read_configuration(const std::string& path) {
  constexpr std::string_view kWanted =
      "what is given here is a configuration (TOML), whose model.path may name a model's folder, and "
      "data.paths one of data";
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return error("{}: a folder; {}", path, kWanted);
  const std::vector<std::string> presets = model_presets();
  if (!fs::exists(path, ignored) && std::ranges::find(presets, path) != presets.end())
    return error("{}: a preset, which --set model.preset={} names; {}", path, path, kWanted);
  auto file = read_toml(path);
  if (file.ok() || !fs::exists(path, ignored) || fs::path(path).extension() == ".toml") return file;
  return error("{}; {}", file.message(), kWanted);
}

}  // namespace

Result<RunConfig> load_config(const std::string& path, const std::vector<std::string>& settings,
                              RunConfig config) {
  if (!path.empty()) {
    SLUICE_ASSIGN(const Settings file, read_configuration(path));
    const Place place{absolute(path).parent_path(), "in " + path};
    for (const auto& [name, setting] : file) {
      const Status status = apply_setting(config, name, setting, read_from(place));
      if (!status.ok()) return error_at(fmt::format("{}:{}", path, setting.line), status.error());
    }
  }
  const Place here{absolute("."), "in the working directory"};
  for (const std::string& text : settings) SLUICE_TRY(apply_typed(config, text, read_from(here)));
  name_preset(config);
  SLUICE_TRY(name_parts(config));
  SLUICE_TRY(check_config(config));
  return config;
}

std::string inputs_text(RunConfig config) {
  config.run.dir.clear();
  config.data.cache.clear();
  return to_toml(config);
}

std::string to_toml(const RunConfig& config) {
  return to_toml(config, [](const std::string& path) { return absolute(path).string(); });
}

}  // namespace sluice::core
