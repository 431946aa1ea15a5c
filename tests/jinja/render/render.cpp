// SPDX-License-Identifier: Apache-2.0
// Reads lines {"template": FILE, "messages": [...], "date": "YYYY-MM-DD", NAME: VALUE, ...} and writes a line
// for each:
// {"text": "...", "runs": [[end in bytes, message, field], ...]} or {"error": "..."}. A message of -1 stands
// for what is beside the messages, and -2 for the template. With "turns": true the text is that of a
// ChatTemplate, and "learnt" are the stretches of bytes that the assistant says; with "goes_on" it is that of
// a prompt.
#include <fmt/format.h>

#include <iostream>
#include <map>

#include "chat/chat_template.h"
#include "chat/origins.h"
#include "io/file.h"
#include "jinja/template.h"

namespace sluice::core {
namespace {

ChatValue text(std::string_view name, std::string_view value) {
  ChatValue object;
  object.kind = ChatValue::Kind::Object;
  object.members.emplace_back(name, ChatValue::string(value));
  return object;
}

std::string text_and_turns(const ChatValue& request, std::map<std::string, ChatTemplate>& templates) {
  const std::string& file = request.find("template")->text;
  if (templates.find(file) == templates.end()) {
    const auto source = read_file(file);
    if (!source.ok()) return to_json(text("error", source.message()));
    const auto date = ChatDate::parse(request.find("date")->text);
    auto parsed = ChatTemplate::parse(
        *source, {request.find("bos_token")->text, request.find("eos_token")->text, *date});
    if (!parsed.ok()) return to_json(text("error", parsed.message()));
    templates.emplace(file, std::move(*parsed));
  }
  const Conversation conversation{request.find("messages")->items, *request.find("tools")};
  if (request.find("goes_on") != nullptr) {
    const auto prompt = templates.at(file).prompt(conversation);
    return to_json(prompt.ok() ? text("text", prompt->chat.text) : text("error", prompt.message()));
  }
  const auto chat = templates.at(file).render(conversation);
  if (!chat.ok()) return to_json(text("error", chat.message()));
  std::string learnt;
  for (const ChatPiece& piece : chat->pieces) {
    if (piece.own && conversation.messages[size_t(piece.message)].find("role")->text == "assistant")
      learnt += fmt::format("{}[{}, {}]", learnt.empty() ? "" : ", ", piece.begin, piece.end);
  }
  std::string json = to_json(text("text", chat->text));
  json.pop_back();
  return fmt::format("{}, \"learnt\": [{}]}}", json, learnt);
}

std::string answer(const ChatValue& request, std::map<std::string, jinja::Template>& templates) {
  const std::string& file = request.find("template")->text;
  if (templates.find(file) == templates.end()) {
    const auto source = read_file(file);
    if (!source.ok()) return to_json(text("error", source.message()));
    auto parsed = jinja::Template::parse(*source);
    if (!parsed.ok()) return to_json(text("error", parsed.message()));
    templates.emplace(file, std::move(*parsed));
  }
  jinja::Inputs inputs;
  for (const auto& [key, value] : request.members) {
    if (key == "messages") {
      auto list = std::make_shared<jinja::List>();
      for (const ChatValue& message : value.items)
        list->items.push_back(message_to_jinja(message, int32_t(list->items.size())));
      inputs.variables.emplace_back(key, jinja::Value::of(std::move(list)));
    } else if (key == "date") {
      const auto date = ChatDate::parse(value.text);
      inputs.today = jinja::Day{date->year, date->month, date->day};
    } else if (key != "template") {
      const bool own = key == "bos_token" || key == "eos_token";
      inputs.variables.emplace_back(
          key, own ? jinja::Value::string(jinja::plain(value.text)) : to_jinja(value, {}));
    }
  }
  const auto rendering = templates.at(file).render(inputs);
  if (!rendering.ok()) return to_json(text("error", rendering.message()));
  std::string runs;
  for (const auto& run : rendering->text.runs()) {
    const ChatOrigin origin = run.origin % jinja::kMarked == 0 ? ChatOrigin{-2, {}} : chat_origin(run.origin);
    runs +=
        fmt::format("{}[{}, {}, {}]", runs.empty() ? "" : ", ", run.end, origin.message, int(origin.field));
  }
  std::string json = to_json(text("text", rendering->text.view()));
  json.pop_back();
  return fmt::format("{}, \"runs\": [{}]}}", json, runs);
}

}  // namespace
}  // namespace sluice::core

int main() {
  std::map<std::string, sluice::core::jinja::Template> templates;
  std::map<std::string, sluice::core::ChatTemplate> chats;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = sluice::core::parse_value(line);
    if (!request.ok()) return 1;
    const bool turns = request->find("turns") != nullptr;
    std::cout << (turns ? sluice::core::text_and_turns(*request, chats)
                        : sluice::core::answer(*request, templates))
              << "\n";
  }
}
