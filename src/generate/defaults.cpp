// SPDX-License-Identifier: Apache-2.0
#include "generate/defaults.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::core {
namespace {

using nlohmann::json;

Result<json> parse(const char* file, std::string_view text) {
  if (text.empty()) return json::object();
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return error("{}: not a JSON object", file);
  return value;
}

Error wrong(const char* file, const char* key, const json& value, const char* allowed) {
  return error("{}: {} = {}; allowed are {}", file, key,
               value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60), allowed);
}

// A key that is not there, or null, leaves `out` as it is.
Status read(const char* file, const json& from, const char* key, double& out) {
  const auto it = from.find(key);
  if (it == from.end() || it->is_null()) return {};
  if (!it->is_number()) return wrong(file, key, *it, "numbers");
  out = it->get<double>();
  return {};
}

Status read(const char* file, const json& from, const char* key, int64_t& out) {
  double number = double(out);
  SLUICE_TRY(read(file, from, key, number));
  if (number != std::floor(number) || std::abs(number) > 1e15)
    return wrong(file, key, from[key], "whole numbers");
  out = int64_t(number);
  return {};
}

// A token, or a list of them.
Status read_tokens(const char* file, const json& from, const char* key, std::vector<int32_t>& out) {
  const auto it = from.find(key);
  if (it == from.end() || it->is_null()) return {};
  out.clear();
  const json list = it->is_array() ? *it : json::array({*it});
  for (const json& token : list) {
    if (!token.is_number_integer() || token.get<int64_t>() < -1 || token.get<int64_t>() > INT32_MAX)
      return wrong(file, key, *it, "a token's number, or a list of some");
    if (token.get<int64_t>() >= 0) out.push_back(token.get<int32_t>());
  }
  return {};
}

Status read_rule(const char* file, const json& from, SamplingRule& rule) {
  SLUICE_TRY(read(file, from, "repetition_penalty", rule.repetition_penalty));
  if (const auto it = from.find("do_sample"); it == from.end() || *it != true) return {};
  rule.temperature = 1;
  rule.top_k = 50;
  SLUICE_TRY(read(file, from, "temperature", rule.temperature));
  SLUICE_TRY(read(file, from, "top_k", rule.top_k));
  SLUICE_TRY(read(file, from, "top_p", rule.top_p));
  return {};
}

}  // namespace

Result<GenerationDefaults> parse_generation_defaults(std::string_view config, std::string_view generation_config) {
  constexpr const char *kConfig = "config.json", *kGeneration = "generation_config.json";
  SLUICE_ASSIGN(const json model, parse(kConfig, config));
  SLUICE_ASSIGN(const json own, parse(kGeneration, generation_config));
  GenerationDefaults out;
  SLUICE_TRY(read(kConfig, model, "max_position_embeddings", out.context));
  SLUICE_TRY(read_tokens(kConfig, model, "eos_token_id", out.stop_tokens));
  SLUICE_TRY(read_tokens(kGeneration, own, "eos_token_id", out.stop_tokens));
  SLUICE_TRY(read_rule(kGeneration, own, out.rule));
  const Status valid = validate(out.rule);
  if (!valid.ok()) return error_at(kGeneration, valid.error());
  return out;
}

}  // namespace sluice::core
