// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <algorithm>
#include <charconv>

#include "base/hash.h"
#include "chat/families.h"
#include "chat/normal_form.h"
#include "io/file.h"
#include "tokenizer/beside.h"

namespace sluice::core {
namespace {

constexpr ChatFamily kFamilies[] = {
    {"chatml", render_chatml, false, false, {0xa9a881ba4f2005f4}},
    {"smollm2", render_smollm2, false, false, {0xac558d2856b151c4}},
    {"smollm3", render_smollm3, false, false, {0x29c26e84338d67e9}, true},
    {"smollm3-short", render_smollm3_short, false, false, {0x235b5c2962b1d156}},
    {"qwen2", render_qwen2, false, false, {0x593a6427eda2c65d}},
    {"qwen2.5", render_qwen2_5, true, true, {0x662130cbd03fee3d, 0x0533aec9bb6cb347}},
    {"qwen3", render_qwen3, true, true, {0xfd857f4718d75300, 0xcd3a6e4f852625d3}},
    {"qwen3-2507", render_qwen3_2507, true, true, {0xae2fe8c5bd230dbb}},
    {"llama3", render_llama3, false, false, {0x61291f4ff133a3e5, 0xecfef27e387c0670, 0xd23da5127f632f2c}},
    {"llama3.1", render_llama3_1, true, true, {0x73bd65be3ae8ffcd}, true},
    {"llama3.2", render_llama3_2, true, true, {0xda05cc37363a6f1f}, true},
    {"mistral-first", render_mistral_first, false, false, {0xaf7d11c87cf4b42d}},
    {"mistral-v1", render_mistral_v1, false, false, {0xa1f4cf7c9912e377, 0x8fb3be131c18dc14}},
    {"mistral-v3", render_mistral_v3, true, true, {0x813b5f68fabf84f7, 0xffa346cece52363b}},
    {"mistral-nemo", render_mistral_nemo, true, true, {0x5388b1b4991820d7, 0x6c8bb453c6c79ccd}},
    {"gemma", render_gemma, false, false, {0x5315eafc1c7d494a, 0xbdcd7f496a5ed893}},
    {"gemma3", render_gemma3, false, false, {0xec0392858d3c5b5f, 0x7fda72f2e0d0c04f, 0x3ecd7ea3eb1f9365}},
};

Error unknown(std::string_view what) {
  return error(
      ErrorKind::NotFound,
      "{}; built in are {}. For another one, scripts/render_chats renders conversations with "
      "Jinja and writes JSONL with what is to be learnt, or with --prompts for sluice generate --file",
      what, fmt::join(chat_template_names(), ", "));
}

// Messages without what says nothing: keys that are null, lists of no tool calls.
Result<Conversation> plain(const Conversation& conversation) {
  if (conversation.messages.empty()) return error("a conversation without messages");
  Conversation result = conversation;
  for (size_t i = 0; i < result.messages.size(); ++i) {
    ChatValue& message = result.messages[i];
    if (!message.is_object()) return error("messages[{}] is {}, no object", i, message.kind_text());
    std::erase_if(message.members, [](const auto& member) {
      return member.second.is_null() ||
             (member.first == "tool_calls" && member.second.is_array() && member.second.items.empty());
    });
    const ChatValue* role = message.find("role");
    if (role == nullptr || !role->is_string()) return error("messages[{}] has no role", i);
    const ChatValue* calls = message.find("tool_calls");
    if (calls != nullptr && !calls->is_array())
      return error("messages[{}]: tool_calls is {}, no list", i, calls->kind_text());
  }
  if (!result.tools.is_null() && !result.tools.is_array())
    return error("tools is {}, no list", result.tools.kind_text());
  return result;
}

// A turn that only calls tools says nothing, where the template does not show calls.
void say_nothing_beside_calls(Conversation& conversation) {
  for (ChatValue& message : conversation.messages) {
    if (message.find("tool_calls") != nullptr && message.find("content") == nullptr)
      message.members.emplace_back("content", ChatValue::string(""));
  }
}

// Whether what was thought before an answer is nowhere in its turn.
bool lacks_reasoning(const RenderedChat& chat, const Conversation& conversation) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage message(conversation.messages[i], i);
    const ChatValue* reasoning = message.is("assistant") ? message.reasoning() : nullptr;
    const std::string_view thought = reasoning == nullptr ? "" : python_strip(reasoning->text);
    if (thought.empty()) continue;
    const bool shown = std::any_of(chat.pieces.begin(), chat.pieces.end(), [&](const ChatPiece& piece) {
      return piece.message == int32_t(i) && piece.own &&
             std::string_view(chat.text).substr(piece.begin, piece.end - piece.begin).find(thought) !=
                 std::string_view::npos;
    });
    if (!shown) return true;
  }
  return false;
}

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

}  // namespace

