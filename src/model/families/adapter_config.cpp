// SPDX-License-Identifier: Apache-2.0
#include "model/families/adapter_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "model/weights.h"
#include "text/json.h"

namespace sluice::core {
namespace {

using Json = nlohmann::ordered_json;

// Fields that say nothing about the arithmetic, or that follow from the base.
constexpr std::string_view kNoMatter[] = {"auto_mapping",   "peft_version",      "revision",
                                          "inference_mode", "fan_in_fan_out",    "layers_pattern",
                                          "megatron_core",  "qalora_group_size", "eva_config"};
// How A and B begin; the others also change the base.
constexpr std::string_view kBeginnings[] = {"gaussian", "orthogonal", "eva"};

constexpr double kMostDropout = 0.99;  // as the key takes

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_empty(const Json& value) {
  return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

// Text that is a name in PEFT's patterns and here, and no expression of either.
bool is_plain(std::string_view name) {
  return !name.empty() && name.find_first_of("*?[](){}|+^$\\!=,") == name.npos;
}

Error not_followed(std::string_view key, const Json& value, std::string_view instead) {
  return error("{} = {}: {}", key, value.dump(), instead);
}

// Names of modules, or one; a word stands for a list of none.
Status read_names(std::string_view key, const Json& value, std::string_view all,
                  std::vector<std::string>& out) {
  constexpr std::string_view kAllowed = "a list of names is allowed, without expressions";
  if (is_empty(value) || (!all.empty() && value == all)) return {};
  if (value.is_string()) {
    out = {value.get<std::string>()};
  } else if (value.is_array() &&
             std::all_of(value.begin(), value.end(), [](auto& v) { return v.is_string(); })) {
    out = value.get<std::vector<std::string>>();
  } else {
    return not_followed(key, value, kAllowed);
  }
  for (const std::string& name : out) {
    if (!is_plain(name)) return not_followed(key, value, kAllowed);
  }
  return {};
}

// The first that names a module decides there, the last here.
Status read_others(std::string_view key, const Json& value, std::vector<Adapters::Other>& out) {
  constexpr std::string_view kAllowed = "an object of names and positive numbers is allowed";
  if (is_empty(value)) return {};
  if (!value.is_object()) return not_followed(key, value, kAllowed);
  for (const auto& [name, number] : value.items()) {
    const std::string plain = name.starts_with('^') ? name.substr(1) : name;
    if (!is_plain(plain) || !number.is_number() || !(number.get<double>() > 0))
      return not_followed(key, value, kAllowed);
    out.insert(out.begin(), {plain, number.get<double>()});
  }
  return {};
}

Status read_token_list(std::string_view key, const Json& value, std::vector<int64_t>& out) {
  const bool good = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& id) {
                      return id.is_number_integer() && id.get<int64_t>() >= 0;
                    });
  if (!good) return not_followed(key, value, "lists of ids of tokens are allowed, by module or alone");
  out = value.get<std::vector<int64_t>>();
  return {};
}

// The names of embeddings and heads in the classes of transformers.
constexpr std::string_view kEmbeddings[] = {"embed_tokens", "embed_in", "wte"}, kHeads[] = {"lm_head"};

// A list is of the embedding; an object has lists by the names of modules.
Status read_tokens(std::string_view key, const Json& value, Adapters& out) {
  if (is_empty(value)) return {};
  if (!value.is_object()) return read_token_list(key, value, out.tokens);
  for (const auto& [module, tokens] : value.items()) {
    const std::string name = module.substr(module.rfind('.') + 1);
    const bool embeds = is_one_of(kEmbeddings, name);
    if (!embeds && !is_one_of(kHeads, name))
      return not_followed(key, value, "rows of the embedding and of the head alone are followed");
    SLUICE_TRY(read_token_list(key, tokens, embeds ? out.tokens : out.head_tokens));
  }
  return {};
}

Status read_field(const std::string& key, const Json& value, AdapterConfig& out) {
  Adapters& a = out.adapters;
  const auto number = [&](auto& field, double least, double most = 1e6) {
    using Field = std::decay_t<decltype(field)>;
    const bool good = (std::is_integral_v<Field> ? value.is_number_integer() : value.is_number()) &&
                      value.get<double>() >= least && value.get<double>() <= most;
    if (good) field = value.get<Field>();
    return good ? Status()
                : not_followed(key, value, fmt::format("numbers from {} to {} are allowed", least, most));
  };
  if (key == "r") return number(a.rank, 1);
  if (key == "lora_alpha") return number(a.alpha, 0);
  if (key == "use_rslora") {
    a.rslora = value == true;
    return {};
  }
  if (key == "use_dora") {
    a.dora = value == true;
    return {};
  }
  if (key == "target_modules") return read_names(key, value, "all-linear", a.targets);
  if (key == "exclude_modules") return read_names(key, value, "", a.exclude);
  if (key == "modules_to_save") return read_names(key, value, "", a.whole);
  if (key == "trainable_token_indices") return read_tokens(key, value, a);
  if (key == "rank_pattern") return read_others(key, value, a.ranks);
  if (key == "alpha_pattern") return read_others(key, value, a.alphas);
  if (key == "base_model_name_or_path") {
    if (value.is_string()) out.base = value.get<std::string>();
    return {};
  }
  if (key == "peft_type")
    return value == "LORA" ? Status() : not_followed(key, value, "LORA alone is followed");
  if (key == "task_type")
    return value.is_null() || value == "CAUSAL_LM" ? Status()
                                                   : not_followed(key, value, "CAUSAL_LM is allowed");
  if (key == "bias") return value == "none" ? Status() : not_followed(key, value, "none is allowed");
  if (key == "init_lora_weights") {
    const bool fine = value.is_boolean() ||
                      (value.is_string() && is_one_of(kBeginnings, value.get_ref<const std::string&>()));
    return fine ? Status() : not_followed(key, value, "it changes the base's own weights");
  }
  if (key == "lora_dropout") return is_empty(value) ? Status() : number(a.dropout, 0, kMostDropout);
  if (is_empty(value) || is_one_of(kNoMatter, key)) return {};
  return not_followed(key, value, "it is not followed");
}

}  // namespace

