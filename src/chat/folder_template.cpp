// SPDX-License-Identifier: Apache-2.0
// What a model's folder says of its chat template: the text, its special tokens, and what ends generation.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "chat/texts.h"
#include "io/file.h"
#include "tokenizer/beside.h"

namespace sluice::core {
namespace {

// The text of the template with this name in "chat_template": a string, or a list of {"name", "template"}.
Result<std::string> chosen(const ChatValue& value, std::string_view name) {
  if (value.is_string()) {
    if (!name.empty() && name != "default") return error("it has one chat template, not '{}'", name);
    return value.text;
  }
  std::vector<std::string> names;
  for (const ChatValue& item : value.items) {
    const ChatValue* item_name = item.find("name");
    const ChatValue* text = item.find("template");
    if (item_name == nullptr || text == nullptr || !text->is_string()) continue;
    if (item_name->text == (name.empty() ? "default" : name)) return text->text;
    names.push_back(item_name->text);
  }
  return error("no chat template is called '{}'; there are: {}", name.empty() ? "default" : name,
               fmt::join(names, ", "));
}

constexpr int64_t kMostBytes = int64_t{64} << 20;  // of a file in a model's folder
constexpr std::string_view kConfigName = "tokenizer_config.json";

// Null where there is none.
Result<ChatValue> tokenizer_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kConfigName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return ChatValue{};
  SLUICE_ASSIGN(const std::string json, read_file(path, kMostBytes));
  // Models have some thousand added tokens there.
  auto config = parse_value(json, [](std::string_view key) { return key == "chat_template"; });
  if (!config.ok()) return error_at(path.string(), config.error());
  return config;
}

struct FoundText {
  std::string text, source;
};

// The template that is asked for; nothing: the folder has none.
Result<std::optional<FoundText>> text_in(const std::filesystem::path& folder, std::string_view name) {
  using Found = std::optional<FoundText>;
  std::error_code ignored;
  const auto file = [&](const std::filesystem::path& path) -> Result<Found> {
    SLUICE_ASSIGN(std::string text, read_file(path, kMostBytes));
    return Found({std::move(text), path.string()});
  };
  if (name.ends_with(".jinja")) return file(name);
  const bool named = !name.empty() && name != "default";
  const std::filesystem::path own = folder / "chat_template.jinja", json = folder / "chat_template.json";
  const std::filesystem::path other = folder / "additional_chat_templates" / (std::string(name) + ".jinja");
  SLUICE_ASSIGN(const ChatValue config, tokenizer_config(folder));
  if (!named && std::filesystem::exists(own, ignored)) return file(own);
  if (named && std::filesystem::exists(other, ignored)) return file(other);
  const auto texts = chat_texts();
  const auto known =
      std::find_if(texts.begin(), texts.end(), [&](const ChatText& text) { return text.name == name; });
  const ChatValue* value = config.find("chat_template");
  if (value != nullptr && !value->is_null()) {
    const std::string path = (folder / kConfigName).string();
    auto found = chosen(*value, name);
    if (found.ok()) return Found({std::move(*found), path});
    if (known == texts.end()) return error_at(path, found.error());
  }
  if (known != texts.end()) return Found({std::string(known->text), "Sluice"});
  if (!std::filesystem::exists(json, ignored)) return Found();
  SLUICE_ASSIGN(const std::string content, read_file(json, kMostBytes));
  const auto parsed = parse_value(content);
  if (!parsed.ok()) return error_at(json.string(), parsed.error());
  const ChatValue* text = parsed->find("chat_template");
  if (text == nullptr) return error("{}: it has no chat_template", json.string());
  auto found = chosen(*text, name);
  if (!found.ok()) return error_at(json.string(), found.error());
  return Found({std::move(*found), json.string()});
}

// Tokens that end generation by generation_config.json, by the names in tokenizer.json that they have.
std::vector<std::string> stops_of(const std::filesystem::path& folder) {
  std::vector<std::string> stops;
  const auto read = [&](std::string_view file, std::string_view key) {
    const auto text = read_file(folder / file, kMostBytes);
    auto value = text.ok() ? parse_value(*text, [&](std::string_view k) { return k == key; })
                           : Result<ChatValue>(text.error());
    const ChatValue* found = value.ok() ? value->find(key) : nullptr;
    return found == nullptr ? ChatValue() : *found;
  };
  const ChatValue ids = read("generation_config.json", "eos_token_id");
  if (ids.is_null()) return stops;
  for (const ChatValue& token : read("tokenizer.json", "added_tokens").items) {
    const ChatValue *id = token.find("id"), *content = token.find("content");
    if (id == nullptr || content == nullptr) continue;
    const auto same = [&](const ChatValue& stop) { return stop.text == id->text; };
    if (same(ids) || std::any_of(ids.items.begin(), ids.items.end(), same)) stops.push_back(content->text);
  }
  return stops;
}

}  // namespace

Result<ChatSettings> special_tokens_of(const std::filesystem::path& folder) {
  SLUICE_ASSIGN(const BesideTokenizer beside, read_beside_tokenizer(folder));
  ChatSettings settings;
  for (const auto& [key, token] : beside.special) {
    if (key == "bos_token") {
      settings.bos = token;
    } else if (key == "eos_token") {
      settings.eos = token;
    } else {
      settings.tokens.emplace_back(key, token);
    }
  }
  return settings;
}

Result<ChatTemplate> ChatTemplate::open(const std::filesystem::path& folder, std::string_view name,
                                        std::optional<ChatDate> date, std::string_view kwargs) {
  SLUICE_ASSIGN(ChatSettings settings, special_tokens_of(folder));
  settings.date = date;
  settings.stops = stops_of(folder);
  if (!kwargs.empty()) {
    auto parsed = parse_value(kwargs);
    if (!parsed.ok()) return error_at("data.template_kwargs", parsed.error());
    settings.kwargs = std::move(*parsed);
  }
  SLUICE_ASSIGN(const std::optional<FoundText> found, text_in(folder, name));
  if (!found) {
    Error none = error(
        "{}: neither chat_template.jinja nor a chat_template in tokenizer_config.json; data.chat_template{} "
        "takes {}, or a file that ends in .jinja",
        folder.string(), name.empty() ? "" : fmt::format(" = {}: it", name),
        fmt::join(chat_template_names(), ", "));
    none.details.emplace_back("template", "none");
    return none;
  }
  if (found->text.starts_with("\xEF\xBB\xBF"))
    return error(
        "{}: the template begins with a byte order mark, and so would every prompt; save it as UTF-8 "
        "without one",
        found->source);
  return parse(found->text, std::move(settings), found->source);
}

}  // namespace sluice::core
