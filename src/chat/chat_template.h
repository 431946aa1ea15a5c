// SPDX-License-Identifier: Apache-2.0
// Chat templates: conversations as the text that a model was trained on, and whose every byte is.
//
// The text is what transformers' apply_chat_template makes. Beyond it, where the template itself could not
// show them: a list of texts is shown as one text, a call's arguments that are a string of JSON as the
// object, and a turn that only calls tools as one that says nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/value.h"

namespace sluice::core {

// The user's mark of a message: learnt, or not.
enum class Wish : uint8_t { None, Learn, Context };

struct Conversation {
  std::vector<ChatValue>
      messages;                   // objects with "role" and "content", as OpenAI and Hugging Face write them
  ChatValue tools;                // a list, or null
  ChatValue documents = {};       // the same
  ChatValue kwargs = {};          // variables of the template, an object or null; before ChatSettings::kwargs
  std::vector<Wish> wishes = {};  // of each message; empty: of none
  size_t answers_from = 0;        // messages before it are a prompt
};

// A stretch of rendered text. All of them in order are the text.
struct ChatPiece {
  size_t begin = 0, end = 0;
  int32_t message = -1;  // whose it is; -1: nobody's
  // The speaker's own words, with the token that ends the turn: a model generates them for the assistant.
  bool own = false;
  bool data = false;     // from the conversation, so that special tokens in it are but text
  bool marked = false;   // inside of {% generation %}
  bool thought = false;  // what was thought before an answer, with the template's marks around it
};

struct RenderedChat {
  std::string text;
  std::vector<ChatPiece> pieces;
  // Parts of the conversation that the template does not show.
  bool lacks_tools = false, lacks_tool_calls = false, lacks_reasoning = false;
  int32_t lacks_messages = 0;
  // Messages of whose turns Sluice 0.2 learnt more or less, where they are learnt.
  std::vector<int32_t> renewed = {};
};

// A conversation up to where the next answer begins: what transformers renders with add_generation_prompt.
// Where the assistant speaks last it ends with its words, which go on: continue_final_message.
struct ChatPrompt {
  RenderedChat chat;
  std::string end;  // what a model says last in that answer, such as "<|im_end|>"
};

// How a template writes an answer, with "..." for what is said.
struct AnswerShape {
  std::string header, end, thought;
  std::string last_end;   // of the last answer, where that is another one
  std::string unthought;  // what stands in place of a thought where there is none
};

struct ChatDate {
  int year = 0, month = 0, day = 0;
  // Parses "2026-01-31".
  static Result<ChatDate> parse(std::string_view text);
};

// Values for a template beside the conversation.
struct ChatSettings {
  std::optional<std::string> bos = {}, eos = {};  // the tokens' text, where the tokenizer has them
  std::optional<ChatDate> date = {};              // "today", for templates that ask
  std::vector<std::pair<std::string, std::string>> tokens = {};  // others by their names, such as pad_token
  std::vector<std::string> stops = {};                           // tokens that end generation, beside eos
  ChatValue kwargs = {};                                         // variables, an object or null
};

// The first and the last token that a folder's files name (tokenizer/beside.h).
Result<ChatSettings> special_tokens_of(const std::filesystem::path& folder);

// Immutable; any thread may use it.
class ChatTemplate {
 public:
  // Errors name line and column.
  static Result<ChatTemplate> parse(std::string_view text, ChatSettings settings,
                                    std::string_view source = {});

  // That of a checkpoint: chat_template.jinja, or "chat_template" in tokenizer_config.json or in
  // chat_template.json, with the tokens of tokenizer_config.json. `name` chooses one of several, or one of
  // chat_template_names(), or is a file that ends in .jinja; empty: "default". An error where the folder has
  // none has the detail "template", "none".
  // `kwargs`: ChatSettings::kwargs as JSON; empty: none.
  static Result<ChatTemplate> open(const std::filesystem::path& folder, std::string_view name,
                                   std::optional<ChatDate> date, std::string_view kwargs = {});

  // Such as "qwen3", of a text that is known under a name; "unnamed (HASH)" otherwise.
  std::string_view name() const;
  bool asks_date() const;  // whether what it renders depends on the date
  bool marks() const;      // whether it has {% generation %}
  // Whether it has this word, such as a key of messages.
  bool mentions(std::string_view word) const;
  // Whether it reads this variable, such as one of chat_template_kwargs; and which of ChatSettings::kwargs it
  // does not.
  bool reads(std::string_view variable) const;
  std::vector<std::string> unread() const;
  // The text, with the variables of ChatSettings::kwargs set where nobody sets them.
  std::string text() const;
  std::string_view source() const;  // the file that it is of, or where else it comes from
  // Whether some of what Sluice 0.2 learnt with it is not learnt now.
  bool marks_anew() const;
  // Equal for templates and settings that render the same.
  std::string identity() const;
  // Errors name the message and the reason.
  Result<RenderedChat> render(const Conversation& conversation) const;
  // The shape of an answer without thoughts, and with them; empty where the template shows neither.
  AnswerShape answer() const;
  // The same as render(); an assistant is to speak next, or goes on.
  Result<ChatPrompt> prompt(const Conversation& conversation) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

// The names of texts that come with Sluice, for models that have no template.
std::vector<std::string_view> chat_template_names();

}  // namespace sluice::core
