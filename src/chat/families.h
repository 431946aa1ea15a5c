// SPDX-License-Identifier: Apache-2.0
// The templates that are built in: a renderer each, and the texts that it stands for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "chat/writer.h"

namespace sluice::core {

// Writes a conversation. REQUIRES: every message is an object with a role, there is one, keys with null and
// empty lists of tool calls are gone.
using ChatRenderer = Status (*)(const Conversation&, const ChatSettings&, ChatWriter&);

struct ChatFamily {
  std::string_view name;
  ChatRenderer render;
  bool shows_tools, shows_calls;  // the list of tools, and calls of them
  std::array<uint64_t, 4> texts;  // hashes of the normal forms of the texts it stands for; 0: none
  bool asks_date = false;
};

Status render_chatml(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_smollm2(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_qwen2(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_qwen2_5(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_qwen3(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_qwen3_2507(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_smollm3(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_smollm3_short(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_llama3(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_llama3_1(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_llama3_2(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_mistral_first(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_mistral_v1(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_mistral_v3(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_mistral_nemo(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_gemma(const Conversation&, const ChatSettings&, ChatWriter&);
Status render_gemma3(const Conversation&, const ChatSettings&, ChatWriter&);

std::span<const ChatFamily> chat_families();

// As ChatTemplate::render().
Result<RenderedChat> render_chat(const ChatFamily& family, const ChatSettings& settings,
                                 const Conversation& conversation);
// As ChatTemplate::prompt().
Result<ChatPrompt> render_prompt(const ChatFamily& family, const ChatSettings& settings,
                                 const Conversation& conversation);

}  // namespace sluice::core
