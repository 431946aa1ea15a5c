// SPDX-License-Identifier: Apache-2.0
#include "commands/chat_turns.h"

#include "chat/learnt.h"
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
                                  const RunConfig& config, std::string system) {
  RunConfig dated = config;
  SLUICE_TRY(keep_date(dated));
  const auto date = ChatDate::parse(dated.data.date);
  if (!date.ok()) return error_at("data.date", date.error());
  SLUICE_ASSIGN(ChatTemplate chat,
                ChatTemplate::open(folder, config.data.chat_template, *date, config.data.template_kwargs));
  ChatTurns turns(std::move(chat), std::move(system), tokenizer);
  SLUICE_ASSIGN(const ChatPrompt any, turns.template_.prompt(turns.conversation("x")));
  if (any.chat.lacks_messages > 0)
    return error("the chat template {} shows no system message; leave --system out", turns.template_.name());
  turns.end_ = any.end;
  return turns;
}

Conversation ChatTurns::conversation(const std::string& text) const {
  Conversation conversation;
  if (!system_.empty()) conversation.messages.push_back(message_of("system", system_));
  conversation.messages.push_back(message_of("user", text));
  return conversation;
}

Result<std::vector<int32_t>> ChatTurns::encode(const std::string& text) const {
  const Conversation asked = conversation(text);
  SLUICE_ASSIGN(const ChatPrompt prompt, template_.prompt(asked));
  SLUICE_ASSIGN(LearntTokens tokens, learnt_tokens(asked, prompt.chat, Learn::Everything, *tokenizer_));
  return std::move(tokens.ids);
}

}  // namespace sluice::core
