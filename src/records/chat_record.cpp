// SPDX-License-Identifier: Apache-2.0
#include "records/chat_record.h"

#include <algorithm>

#include "base/nearest.h"
#include "records/keys.h"

namespace sluice::core {
namespace {

Status check_string(const ChatValue& object, std::string_view key) {
  const ChatValue* value = object.find(key);
  if (value == nullptr) return error("{} is missing", key);
  if (!value->is_string()) return error("{} is {}, no string", key, value->kind_text());
  return {};
}

// A list, or a string that holds one as JSON.
Result<ChatValue> list_of(const ChatValue& value, std::string_view key) {
  if (value.is_array()) return value;
  if (!value.is_string()) return error("{} is {}, no list", key, value.kind_text());
  auto parsed = parse_value(value.text);
  if (!parsed.ok()) return error("{}: a string that is no JSON: {}", key, parsed.message());
  if (parsed->is_array()) return std::move(*parsed);
  return error("{}: a string that holds {}, no list", key, parsed->kind_text());
}

ChatValue member(std::string_view key, ChatValue value) {
  ChatValue object;
  object.kind = ChatValue::Kind::Object;
  object.members.emplace_back(key, std::move(value));
  return object;
}

ChatValue as_call(ChatValue function) {
  ChatValue call = member("type", ChatValue::string("function"));
  call.members.emplace_back("function", std::move(function));
  return call;
}

// ShareGPT's {"name", "arguments"}, or a list of such, as a turn of the assistant.
Result<ChatValue> calls_of(std::string_view text) {
  auto parsed = parse_value(text);
  if (!parsed.ok()) return error("function_call: value is no JSON: {}", parsed.message());
  ChatValue message = turn_of("assistant", "");
  ChatValue calls = parsed->is_array() ? std::move(*parsed) : list_with(std::move(*parsed));
  for (ChatValue& call : calls.items) call = as_call(std::move(call));
  message.members.emplace_back("tool_calls", std::move(calls));
  return message;
}

// Who speaks, by the names that templates and programs give them, and what ShareGPT's `from` calls them.
struct Role {
  std::string_view name, from;
};
constexpr Role kRoles[] = {{"user", "human user"}, {"assistant", "gpt chatgpt bing bard assistant"},
                           {"system", "system"},   {"tool", "tool observation function_response"},
                           {"function", ""},       {"developer", ""},
                           {"ipython", ""},        {"observation", ""},
                           {"environment", ""},    {"tool_results", ""},
                           {"tool_response", ""},  {"tool_call", ""}};
// Names that others give the first two.
constexpr Role kElsewhere[] = {{"user", "human prompter customer client question"},
                               {"assistant", "gpt chatgpt ai bot model agent answer chatbot"}};

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// The role that one may have meant; empty: none.
std::string_view role_meant_by(std::string_view role) {
  const std::string plain = plain_name(role);
  if (plain.empty()) return {};
  for (const Role& r : kElsewhere) {
    if (has_word(r.from, plain)) return r.name;
  }
  for (const Role& r : kRoles) {
    if (similar(plain, plain_name(r.name))) return r.name;
  }
  return {};
}

// `key`: role, or ShareGPT's from, whose words are known instead of names.
Error unknown_role(std::string_view key, std::string_view role, std::string_view allowed) {
  const std::string_view meant = role_meant_by(role);
  return error("{} '{}'; {}allowed are {}; data.roles = [\"{}\"] takes it as it stands", key, role,
               meant.empty() ? "" : fmt::format("did you mean {}? ", meant), allowed, role);
}

// Earlier versions passed over what is refused so.
Error later(Error refused) {
  refused.details.emplace_back("later", "yes");
  return refused;
}

bool is_given(std::string_view role, const RecordOptions& options) {
  return std::find(options.roles.begin(), options.roles.end(), role) != options.roles.end();
}

Status check_role(std::string_view role, const RecordOptions& options) {
  const bool known =
      std::any_of(std::begin(kRoles), std::end(kRoles), [&](const Role& r) { return r.name == role; });
  if (known || is_given(role, options)) return {};
  std::vector<std::string_view> names;
  for (const Role& r : kRoles) names.push_back(r.name);
  return later(unknown_role("role", role, fmt::format("{}", fmt::join(names, ", "))));
}

// ShareGPT's {"from", "value"}.
Result<ChatValue> message_of(ChatValue& turn, const RecordOptions& options) {
  SLUICE_ASSIGN(const std::string from, string_of(turn, "from"));
  SLUICE_ASSIGN(const std::string value, take_string(turn, "value"));
  if (from == "function_call") return calls_of(value);
  const auto* const role = std::find_if(std::begin(kRoles), std::end(kRoles),
                                        [&](const Role& r) { return has_word(r.from, from); });
  if (role != std::end(kRoles)) return turn_of(role->name, value);
  if (is_given(from, options)) return turn_of(from, value);
  return unknown_role("from", from, "human, user, gpt, assistant, system, tool, observation, function_call");
}

Status check_content(const ChatValue& content) {
  for (const ChatValue& part : content.items) {
    for (const auto& [key, says] : part.members) {
      const DataKey* row = find_data_key(key, /*of_message=*/true);
      if (row == nullptr || row->use != DataKey::Use::Decides || says.is_null()) continue;
      Error refused = error(
          "{} of a part of the content: a turn is learnt whole or not at all. Write text with learnt, or "
          "leave it out with data.ignore",
          key);
      refused.details.emplace_back("key", key);
      return refused;
    }
  }
  return {};
}

// OpenAI's calls and answers from before there were tools.
bool renew_functions(ChatValue& message) {
  bool renewed = false;
  ChatValue* call = message.find("function_call");
  const ChatValue* there = message.find("tool_calls");
  if (call != nullptr && call->is_object() && (there == nullptr || !says_something(*there))) {
    ChatValue calls = list_with(as_call(std::exchange(*call, {})));
    pass_over(message, {"tool_calls"});
    message.members.emplace_back("tool_calls", std::move(calls));
    renewed = true;
  }
  ChatValue* role = message.find("role");
  if (role->text == "function") role->text = "tool", renewed = true;
  return renewed;
}

Status check_message(const ChatValue& message) {
  const ChatValue* content = message.find("content");
  if (content != nullptr && !content->is_null() && !content->is_string() && !content->is_array() &&
      message.find("role")->text != "tool")
    return error("content is {}; allowed are a string and a list of texts", content->kind_text());
  const ChatValue* calls = message.find("tool_calls");
  if ((content == nullptr || content->is_null()) && (calls == nullptr || calls->items.empty()))
    return error("neither content nor tool_calls");
  return content == nullptr ? Status() : check_content(*content);
}

bool says(const ChatValue& object, std::string_view key) {
  const ChatValue* value = object.find(key);
  return value != nullptr && !value->is_null();
}

// A message's mark of whether it is learnt.
Result<Wish> wish_of(const ChatValue& message) {
  Wish wish = Wish::None;
  std::string_view said;
  for (const std::string_view key : {"weight", "train", "training", "trainable", "loss"}) {
    const ChatValue* value = message.find(key);
    if (value == nullptr || value->is_null()) continue;
    const bool number = value->kind == ChatValue::Kind::Number;
    const bool zero = number && (value->text == "0" || value->text == "0.0");
    const bool one = number && (value->text == "1" || value->text == "1.0");
    const bool boolean = value->kind == ChatValue::Kind::Boolean;
    if (!zero && !one && !boolean)
      return error("{} is {}; allowed are {}", key, number ? value->text : value->kind_text(),
                   key == "weight" ? "0 and 1" : "true and false");
    // A weight of 1 says no more than that the turn counts: what is learnt of it goes by who speaks.
    const bool learns = boolean ? value->boolean : one;
    const Wish now = !learns ? Wish::Context : key == "weight" ? Wish::None : Wish::Learn;
    const bool contradicts = !said.empty() && (now == Wish::Context) != (wish == Wish::Context);
    if (contradicts)
      return error("{} says that it is {}, and {} does not", key, learns ? "learnt" : "not learnt", said);
    wish = now == Wish::None ? wish : now;
    said = key;
  }
  return wish;
}

Status add_message(ChatValue& item, const RecordOptions& options, Record& record) {
  if (!item.is_object()) return error("it is {}, no object", item.kind_text());
  pass_over(item, options.ignore);
  if (ChatValue* content = item.find("content")) {
    for (ChatValue& part : content->items) pass_over(part, options.ignore);
  }
  std::vector<std::string> unused;
  SLUICE_TRY(check_keys(item, KeysOf::Message, {}, unused));
  for (std::string& key : unused) {
    if (options.chat_template == nullptr || !options.chat_template->mentions(key))
      record.unused.push_back(std::move(key));
  }
  SLUICE_ASSIGN(const Wish wish, wish_of(item));
  record.read_later |= says(item, "trainable");
  if (item.find("from") != nullptr && item.find("role") == nullptr) {
    SLUICE_ASSIGN(item, message_of(item, options));
  } else {
    SLUICE_TRY(check_string(item, "role"));
    SLUICE_TRY(check_role(item.find("role")->text, options));
    record.read_anew |= renew_functions(item);
    SLUICE_TRY(check_message(item));
  }
  record.chat.messages.push_back(std::move(item));
  record.chat.wishes.push_back(wish);
  return {};
}

}  // namespace

ChatValue list_with(ChatValue item) {
  ChatValue list;
  list.kind = ChatValue::Kind::Array;
  list.items.push_back(std::move(item));
  return list;
}

void pass_over(ChatValue& object, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  std::erase_if(object.members, [&](const auto& member) {
    return std::find(keys.begin(), keys.end(), member.first) != keys.end();
  });
}

Result<std::string> string_of(const ChatValue& object, std::string_view key) {
  SLUICE_TRY(check_string(object, key));
  return object.find(key)->text;
}

Result<std::string> take_string(ChatValue& object, std::string_view key) {
  SLUICE_TRY(check_string(object, key));
  return std::move(object.find(key)->text);
}

ChatValue turn_of(std::string_view role, std::string_view text) {
  ChatValue message = member("role", ChatValue::string(role));
  message.members.emplace_back("content", ChatValue::string(text));
  return message;
}

Status add_messages(ChatValue& object, std::string_view key, const RecordOptions& options, Record& record) {
  ChatValue& value = *object.find(key);
  if (!value.is_array()) {
    SLUICE_ASSIGN(value, list_of(value, key));
    record.read_anew = true;
  }
  if (value.items.empty()) return error("{} is empty", key);
  for (size_t i = 0; i < value.items.size(); ++i) {
    const Status added = add_message(value.items[i], options, record);
    if (!added.ok()) return error_at(fmt::format("{}[{}]", key, i), added.error());
  }
  return {};
}

void add_system(std::string_view text, Record& record) {
  record.chat.messages.insert(record.chat.messages.begin(), turn_of("system", text));
  record.chat.wishes.insert(record.chat.wishes.begin(), Wish::None);
}

Status add_history(const ChatValue& object, Record& record) {
  const ChatValue* value = object.find("history");
  if (value == nullptr || !says_something(*value)) return {};
  SLUICE_ASSIGN(const ChatValue history, list_of(*value, "history"));
  for (size_t i = 0; i < history.items.size(); ++i) {
    const std::vector<ChatValue>& pair = history.items[i].items;
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return error(
          "history[{}]: {:.60}; it holds [question, answer], two texts. A conversation is a list of "
          "{{\"role\", \"content\"}} under messages",
          i, to_json(history.items[i]));
    record.history.emplace_back(pair[0].text, pair[1].text);
  }
  record.read_later |= !record.history.empty();
  return {};
}

Status add_tools(ChatValue& object, Record& record) {
  if (ChatValue* kwargs = object.find("chat_template_kwargs"); kwargs != nullptr && says_something(*kwargs)) {
    if (!kwargs->is_object())
      return error("chat_template_kwargs is {}, no object of the template's variables", kwargs->kind_text());
    record.chat.kwargs = std::move(*kwargs);
    record.read_later = true;
  }
  if (ChatValue* documents = object.find("documents"); documents != nullptr && says_something(*documents)) {
    SLUICE_ASSIGN(record.chat.documents, list_of(*documents, "documents"));
    record.read_later = true;
  }
  for (const std::string_view key : {"tools", "functions"}) {
    const ChatValue* tools = object.find(key);
    if (tools == nullptr || tools->is_null() || (tools->is_string() && tools->text.empty())) continue;
    SLUICE_ASSIGN(record.chat.tools, list_of(*tools, key));
    if (key == "tools") return {};
    for (ChatValue& function : record.chat.tools.items) function = as_call(std::move(function));
    record.read_anew = true;
  }
  return {};
}

}  // namespace sluice::core
