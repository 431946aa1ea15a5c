// SPDX-License-Identifier: Apache-2.0
#include "run/loaded/folder_defaults.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/model_folder.h"
#include "model/families/families.h"

namespace sluice::core {
namespace fs = std::filesystem;

Result<GenerationDefaults> generation_defaults_of(const fs::path& folder, const fs::path& base) {
  std::string config, generation;
  std::error_code ignored;
  for (const auto& [name, text] :
       {std::pair{"config.json", &config}, {"generation_config.json", &generation}}) {
    const fs::path& place = base.empty() || fs::exists(folder / name, ignored) ? folder : base;
    if (!fs::exists(place / name, ignored)) continue;
    SLUICE_ASSIGN(*text, read_file(place / name, kMostConfigBytes));
  }
  if (wraps_text(config)) {
    auto part = parse_model_config(config);
    if (!part.ok()) return error_at((folder / "config.json").string(), part.error());
    config = std::move(part->config);
  }
  auto defaults = parse_generation_defaults(config, generation);
  if (!defaults.ok()) return error_at(folder.string(), defaults.error());
  return defaults;
}

std::string no_end_of_folder(const fs::path& folder, const GenerationDefaults& defaults, int32_t end,
                             const Tokenizer& tokenizer) {
  const auto& ends = defaults.stop_tokens;
  if (end < 0 || std::find(ends.begin(), ends.end(), end) != ends.end()) return {};
  return fmt::format(
      "answers end with {} (token {}), which is no end token of {} ({}): checkpoints have it in "
      "generation_config.json, where generate, transformers and vLLM stop at it",
      tokenizer.token(end).value_or(""), end, folder.string(),
      ends.empty() ? "no eos_token_id" : fmt::format("eos_token_id {}", fmt::join(ends, ", ")));
}

Result<std::string> generation_config_with(const fs::path& folder, const GenerationDefaults& defaults,
                                           int32_t end) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  std::error_code ignored;
  const fs::path path = folder / "generation_config.json";
  if (fs::exists(path, ignored)) {
    SLUICE_ASSIGN(const std::string text, read_file(path, kMostConfigBytes));
    config = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!config.is_object()) return error("{} is no JSON object", path.string());
  }
  std::vector<int32_t> ends = defaults.stop_tokens;
  ends.push_back(end);
  config["eos_token_id"] = ends;
  return config.dump(2) + "\n";
}

}  // namespace sluice::core