std::span<const ChatFamily> chat_families() {
  return kFamilies;
}

std::vector<std::string_view> chat_template_names() {
  std::vector<std::string_view> names;
  for (const ChatFamily& family : kFamilies) names.push_back(family.name);
  return names;
}

Result<ChatDate> ChatDate::parse(std::string_view text) {
  constexpr int kDays[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  ChatDate date;
  const auto number = [&](size_t at, size_t size, int& value) {
    const char* end = text.data() + at + size;
    const auto [stop, failed] = std::from_chars(text.data() + at, end, value);
    return failed == std::errc() && stop == end && text[at] != '-';
  };
  const bool good = text.size() == 10 && text[4] == '-' && text[7] == '-' && number(0, 4, date.year) &&
                    number(5, 2, date.month) && number(8, 2, date.day) && date.month >= 1 &&
                    date.month <= 12 && date.day >= 1 && date.day <= kDays[date.month - 1];
  if (!good) return error("'{}' is no date; dates are written YYYY-MM-DD", text);
  return date;
}

Result<ChatTemplate> ChatTemplate::recognise(std::string_view text, ChatSettings settings) {
  auto form = normal_form_of_template(text);
  if (!form.ok()) return error_at("chat template", form.error());
  const uint64_t hash = Hash().add(*form).value();
  for (const ChatFamily& family : kFamilies) {
    if (std::find(family.texts.begin(), family.texts.end(), hash) != family.texts.end())
      return ChatTemplate(&family, std::move(settings));
  }
  return unknown(fmt::format("this chat template is not known (its normal form is {:016x})", hash));
}

Result<ChatSettings> special_tokens_of(const std::filesystem::path& folder) {
  SLUICE_ASSIGN(const BesideTokenizer beside, read_beside_tokenizer(folder));
  ChatSettings settings;
  for (const auto& [key, token] : {std::pair{"bos_token", &settings.bos}, {"eos_token", &settings.eos}}) {
    if (const auto it = beside.special.find(key); it != beside.special.end()) *token = it->second;
  }
  return settings;
}

Result<ChatTemplate> ChatTemplate::open(const std::filesystem::path& folder, std::string_view name,
                                        std::optional<ChatDate> date) {
  const std::filesystem::path text_path = folder / "chat_template.jinja";
  SLUICE_ASSIGN(ChatSettings settings, special_tokens_of(folder));
  settings.date = date;
  SLUICE_ASSIGN(const ChatValue config, tokenizer_config(folder));
  std::error_code ignored;
  std::optional<std::string> text;
  const ChatValue* value = config.find("chat_template");
  if (value != nullptr && !value->is_null()) {
    auto found = chosen(*value, name);
    if (!found.ok()) return error_at((folder / kConfigName).string(), found.error());
    text = std::move(*found);
  }
  const bool named = !name.empty() && name != "default";
  if (!named && std::filesystem::exists(text_path, ignored)) {
    SLUICE_ASSIGN(text, read_file(text_path, kMostBytes));
  } else if (named && !text) {
    SLUICE_ASSIGN(
        text, read_file(folder / "additional_chat_templates" / (std::string(name) + ".jinja"), kMostBytes));
  }
  if (!text) {
    Error none = error("{}: neither chat_template.jinja nor a chat_template in tokenizer_config.json",
                       folder.string());
    none.details.emplace_back("template", "none");
    return none;
  }
  auto recognised = recognise(*text, std::move(settings));
  if (!recognised.ok()) return error_at(folder.string(), recognised.error());
  return recognised;
}

std::string_view ChatTemplate::name() const {
  return family_->name;
}

bool ChatTemplate::asks_date() const {
  return family_->asks_date;
}

std::string ChatTemplate::identity() const {
  const auto& date = settings_.date;
  const std::string day =
      asks_date() && date ? fmt::format("{:04}-{:02}-{:02}", date->year, date->month, date->day) : "";
  return fmt::format("{} '{}' '{}' {}", name(), settings_.bos.value_or(""), settings_.eos.value_or(""), day);
}

Result<RenderedChat> render_chat(const ChatFamily& family, const ChatSettings& settings,
                                 const Conversation& conversation) {
  SLUICE_ASSIGN(Conversation messages, plain(conversation));
  if (!family.shows_calls) say_nothing_beside_calls(messages);
  ChatWriter writer;
  SLUICE_TRY(family.render(messages, settings, writer));
  RenderedChat chat = writer.take();
  chat.lacks_tools = !messages.tools.items.empty() && !family.shows_tools;
  std::vector<bool> shown(messages.messages.size());
  for (const ChatPiece& piece : chat.pieces) {
    if (piece.message >= 0) shown[size_t(piece.message)] = true;
  }
  chat.lacks_reasoning = lacks_reasoning(chat, messages);
  chat.lacks_messages = int32_t(std::count(shown.begin(), shown.end(), false));
  chat.lacks_tool_calls =
      !family.shows_calls &&
      std::any_of(messages.messages.begin(), messages.messages.end(),
                  [](const ChatValue& message) { return message.find("tool_calls") != nullptr; });
  return chat;
}

// What an answer begins with is what the template writes of one before the first byte that is said: another
// rendering has it. The text before that is taken from the conversation alone, since some templates render a
// turn otherwise when it is the last.
Result<ChatPrompt> render_prompt(const ChatFamily& family, const ChatSettings& settings,
                                 const Conversation& conversation) {
  ChatPrompt prompt;
  SLUICE_ASSIGN(prompt.chat, render_chat(family, settings, conversation));
  Conversation answered = conversation;
  ChatValue answer;
  answer.kind = ChatValue::Kind::Object;
  answer.members = {{"role", ChatValue::string("assistant")}, {"content", ChatValue::string("x")}};
  answered.messages.push_back(std::move(answer));
  SLUICE_ASSIGN(const RenderedChat whole, render_chat(family, settings, answered));
  bool begun = false;
  for (const ChatPiece& piece : whole.pieces) {
    if (piece.message != int32_t(conversation.messages.size())) continue;
    const std::string text = whole.text.substr(piece.begin, piece.end - piece.begin);
    begun = begun || piece.own;
    if (!begun) {
      const size_t begin = prompt.chat.text.size();
      prompt.chat.text += text;
      prompt.chat.pieces.push_back({begin, prompt.chat.text.size(), -1, false, piece.data});
    } else if (piece.own && !piece.data) {
      prompt.end = text;
    }
  }
  return prompt;
}

Result<RenderedChat> ChatTemplate::render(const Conversation& conversation) const {
  return render_chat(*family_, settings_, conversation);
}

Result<ChatPrompt> ChatTemplate::prompt(const Conversation& conversation) const {
  return render_prompt(*family_, settings_, conversation);
}

}  // namespace sluice::core
