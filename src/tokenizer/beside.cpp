// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/beside.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/file.h"
#include "text/json.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kExtraBefore = "additional_special_tokens";  // as transformers 4 calls it
constexpr const char* kOfModel = "model_specific_special_tokens";

// The first and the last token of transformers' classes of tokenizers that have some of their own.
// `spaces`: texts begin with a space where add_prefix_space says so, whatever tokenizer.json has.
struct ClassTokens {
  std::string_view name;
  const char *bos, *eos;  // null: none
  bool spaces = true;
};
constexpr ClassTokens kClasses[] = {
    {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>"},         {"Qwen2Tokenizer", nullptr, "<|endoftext|>"},
    {"GPTNeoXTokenizer", "<|endoftext|>", "<|endoftext|>"},      {"GemmaTokenizer", "<bos>", "<eos>", false},
    {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
};
// By model_type, where tokenizer_config.json names no class; `always`: whatever it names.
struct ClassOfType {
  std::string_view type, name;
  bool always = false;
};
constexpr ClassOfType kClassesOfTypes[] = {
    {"gpt2", "GPT2Tokenizer"},
    {"starcoder2", "GPT2Tokenizer"},
    {"gpt_neox", "GPTNeoXTokenizer"},
    {"olmo", "GPTNeoXTokenizer"},
    {"olmoe", "GPTNeoXTokenizer"},
    {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"gemma3", "GemmaTokenizer"},
    {"cohere2", "CohereTokenizer"},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen3", "Qwen2Tokenizer", true},
    {"qwen2_moe", "Qwen2Tokenizer", true},
    {"qwen3_moe", "Qwen2Tokenizer", true},
    {"mistral", "", true},
    {"mistral3", "", true},
    {"ministral3", "", true},
    {"mixtral", "", true},
};

// An object; one without keys where there is no such file.
Result<json> object_in(const fs::path& path) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return json::object();
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostBytes));
  auto out = parse_json(text);
  if (!out.ok()) return error_at(path.string(), out.error());
  if (!out->is_object()) return error("{}: not a JSON object", path.string());
  return out;
}

std::string text_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// "<s>", or an object of that content with its marks. `special`: what a text alone is.
Result<AddedToken> token_of(const json& value, bool special, std::string_view place) {
  AddedToken token;
  token.special = special;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    token.normalized = !special;
    return token;
  }
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (!value.is_object() || content == value.end() || !content->is_string())
    return error("{}: {}; allowed are a text, and an object that has one as \"content\"", place,
                 value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60));
  token.content = content->get<std::string>();
  const auto mark = [&](const char* key, bool missing) {
    const auto it = value.find(key);
    return it != value.end() && it->is_boolean() ? it->get<bool>() : missing;
  };
  token.special = mark("special", special);
  token.single_word = mark("single_word", false);
  token.lstrip = mark("lstrip", false);
  token.rstrip = mark("rstrip", false);
  token.normalized = mark("normalized", !token.special);
  return token;
}

// Under either name, the new one first.
const json* extra_of(const json& object) {
  for (const char* key : {kExtra, kExtraBefore}) {
    const auto it = object.find(key);
    if (it != object.end() && !it->empty()) return &*it;
  }
  return nullptr;
}

class Reading {
 public:
  Status read(const fs::path& folder) {
    const fs::path path = folder / "tokenizer_config.json";
    SLUICE_ASSIGN(config_, object_in(path));
    const auto listed = config_.find("added_tokens_decoder");
    const bool lists = listed != config_.end() && listed->is_object();
    if (!lists) SLUICE_TRY(take_map(folder / "special_tokens_map.json"));
    const Status named = read_named();
    if (!named.ok()) return error_at(path.string(), named.error());
    if (lists) {
      std::vector<std::pair<std::string, json>> by_number;
      for (const auto& [number, value] : listed->items()) by_number.emplace_back(number, value);
      const Status read = add_by_number(by_number);
      if (!read.ok()) return error_at(path.string(), read.error());
    } else {
      SLUICE_TRY(add_from(folder / "added_tokens.json"));
    }
    return take_class(folder);
  }

  BesideTokenizer take() { return std::move(out_); }

