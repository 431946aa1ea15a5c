// SPDX-License-Identifier: Apache-2.0
#include "generate/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "text/json.h"

namespace sluice::core {
namespace {

using nlohmann::json;

Result<json> parse(const char* file, std::string_view text) {
  if (text.empty()) return json::object();
  auto value = parse_json(text);
  if (!value.ok()) return error_at(file, value.error());
  if (!value->is_object()) return error("{}: not a JSON object", file);
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

// A text, or a list of them.
Status read_texts(const char* file, const json& from, const char* key, std::vector<std::string>& out) {
  const auto it = from.find(key);
  if (it == from.end() || it->is_null()) return {};
  const json list = it->is_array() ? *it : json::array({*it});
  for (const json& text : list) {
    if (!text.is_string() || text.get<std::string>().empty())
      return wrong(file, key, *it, "a text, or a list of some");
    out.push_back(text.get<std::string>());
  }
  return {};
}

// Keys of transformers' GenerationConfig that are read here, and those that change no text.
constexpr std::string_view kKnown =
    " eos_token_id stop_strings max_new_tokens max_length repetition_penalty suppress_tokens do_sample "
    "temperature top_k top_p min_p bos_token_id pad_token_id decoder_start_token_id transformers_version "
    "use_cache cache_implementation cache_config return_legacy_cache renormalize_logits "
    "remove_invalid_values diversity_penalty length_penalty early_stopping low_memory output_attentions "
    "output_hidden_states output_scores output_logits return_dict_in_generate is_assistant "
    "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
    "prompt_lookup_num_tokens max_matching_ngram_size assistant_early_exit assistant_lookbehind "
    "target_lookbehind compile_config disable_compile generation_kwargs trust_remote_code "
    "use_model_defaults prefill_chunk_size chat_format max_window_size continuous_batching_config "
    "custom_generate num_assistant_tokens_per_step ";

// Settings of transformers' generate() that Sluice lacks, with the value that changes nothing; if that is
// null, only null. The last ones matter only where tokens are drawn.
struct Foreign {
  const char* key;
  json neutral;
  bool draws = false;
};
const std::vector<Foreign>& foreign_keys() {
  static const std::vector<Foreign> kForeign = {{"num_beams", 1},
                                                {"num_beam_groups", 1},
                                                {"penalty_alpha", 0},
                                                {"dola_layers", nullptr},
                                                {"no_repeat_ngram_size", 0},
                                                {"encoder_no_repeat_ngram_size", 0},
                                                {"encoder_repetition_penalty", 1},
                                                {"bad_words_ids", nullptr},
                                                {"force_words_ids", nullptr},
                                                {"constraints", nullptr},
                                                {"sequence_bias", nullptr},
                                                {"begin_suppress_tokens", nullptr},
                                                {"forced_bos_token_id", nullptr},
                                                {"forced_eos_token_id", nullptr},
                                                {"forced_decoder_ids", nullptr},
                                                {"exponential_decay_length_penalty", nullptr},
                                                {"min_length", 0},
                                                {"min_new_tokens", 0},
                                                {"max_time", nullptr},
                                                {"guidance_scale", 1},
                                                {"watermarking_config", nullptr},
                                                {"num_return_sequences", 1},
                                                {"token_healing", false},
                                                {"typical_p", 1, true},
                                                {"epsilon_cutoff", 0, true},
                                                {"eta_cutoff", 0, true},
                                                {"top_h", nullptr, true}};
  return kForeign;
}

// Such as a slip, or another program's.
std::string unknown_keys(const json& from) {
  std::string list;
  for (const auto& [key, value] : from.items()) {
    const auto& foreign = foreign_keys();
    const bool known =
        key.starts_with('_') || kKnown.find(fmt::format(" {} ", key)) != kKnown.npos ||
        std::any_of(foreign.begin(), foreign.end(), [&](const auto& f) { return key == f.key; });
    if (!known) list += (list.empty() ? "" : ", ") + key;
  }
  return list;
}

std::vector<std::pair<std::string, std::string>> not_done(const json& from) {
  const bool draws = from.contains("do_sample") && from["do_sample"] == true;
  std::vector<std::pair<std::string, std::string>> out;
  for (const Foreign& f : foreign_keys()) {
    const auto it = from.find(f.key);
    const bool says =
        it != from.end() && !it->is_null() && *it != f.neutral && !(it->is_array() && it->empty());
    if (!says || (f.draws && !draws)) continue;
    out.emplace_back(f.key, it->dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60));
  }
  return out;
}

Status read_rule(const char* file, const json& from, SamplingRule& rule) {
  SLUICE_TRY(read(file, from, "repetition_penalty", rule.repetition_penalty));
  SLUICE_TRY(read_tokens(file, from, "suppress_tokens", rule.left_out));
  if (const auto it = from.find("do_sample"); it == from.end() || *it != true) return {};
  rule.temperature = 1;
  rule.top_k = 50;
  SLUICE_TRY(read(file, from, "temperature", rule.temperature));
  SLUICE_TRY(read(file, from, "top_k", rule.top_k));
  SLUICE_TRY(read(file, from, "top_p", rule.top_p));
  SLUICE_TRY(read(file, from, "min_p", rule.min_p));
  return {};
}

}  // namespace

Result<GenerationDefaults> parse_generation_defaults(std::string_view config,
                                                     std::string_view generation_config) {
  constexpr const char *kConfig = "config.json", *kGeneration = "generation_config.json";
  SLUICE_ASSIGN(const json model, parse(kConfig, config));
  SLUICE_ASSIGN(const json own, parse(kGeneration, generation_config));
  GenerationDefaults out;
  SLUICE_TRY(read_tokens(kConfig, model, "eos_token_id", out.stop_tokens));
  SLUICE_TRY(read_tokens(kGeneration, own, "eos_token_id", out.stop_tokens));
  SLUICE_TRY(read_texts(kGeneration, own, "stop_strings", out.stop_strings));
  const std::pair<const char*, std::optional<int64_t>*> lengths[] = {{"max_new_tokens", &out.new_tokens},
                                                                     {"max_length", &out.length}};
  for (const auto& [key, length] : lengths) {
    if (!own.contains(key) || own[key].is_null()) continue;
    int64_t tokens = 0;
    SLUICE_TRY(read(kGeneration, own, key, tokens));
    if (tokens < 1) return wrong(kGeneration, key, own[key], "whole numbers from 1");
    *length = tokens;
  }
  out.not_done = not_done(own);
  if (const std::string strange = unknown_keys(own); !strange.empty())
    out.passed_over =
        fmt::format("generation_config.json has keys that transformers does not know either: {}", strange);
  SLUICE_TRY(read_rule(kGeneration, own, out.rule));
  const Status valid = validate(out.rule, RuleNames::Keys);
  if (!valid.ok()) return error_at(kGeneration, valid.error());
  return out;
}

}  // namespace sluice::core
