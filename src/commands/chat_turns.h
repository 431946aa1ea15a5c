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

// Parts beside a prompt.
struct BesidePrompt {
  std::string system;          // what comes first; empty: nothing, or what the template puts there itself
  std::string answer;          // what the answer begins with
  ChatValue tools, documents;  // lists, or null
};

class ChatTurns {
 public:
  // The template is that of data.chat_template and data.date; where that is left open it is today. Borrows
  // the tokenizer. Errors: no template, or none that is known; one that shows no system message, no tools or
  // no documents, which are there.
  static Result<ChatTurns> open(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                const RunConfig& config, BesidePrompt beside);

  // The tokens of a turn of a user, up to where the answer begins or goes on.
  Result<std::vector<int32_t>> encode(const std::string& text) const;
  // The same of a record of JSON with messages, as data has them; what stands beside is not of it.
  Result<std::vector<int32_t>> encode_record(std::string_view json) const;
  // The end of an answer, such as "<|im_end|>"; empty: the template has none.
  const std::string& end() const { return end_; }

 private:
  ChatTurns(ChatTemplate chat, BesidePrompt beside, const Tokenizer& tokenizer)
      : template_(std::move(chat)), beside_(std::move(beside)), tokenizer_(&tokenizer) {}

  Conversation conversation(const std::string& text) const;
  Result<std::vector<int32_t>> encode(const Conversation& asked) const;

  ChatTemplate template_;
  BesidePrompt beside_;
  std::string end_;
  const Tokenizer* tokenizer_;
};

}  // namespace sluice::core
