// SPDX-License-Identifier: Apache-2.0
#include "records/preference.h"

#include <algorithm>

#include "base/nearest.h"
#include "records/chat_record.h"

namespace sluice::core {
namespace {

constexpr std::pair<std::string_view, std::string_view> kPairNames[] = {
    {"chosen", "rejected"},
    {"chosen_response", "rejected_response"},
    {"preferred_output", "non_preferred_output"}};
constexpr std::string_view kMarkNames[] = {"label", "kto_tag"};

ChatValue* said(ChatValue& object, std::string_view key) {
  ChatValue* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

ChatValue take(ChatValue& object, std::string_view key) {
  const auto it = std::find_if(object.members.begin(), object.members.end(),
                               [&](const auto& member) { return member.first == key; });
  if (it == object.members.end()) return {};
  ChatValue value = std::move(it->second);
  object.members.erase(it);
  return value;
}

// A message alone is a list of one.
ChatValue answer_of(ChatValue value) {
  return value.is_object() ? list_with(std::move(value)) : value;
}

// OpenAI's input: an object that has messages and tools.
void unwrap_input(ChatValue& object) {
  const ChatValue* input = object.find("input");
  if (input == nullptr || !input->is_object()) return;
  ChatValue inner = take(object, "input");
  for (auto& member : inner.members) object.members.push_back(std::move(member));
}

// The bytes that two texts begin with, as TRL cuts them: a space before the difference is the answers'.
size_t common_text(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t same = size_t(std::mismatch(a.begin(), a.begin() + long(most), b.begin()).first - a.begin());
  while (same > 0 && same < a.size() && (static_cast<unsigned char>(a[same]) & 0xc0) == 0x80) --same;
  return same > 0 && a[same - 1] == ' ' ? same - 1 : same;
}

size_t common_messages(const ChatValue& a, const ChatValue& b) {
  const size_t most = std::min(a.items.size(), b.items.size());
  size_t same = 0;
  while (same < most && to_json(a.items[same]) == to_json(b.items[same])) ++same;
  return same;
}

// Takes the common beginning of both answers from them.
Result<ChatValue> take_common(ChatValue& chosen, ChatValue& rejected) {
  const bool text = chosen.is_string();
  const size_t same = text ? common_text(chosen.text, rejected.text) : common_messages(chosen, rejected);
  if (same == 0)
    return error("there is no prompt, and the two answers begin with other {}, of which none is common",
                 text ? "text" : "messages");
  ChatValue prompt;
  prompt.kind = chosen.kind;
  if (text) {
    prompt.text = chosen.text.substr(0, same);
  } else {
    prompt.items.assign(chosen.items.begin(), chosen.items.begin() + long(same));
  }
  for (ChatValue* answer : {&chosen, &rejected}) {
    text ? void(answer->text.erase(0, same))
         : void(answer->items.erase(answer->items.begin(), answer->items.begin() + long(same)));
  }
  return prompt;
}

std::string_view role_of(const ChatValue& message) {
  const ChatValue* role = message.find("role");
  return role != nullptr && role->is_string() ? std::string_view(role->text) : std::string_view();
}

// A conversation has its system's turn in front.
void add_system_turn(ChatValue& object, ChatValue& prompt) {
  for (const std::string_view key : {"system", "system_prompt"}) {
    const ChatValue system = take(object, key);
    const bool has_one = !prompt.items.empty() && role_of(prompt.items.front()) == "system";
    if (system.is_string() && !system.text.empty() && !has_one)
      prompt.items.insert(prompt.items.begin(), turn_of("system", system.text));
  }
}

}  // namespace

Result<AnswerPair> split_pair(ChatValue object) {
  const auto* names = std::find_if(std::begin(kPairNames), std::end(kPairNames), [&](const auto& n) {
    return said(object, n.first) != nullptr || said(object, n.second) != nullptr;
  });
  if (names == std::end(kPairNames))
    return error("no chosen and rejected: the objective compares two answers to a prompt");
  for (const auto& [name, other] : {*names, std::pair(names->second, names->first)}) {
    if (said(object, name) == nullptr) return error("{} is missing beside {}", name, other);
  }
  ChatValue chosen = answer_of(take(object, names->first)), rejected = answer_of(take(object, names->second));
  const bool lists = chosen.is_array();
  if (chosen.kind != rejected.kind || (!lists && !chosen.is_string()))
    return error("{} is {}, and {} {}: both are texts, or both messages", names->first, chosen.kind_text(),
                 names->second, rejected.kind_text());
  unwrap_input(object);
  AnswerPair pair;
  const auto finish = [&](std::string_view key, std::string_view answer, ChatValue prompt,
                          std::string_view after) {
    pair.form = fmt::format("{} and {}, after {}", names->first, names->second, after);
    if (!key.empty()) object.members.emplace_back(key, std::move(prompt));
    pair.chosen = pair.rejected = std::move(object);
    pair.chosen.members.emplace_back(answer, std::move(chosen));
    pair.rejected.members.emplace_back(answer, std::move(rejected));
  };
  // A conversation comes before them.
  for (const std::string_view key : {"messages", "conversations", "prompt"}) {
    const ChatValue* value = said(object, key);
    if (value == nullptr || !value->is_array()) continue;
    ChatValue prompt = take(object, key);
    add_system_turn(object, prompt);
    if (!lists) {
      chosen = list_with(turn_of("assistant", chosen.text));
      rejected = list_with(turn_of("assistant", rejected.text));
    }
    finish("prompt", "completion", std::move(prompt), key);
    return pair;
  }
  const ChatValue* const prompt = said(object, "prompt");
  const bool asks = std::any_of(object.members.begin(), object.members.end(), [](const auto& member) {
    return member.first == "instruction" || member.first == "question" || member.first == "query";
  });
  if (lists && prompt != nullptr && prompt->is_string()) {
    // The prompt again, beside whole conversations or answers alone.
    const std::string text = take(object, "prompt").text;
    ChatValue turns = list_with(turn_of("user", text));
    if (common_messages(chosen, rejected) > 0) {
      SLUICE_ASSIGN(turns, take_common(chosen, rejected));
      const bool same = std::any_of(turns.items.begin(), turns.items.end(), [&](const ChatValue& turn) {
        const ChatValue* content = turn.find("content");
        return content != nullptr && content->text == text;
      });
      if (!same)
        return error(
            "prompt is no message of what {} and {} begin with: data.ignore = [\"prompt\"] takes that",
            names->first, names->second);
    }
    add_system_turn(object, turns);
    finish("prompt", "completion", std::move(turns), "prompt");
    return pair;
  }
  if (lists && asks)
    return error("{} is a list, beside a question that is text: both are texts, or both messages",
                 names->first);
  if (prompt != nullptr || asks) {
    finish("", prompt != nullptr ? "completion" : "output", {}, prompt != nullptr ? "prompt" : "a question");
    return pair;
  }
  SLUICE_ASSIGN(ChatValue common, take_common(chosen, rejected));
  if (lists) add_system_turn(object, common);
  finish("prompt", "completion", std::move(common), "what they begin with");
  return pair;
}

Result<bool> take_mark(ChatValue& object) {
  const auto* name = std::find_if(std::begin(kMarkNames), std::end(kMarkNames),
                                  [&](std::string_view n) { return said(object, n) != nullptr; });
  if (name == std::end(kMarkNames)) {
    return error("{}the objective learns from answers with a label: true or false",
                 said(object, "chosen") != nullptr ? "chosen and rejected are for dpo, simpo and orpo; "
                                                   : "no label: ");
  }
  const ChatValue mark = take(object, *name);
  if (mark.kind == ChatValue::Kind::Boolean) return mark.boolean;
  const std::string word = plain_name(mark.text);
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  return error("{} is {}; allowed are true and false", *name,
               mark.text.empty() ? mark.kind_text() : mark.text);
}

}  // namespace sluice::core
