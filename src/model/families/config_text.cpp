// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "model/families/families.h"

namespace sluice::core {
namespace {

using Json = nlohmann::ordered_json;

// Versions 4 and 5 of transformers call it by one of these each, and read both.
constexpr const char* kTypeKeys[] = {"torch_dtype", "dtype"};
std::string with_type(const std::string& text, std::string_view type) {
  Json root = Json::parse(text, nullptr, false);
  bool named = false, changed = false;
  for (const char* key : kTypeKeys) {
    const auto at = root.find(key);
    if (at == root.end() || at->is_null()) continue;
    named = true;
    if (*at == type) continue;
    *at = type;
    changed = true;
  }
  // Written weights have that type, whatever was read.
  const auto quantized = root.find("quantization_config");
  if (quantized != root.end() && !quantized->is_null()) {
    root.erase(quantized);
    changed = true;
  }
  if (!named) {
    root[kTypeKeys[0]] = type;
    changed = true;
  }
  // Byte for byte where there is nothing to say.
  return changed ? root.dump(2) + "\n" : text;
}

}  // namespace

std::string config_beside_weights(const ModelSpec& spec, std::string_view type, int64_t context) {
  if (!spec.config.empty()) return with_type(spec.config, type);
  nlohmann::json root = nlohmann::json::parse(to_json(spec));
  root["attention_dropout"] = 0.0;
  root["initializer_range"] = 0.02;
  root["max_position_embeddings"] = context;
  root["use_cache"] = true;
  // Left out, these would be the tokens 1 and 2.
  root["bos_token_id"] = nullptr;
  root["eos_token_id"] = nullptr;
  root[kTypeKeys[0]] = type;
  return root.dump(2) + "\n";
}

}  // namespace sluice::core
