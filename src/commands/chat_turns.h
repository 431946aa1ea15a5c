// SPDX-License-Identifier: Apache-2.0
// What people type as turns of a conversation, in the chat template of a model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {

class ChatTurns {
 public:
  // The template is that of data.chat_template and data.date; where that is left open it is today. `system`
  // is what comes first; empty: nothing, or what the template puts there itself. Borrows the tokenizer.
  // Errors: no template, or none that is known; one that shows no system message.
  static Result<ChatTurns> open(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                const RunConfig& config, std::string system);

  // The tokens of a turn of a user, up to where the answer begins.
  Result<std::vector<int32_t>> encode(const std::string& text) const;
  // What ends an answer, such as "<|im_end|>"; empty: nothing of the template's.
  const std::string& end() const { return end_; }

 private:
  ChatTurns(ChatTemplate chat, std::string system, const Tokenizer& tokenizer)
      : template_(std::move(chat)), system_(std::move(system)), tokenizer_(&tokenizer) {}

  Conversation conversation(const std::string& text) const;

  ChatTemplate template_;
  std::string system_, end_;
  const Tokenizer* tokenizer_;
};

}  // namespace sluice::core
