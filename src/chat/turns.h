// SPDX-License-Identifier: Apache-2.0
// Where in a rendered conversation somebody speaks: from the end of a turn's header to the token that ends
// it.
#pragma once

#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "jinja/text.h"

namespace sluice::core {

// Marks of a template around an answer, as probes show them.
struct TurnMarks {
  // Ends of a prompt for an answer, the longest first: with and without the thought that it begins.
  std::vector<std::string> headers;
  std::string after_user;  // from the end of a question to the answer
  std::string before;      // an answer, behind its header
  // Tokens that end an answer, that of the last one first; none: none is known.
  std::vector<std::string> ends;
  bool next_role = false;  // an answer ends with the token that begins the next turn
};

// `prompt`: of one question with add_generation_prompt; `asked`: without; `chat`: of two questions and their
// answers, of which each is of its own message. `stops`: tokens that end generation.
TurnMarks turn_marks(const jinja::Text& asked, const jinja::Text& prompt, const jinja::Text& chat,
                     const std::vector<std::string>& stops);

struct Turns {
  std::vector<ChatPiece> pieces;   // in order
  std::vector<int32_t> unthought;  // answers before which the template says that nothing was thought
};
// Who a message is of. What a template writes before the words of those who ask, such as today's date, is its
// own; before those of others, such as "<tool_response>", it is of their turn.
enum class Speaker : uint8_t { Assistant, Asks, Other };
Speaker speaker_of(std::string_view role);

// A thought of nothing that the template puts in is not of the turn.
Turns turns_of(const jinja::Text& text, const std::vector<Speaker>& speakers, const TurnMarks& marks);

}  // namespace sluice::core
