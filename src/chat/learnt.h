// SPDX-License-Identifier: Apache-2.0
// Which tokens of a text are learnt: token for token, from what is learnt of its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chat/chat_template.h"

namespace sluice::core {

class Tokenizer;

enum class Learn : uint8_t {
  Assistant,  // what it says, each time with the token that ends its turn; of a pair the completion
  Last,       // the same of its last turn only
  AllTurns,   // what anyone says, with the tokens that end the turns
  Everything,
  Marked,  // what the template has inside of {% generation %}
};
// "assistant" or "completion", "last", "all-turns", "everything", "marked".
Result<Learn> parse_learn(std::string_view text);
std::string_view name_of(Learn learn);

struct LearntTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learnt;  // 1: the model is trained to say this token
  int64_t straddling = 0;       // tokens over an edge of what is learnt
  int64_t learnt_bytes = 0;     // of text, in tokens that are learnt
  int64_t dropped = 0;          // bytes or characters of a text that have no token
  int32_t written = -1;         // the first special token whose characters are but text (Tokenizer::Plain)
  int64_t empty_answers = 0;    // that say nothing, and call no tool
  bool anew = false;            // Sluice 0.1.0 marked it otherwise
  bool renewed = false;         // Sluice 0.2 did
  bool markup = false;          // a header of the assistant is learnt

  // Reserves as many tokens as a long text has bytes, so growing never holds them twice. Unused room takes no
  // memory.
  void reserve_for(std::string_view text);
};

// A token is learnt exactly when all of its bytes are to be: one that reaches over the edge is context, since
// a model that answers never gets to say it. Special tokens in what comes from the data are text. A turn that
// says nothing is context, unless everything is learnt: whoever learns it, learns to say nothing. What the
// data wishes of a message comes before `learn`, and a prompt is learnt only with all turns. Where the
// template has {% generation %}, what it leaves out is not what an assistant says. `thoughts`: whether those
// are learnt; `special`: special tokens that stay such in what comes from the data, here and below.
Result<LearntTokens> learnt_tokens(const Conversation& conversation, const RenderedChat& chat, Learn learn,
                                   const Tokenizer& tokenizer, bool thoughts = true,
                                   std::span<const int32_t> special = {});

// Whether each piece is learnt.
std::vector<bool> learnt_pieces(const Conversation& conversation, const RenderedChat& chat, Learn learn,
                                bool thoughts = true);

// The same of a text of which the bytes from `learnt_from` on are learnt, between the tokens that the
// tokenizer puts around a text, and with the token `end` (-1: none) behind it, if that is not there yet. What
// ends a text is learnt.
Result<LearntTokens> learnt_tokens(std::string_view text, size_t learnt_from, int32_t end,
                                   const Tokenizer& tokenizer, std::span<const int32_t> special = {});

// The learnt tokens of a text that was rendered elsewhere with its special tokens. `learnt` has rising
// stretches, in bytes.
Result<LearntTokens> learnt_tokens(std::string_view text,
                                   const std::vector<std::pair<size_t, size_t>>& learnt,
                                   const Tokenizer& tokenizer);

}  // namespace sluice::core