Result<AdapterConfig> parse_adapter_config(std::string_view json) {
  SLUICE_TRY(parse_json(json));
  const Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_object()) return error("it is no JSON object");
  AdapterConfig out;
  out.adapters.rank = out.adapters.alpha = 8;  // as PEFT has it
  for (const auto& [key, value] : parsed.items()) SLUICE_TRY(read_field(key, value, out));
  if (!parsed.contains("peft_type")) return error("it has no peft_type, which is LORA");
  return out;
}

std::string adapter_config(const ModelSpec& spec, std::string_view base, bool experts_in_one) {
  const Adapters& a = spec.adapters;
  // Ends of names, if they stand for these alone, or else the names: of a model within another these.
  std::set<std::string> adapted, others, whole;
  std::map<std::string, AdapterOf> of;
  std::set<std::string> parameters;
  Json ranks = Json::object(), alphas = Json::object();
  for (const Weight& weight : weights_of(spec)) {
    if (weight.part == ModelPart::Adapter) {
      // B of experts: gate and up have one there, of both ranks.
      if (!experts_in_one || !weight.adds || !is_of_experts(spec, weight)) continue;
      const bool down = weight.role.starts_with("wd");
      const std::string name =
          fmt::format("{}.{}", spec.names.experts, down ? spec.names.down_in_one : spec.names.gate_up_in_one);
      const auto rank = double(weight.adds->sizes.inner());
      parameters.insert(name);
      ranks[name] = weight.adds->sizes.inner();
      alphas[name] = weight.adds->scale * (a.rslora ? std::sqrt(rank) : rank);
      continue;
    }
    if (experts_in_one && weight.part == ModelPart::Experts) continue;
    for (const WeightSource& source : weight.sources) {
      const std::string module = module_of(spec, source.tensor.substr(0, source.tensor.rfind('.')));
      const auto own = adapter_of(spec, weight, source.tensor);
      if (own) of.emplace(module, *own);
      if (weight.trainable && weight.learnt.empty()) whole.insert(module);
      if (weight.matrix) (own ? adapted : others).insert(module);
    }
  }
  // The end of an expert's says that it is one.
  const auto end_of = [](const std::string& name) {
    const size_t expert = name.rfind(".experts.");
    return name.substr((expert == name.npos ? name.rfind('.') : expert) + 1);
  };
  std::set<std::string> targets;
  for (const std::string& name : adapted) {
    const bool alone = spec.text_module.empty() &&
                       std::none_of(others.begin(), others.end(),
                                    [&](const std::string& other) { return end_of(other) == end_of(name); });
    targets.insert(alone ? end_of(name) : name);
  }
  Json tokens;
  if (!a.head_tokens.empty()) {
    tokens = {{end_of(spec.names.head), a.head_tokens}};
    if (!a.tokens.empty()) tokens[end_of(spec.names.embedding)] = a.tokens;
  } else if (!a.tokens.empty()) {
    tokens = a.tokens;
  }
  for (const auto& [name, own] : of) {
    if (own.rank != a.rank) ranks[name] = own.rank;
    if (own.alpha != a.alpha) alphas[name] = own.alpha;
  }
  const Json out = {{"peft_type", "LORA"},
                    {"task_type", "CAUSAL_LM"},
                    {"base_model_name_or_path", base},
                    {"inference_mode", true},
                    {"r", a.rank},
                    {"lora_alpha", a.alpha},
                    {"use_rslora", a.rslora},
                    {"use_dora", a.dora},
                    {"lora_dropout", a.dropout},
                    {"bias", "none"},
                    {"fan_in_fan_out", spec.names.transposed},
                    {"target_modules", targets},
                    {"target_parameters", parameters.empty() ? Json() : Json(parameters)},
                    {"modules_to_save", whole.empty() ? Json() : Json(whole)},
                    {"trainable_token_indices", tokens},
                    {"rank_pattern", ranks},
                    {"alpha_pattern", alphas}};
  return out.dump(2) + "\n";
}

}  // namespace sluice::core
