// SPDX-License-Identifier: Apache-2.0
// Chat templates and conversations that anybody may have written.
#include <algorithm>

#include "chat/chat_template.h"
#include "fuzz.h"
#include "tokenizer/code_set.h"

namespace sluice::core::fuzz {

// A template, a NUL, and as JSON a list of messages or an object of messages and tools.
void chat_template(Bytes input) {
  const std::string_view text = text_in(input);
  const size_t nul = std::min(text.size(), text.find('\0'));
  const auto made = ChatTemplate::parse(text.substr(0, nul), {"<s>", "</s>", ChatDate{2025, 3, 9}});
  if (!made.ok() || nul == text.size()) return;
  const auto parsed = parse_value(text.substr(nul + 1));
  if (!parsed.ok()) return;
  const ChatValue* messages = parsed->is_object() ? parsed->find("messages") : &*parsed;
  const ChatValue* tools = parsed->find("tools");
  if (messages == nullptr) return;
  const Conversation conversation{messages->items, tools != nullptr ? *tools : ChatValue()};
  const auto chat = made->render(conversation);
  if (!chat.ok()) {
    require(find_invalid_utf8(chat.message()) == std::string::npos || find_invalid_utf8(text) != text.npos,
            "a message is not UTF-8");
    return;
  }
  const auto check = [&](const RenderedChat& rendered) {
    size_t end = 0;
    for (const ChatPiece& piece : rendered.pieces) {
      require(piece.begin == end && piece.begin < piece.end, "pieces have gaps");
      require(piece.message < std::ssize(messages->items), "a piece is of no message");
      end = piece.end;
    }
    require(end == rendered.text.size(), "a byte is of no piece");
    require(find_invalid_utf8(rendered.text) == std::string::npos, "a text is not UTF-8");
  };
  check(*chat);
  if (const auto prompt = made->prompt(conversation); prompt.ok()) check(prompt->chat);
  (void)made->answer();
}

std::string seed_chat_template() {
  const std::string_view text =
      "{% macro m(x, y=1) %}{{ x | trim }}{% endmacro %}{% set ns = namespace(a=0) %}{% for m in messages %}"
      "{% if m.role == 'user' %}<{{ m(m.content) }}>{% else %}{% generation %}{{ m.content[1:] | tojson }}"
      "{% endgeneration %}{% endif %}{% endfor %}";
  return std::string(text) + '\0' +
         R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "\u00e9a", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}])";
}

}  // namespace sluice::core::fuzz
