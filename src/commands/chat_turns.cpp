// SPDX-License-Identifier: Apache-2.0
#include "commands/chat_turns.h"

#include "chat/learnt.h"
#include "records/record.h"
#include "run/data/data.h"

namespace sluice::core {
namespace {

ChatValue message_of(std::string_view role, std::string_view content) {
  ChatValue message;
  message.kind = ChatValue::Kind::Object;
  message.members = {{"role", ChatValue::string(role)}, {"content", ChatValue::string(content)}};
  return message;
}

}  // namespace

Result<ChatTurns> ChatTurns::open(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                  const RunConfig& config, BesidePrompt beside) {
  SLUICE_ASSIGN(const std::string day, date_of(config));
  const auto date = ChatDate::parse(day);
  if (!date.ok()) return error_at("data.date", date.error());
  SLUICE_ASSIGN(ChatTemplate chat,
                ChatTemplate::open(folder, config.data.chat_template, *date, config.data.template_kwargs));
  ChatTurns turns(std::move(chat), std::move(beside), tokenizer);
  SLUICE_ASSIGN(const ChatPrompt any, turns.template_.prompt(turns.conversation("x")));
  const auto lacks = [&](std::string_view what, std::string_view option) {
    return error("the chat template {} shows no {}; leave {} out", turns.template_.name(), what, option);
  };
  if (any.chat.lacks_messages > 0) return lacks("system message", "--system");
  if (any.chat.lacks_tools) return lacks("tools", "--tools");
  if (!turns.beside_.documents.is_null() && !turns.template_.reads("documents"))
    return lacks("documents", "--documents");
  turns.end_ = any.end;
  return turns;
}

Conversation ChatTurns::conversation(const std::string& text) const {
  Conversation conversation;
  if (!beside_.system.empty()) conversation.messages.push_back(message_of("system", beside_.system));
  conversation.messages.push_back(message_of("user", text));
  if (!beside_.answer.empty()) conversation.messages.push_back(message_of("assistant", beside_.answer));
  conversation.tools = beside_.tools;
  conversation.documents = beside_.documents;
  return conversation;
}

Result<std::vector<int32_t>> ChatTurns::encode(const std::string& text) const {
  return encode(conversation(text));
}

Result<std::vector<int32_t>> ChatTurns::encode_record(std::string_view json) const {
  const bool alone = beside_.system.empty() && beside_.answer.empty() && beside_.tools.is_null() &&
                     beside_.documents.is_null();
  if (!alone)
    return error("messages say all that there is; leave --system, --answer, --tools and --documents out");
  RecordOptions options;
  options.chat_template = &template_;
  SLUICE_ASSIGN(const Record record, parse_record(json, options));
  if (record.kind != Record::Kind::Chat) return error("it is no conversation, but {}", name_of(record.kind));
  return encode(record.chat);
}

Result<std::vector<int32_t>> ChatTurns::encode(const Conversation& asked) const {
  SLUICE_ASSIGN(const ChatPrompt prompt, template_.prompt(asked));
  SLUICE_ASSIGN(LearntTokens tokens, learnt_tokens(asked, prompt.chat, Learn::Everything, *tokenizer_));
  return std::move(tokens.ids);
}

}  // namespace sluice::core