 private:
  // Its keys win over the configuration.
  Status take_map(const fs::path& path) {
    SLUICE_ASSIGN(const json map, object_in(path));
    for (const auto& [key, value] : map.items()) config_[key] = value;
    return {};
  }

  Status read_named() {
    for (const char* key : kNamed) SLUICE_TRY(add_named(key));
    for (const auto& [key, value] : config_.items()) {
      const bool usual = std::find(std::begin(kNamed), std::end(kNamed), key) != std::end(kNamed);
      if (!usual && key.ends_with("_token") && value.is_string()) SLUICE_TRY(add_named(key));
    }
    if (config_.value("split_special_tokens", json()) == true)
      return error(
          "split_special_tokens is true: special tokens of text would be cut into pieces, which Sluice "
          "does not do; write false");
    const auto& config = config_;
    const auto of_model = config.find(kOfModel);
    for (const json* const extra : {extra_of(config_), of_model == config.end() ? nullptr : &*of_model}) {
      if (extra == nullptr || (!extra->is_array() && !extra->is_object())) continue;
      for (const json& value : *extra) {
        SLUICE_ASSIGN(AddedToken token,
                      token_of(value, true, extra == extra_of(config_) ? kExtra : kOfModel));
        out_.named.push_back(std::move(token));
      }
    }
    return {};
  }

  Status add_named(const std::string& key) {
    const auto it = config_.find(key);
    if (it == config_.end() || it->is_null()) return {};
    SLUICE_ASSIGN(AddedToken token, token_of(*it, true, key));
    token.special = true;
    out_.special[key] = token.content;
    out_.named.push_back(std::move(token));
    return {};
  }

  bool is_named(std::string_view content) const {
    return std::any_of(out_.named.begin(), out_.named.end(),
                       [&](const AddedToken& token) { return token.content == content; });
  }

  // Those of {"32000": {"content": "<x>", ...}}, by their numbers.
  Status add_by_number(std::vector<std::pair<std::string, json>>& tokens) {
    const auto number = [](const std::string& text) {
      int64_t out = 0;
      std::from_chars(text.data(), text.data() + text.size(), out);
      return out;
    };
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](const auto& a, const auto& b) { return number(a.first) < number(b.first); });
    for (const auto& [text, value] : tokens) {
      SLUICE_ASSIGN(AddedToken token, token_of(value, false, "added_tokens_decoder." + text));
      out_.added.push_back(std::move(token));
    }
    return {};
  }

  // Those of {"<x>": 32000}: special are those that are named.
  Status add_from(const fs::path& path) {
    SLUICE_ASSIGN(const json listed, object_in(path));
    std::vector<std::pair<int64_t, std::string>> by_number;
    for (const auto& [token, number] : listed.items()) {
      if (!number.is_number_integer())
        return error("{}: '{}' has {}; allowed are numbers of tokens", path.string(), token,
                     number.type_name());
      by_number.emplace_back(number.get<int64_t>(), token);
    }
    std::sort(by_number.begin(), by_number.end());
    for (const auto& [number, content] : by_number) {
      SLUICE_ASSIGN(AddedToken token, token_of(json(content), is_named(content), path.string()));
      out_.added.push_back(std::move(token));
    }
    return {};
  }

  Status take_class(const fs::path& folder) {
    std::string name = text_of(config_, "tokenizer_class");
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    SLUICE_ASSIGN(const json model, object_in(folder / "config.json"));
    const std::string type = text_of(model, "model_type");
    for (const ClassOfType& of : kClassesOfTypes) {
      if (of.type == type && (of.always || name.empty())) name = of.name;
    }
    for (const ClassTokens& own : kClasses) {
      if (own.name != name) continue;
      if (own.spaces) out_.prefix_space = config_.value("add_prefix_space", json()) == true;
      for (const auto& [key, token] : {std::pair{"bos_token", own.bos}, {"eos_token", own.eos}}) {
        if (token != nullptr && !config_.contains(key)) out_.special[key] = token;
      }
    }
    return {};
  }

  json config_;
  BesideTokenizer out_;
};

}  // namespace

Result<BesideTokenizer> read_beside_tokenizer(const fs::path& folder) {
  Reading reading;
  SLUICE_TRY(reading.read(folder));
  return reading.take();
}

}  // namespace sluice::core
