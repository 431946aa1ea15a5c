// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "base/hash.h"
#include "chat/origins.h"
#include "chat/texts.h"
#include "chat/turns.h"
#include "jinja/template.h"

namespace sluice::core {
namespace {

using Kind = ChatValue::Kind;

constexpr std::string_view kThoughts[] = {"reasoning_content", "thinking", "reasoning"};

bool says_nothing(const std::string& key, const ChatValue& value) {
  return value.is_null() || (key == "tool_calls" && value.is_array() && value.items.empty());
}

bool says_something(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") != text.npos;
}

Status check_content(const ChatValue& content, size_t index) {
  const auto bad = [&](std::string text) { return error("messages[{}]: {}", index, text); };
  for (const ChatValue& part : content.items) {
    const ChatValue* type = part.find("type");
    const ChatValue* text = part.find("text");
    if (type != nullptr && type->text != "text")
      return bad(
          fmt::format("content has a part of the type {:.40}, and models of text read texts only; leave the "
                      "part out, or such records with data.malformed = skip",
                      type->is_string() ? type->text : to_json(*type)));
    if (text == nullptr || !text->is_string())
      return bad(
          fmt::format("content has a part that is no text: {:.60}; allowed are {{\"type\": \"text\", "
                      "\"text\": \"...\"}}",
                      to_json(part)));
  }
  return {};
}

// Oddities of a conversation that may have to be said otherwise.
struct Oddities {
  bool lists = false;      // content that is a list of texts
  bool silent = false;     // calls without content
  bool arguments = false;  // arguments that are a string
};

// Whose what the template is told is, beside tools and documents.
constexpr ChatOrigin kKwargs{-1, ChatField::Role};
// These come from the conversation.
constexpr std::string_view kOwnVariables[] = {"messages", "tools", "documents", "add_generation_prompt"};

// `key` says where they stand.
Status check_kwargs(std::string_view key, const ChatValue& kwargs) {
  if (!kwargs.is_null() && !kwargs.is_object())
    return error("{} is {}, no object of the template's variables", key, kwargs.kind_text());
  for (const std::string_view name : kOwnVariables) {
    if (kwargs.find(name) != nullptr)
      return error("{} has {}, which a record says by itself; leave it out", key, name);
  }
  return {};
}

// Messages without what says nothing: keys that are null, lists of no tool calls. What was thought stands
// under every name that templates know for it.
Result<Conversation> plain(const Conversation& conversation, Oddities& odd) {
  if (conversation.messages.empty()) return error("a conversation without messages");
  Conversation result = conversation;
  for (size_t i = 0; i < result.messages.size(); ++i) {
    ChatValue& message = result.messages[i];
    if (!message.is_object()) return error("messages[{}] is {}, no object", i, message.kind_text());
    std::erase_if(message.members,
                  [](const auto& member) { return says_nothing(member.first, member.second); });
    const ChatValue* role = message.find("role");
    if (role == nullptr || !role->is_string()) return error("messages[{}] has no role", i);
    const ChatValue* calls = message.find("tool_calls");
    if (calls != nullptr && !calls->is_array())
      return error("messages[{}]: tool_calls is {}, no list", i, calls->kind_text());
    const ChatValue* content = message.find("content");
    odd.silent = odd.silent || (calls != nullptr && content == nullptr);
    if (content != nullptr && content->is_array() && role->text != "tool") {
      SLUICE_TRY(check_content(*content, i));
      odd.lists = true;
    }
    for (const ChatValue& call : calls == nullptr ? std::vector<ChatValue>() : calls->items) {
      const ChatValue* function = call.find("function") != nullptr ? call.find("function") : &call;
      const ChatValue* arguments = function->find("arguments");
      odd.arguments = odd.arguments || (arguments != nullptr && arguments->is_string());
    }
    for (const std::string_view key : kThoughts) {
      const ChatValue* thought = message.find(key);
      if (thought == nullptr) continue;
      const ChatValue copy = *thought;
      for (const std::string_view other : {"reasoning_content", "thinking"}) {
        ChatValue* known = message.find(other);
        if (known == nullptr) message.members.emplace_back(other, copy);
        if (known != nullptr && other == "reasoning_content") *known = copy;
      }
      break;
    }
  }
  SLUICE_TRY(check_kwargs("chat_template_kwargs", result.kwargs));
  if (!result.documents.is_null() && !result.documents.is_array())
    return error("documents is {}, no list", result.documents.kind_text());
  if (!result.tools.is_null() && !result.tools.is_array())
    return error("tools is {}, no list", result.tools.kind_text());
  return result;
}

// Whether of every list of texts all is in the text, but for white space around its parts.
bool shows_lists(const Conversation& conversation, const jinja::Rendering& rendering) {
  std::vector<size_t> shown(conversation.messages.size());
  size_t begin = 0;
  for (const auto& run : rendering.text.runs()) {
    const size_t bytes = run.end - std::exchange(begin, run.end);
    if ((run.origin & ~jinja::kMarked) == jinja::kTemplate) continue;
    const ChatOrigin origin = chat_origin(run.origin);
    if (origin.message >= 0 && origin.field == ChatField::Content) shown[size_t(origin.message)] += bytes;
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const ChatValue* content = conversation.messages[i].find("content");
    size_t said = 0;
    for (const ChatValue& part : content != nullptr ? content->items : std::vector<ChatValue>()) {
      const ChatValue* text = part.find("text");
      const auto rest =
          text == nullptr ? jinja::Stripped{0, 0} : jinja::stripped(text->text, nullptr, true, true);
      said += rest.end - rest.begin;
    }
    if (shown[i] < said) return false;
  }
  return true;
}

void say_lists_as_text(Conversation& conversation) {
  for (ChatValue& message : conversation.messages) {
    ChatValue* content = message.find("content");
    if (content == nullptr || !content->is_array() || message.find("role")->text == "tool") continue;
    std::string text;
    for (const ChatValue& part : content->items) text += part.find("text")->text;
    *content = ChatValue::string(text);
  }
}

void say_nothing_beside_calls(Conversation& conversation) {
  for (ChatValue& message : conversation.messages) {
    if (message.find("tool_calls") != nullptr && message.find("content") == nullptr)
      message.members.emplace_back("content", ChatValue::string(""));
  }
}

// Arguments that are no object, by their messages.
using BadArguments = std::vector<std::pair<int32_t, Error>>;

// OpenAI's arguments are a string that holds an object; none are {}. Those that cannot be read are {}, too:
// they matter where the template shows calls.
BadArguments read_arguments(Conversation& conversation) {
  BadArguments bad;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    ChatValue* calls = conversation.messages[i].find("tool_calls");
    if (calls == nullptr) continue;
    for (ChatValue& call : calls->items) {
      ChatValue* function = call.find("function") != nullptr ? call.find("function") : &call;
      ChatValue* arguments = function->find("arguments");
      if (arguments == nullptr || !arguments->is_string()) continue;
      ChatValue object;
      object.kind = Kind::Object;
      if (says_something(arguments->text)) {
        auto parsed = parse_value(arguments->text);
        const ChatValue* name = function->find("name");
        if (parsed.ok() && parsed->is_object()) {
          object = std::move(*parsed);
        } else {
          bad.emplace_back(int32_t(i),
                           error("messages[{}]: arguments of {}: a string that holds no JSON object: {:.60}",
                                 i, name == nullptr ? "a call" : name->text, arguments->text));
        }
      }
      *arguments = std::move(object);
    }
  }
  return bad;
}

// Errors where the call of a message is shown.
Status check_shown(const BadArguments& bad, const jinja::Text& text) {
  if (bad.empty()) return {};
  for (const auto& run : text.runs()) {
    if ((run.origin & ~jinja::kMarked) == jinja::kTemplate) continue;
    const ChatOrigin origin = chat_origin(run.origin);
    if (origin.field != ChatField::Calls && origin.field != ChatField::Arguments) continue;
    for (const auto& [message, error] : bad) {
      if (message == origin.message) return error;
    }
  }
  return {};
}

int64_t bytes_of(const ChatValue& value) {
  auto bytes = int64_t(value.text.size());
  for (const ChatValue& item : value.items) bytes += bytes_of(item);
  for (const auto& [key, item] : value.members) bytes += int64_t(key.size()) + bytes_of(item);
  return bytes;
}

ChatValue turn(std::string_view role, std::string_view content) {
  ChatValue message;
  message.kind = Kind::Object;
  message.members = {{"role", ChatValue::string(role)}, {"content", ChatValue::string(content)}};
  return message;
}

Conversation as_lists(Conversation conversation) {
  for (ChatValue& message : conversation.messages) {
    ChatValue part;
    part.kind = Kind::Object;
    ChatValue& content = *message.find("content");
    part.members = {{"type", ChatValue::string("text")}, {"text", std::move(content)}};
    content = {};
    content.kind = Kind::Array;
    content.items = {std::move(part)};
  }
  return conversation;
}

// Stands behind the words of an answer that goes on, as in transformers, and shows by its blank whether the
// template strips them. Some templates look for it.
constexpr std::string_view kGoesOn = "CONTINUE_FINAL_MESSAGE_TAG ";

Status mark_going_on(ChatValue& message) {
  ChatValue* content = message.find("content");
  if (content != nullptr && content->is_array() && !content->items.empty())
    content = content->items.back().find("text");
  if (content == nullptr || !content->is_string())
    return error("the last message has no words that an answer could begin with");
  content->text += kGoesOn;
  return {};
}

Status cut_at_mark(RenderedChat& chat) {
  const size_t mark = chat.text.rfind(kGoesOn.substr(0, kGoesOn.size() - 1));
  if (mark == std::string::npos)
    return error("the chat template does not show the words of the last message as they are");
  const bool strips = !std::string_view(chat.text).substr(mark).starts_with(kGoesOn);
  chat.text.resize(mark);
  if (strips) chat.text.resize(jinja::stripped(chat.text, nullptr, false, true).end);
  const size_t end = chat.text.size();
  std::erase_if(chat.pieces, [&](const ChatPiece& piece) { return piece.begin >= end; });
  if (!chat.pieces.empty()) chat.pieces.back().end = std::min(chat.pieces.back().end, end);
  return {};
}

// As a literal of a template, which writes null as none.
std::string literal(ChatValue value) {
  const std::function<void(ChatValue&)> rename = [&](ChatValue& v) {
    if (v.is_null()) v.kind = Kind::Number, v.text = "none";
    for (ChatValue& item : v.items) rename(item);
    for (auto& [key, item] : v.members) rename(item);
  };
  rename(value);
  return to_json(value);
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template made;
  ChatSettings settings;
  std::string name, text;
  std::string source = {};
  // As KnownText has it.
  bool known = false, names_date = false, learnt_unthought = false, left_system = false;
  bool takes_strings = false;  // it asks whether a call's arguments are a string
  TurnMarks marks = {};

  Result<jinja::Rendering> render_as_it_is(const Conversation& conversation, bool prompt,
                                           std::optional<ChatDate> date) const;
  Result<jinja::Rendering> render(Conversation& conversation, const Oddities& odd, bool prompt) const;
  RenderedChat finish(const Conversation& conversation, const jinja::Rendering& rendering) const;
  void probe();
};

Result<jinja::Rendering> ChatTemplate::Impl::render_as_it_is(const Conversation& conversation, bool prompt,
                                                             std::optional<ChatDate> date) const {
  using jinja::Value;
  jinja::Inputs inputs;
  auto messages = std::make_shared<jinja::List>();
  for (const ChatValue& message : conversation.messages) {
    messages->items.push_back(message_to_jinja(message, int32_t(messages->items.size())));
    messages->holds(messages->items.back());
    inputs.bytes += bytes_of(message);
  }
  inputs.bytes += bytes_of(conversation.tools) + bytes_of(conversation.documents) +
                  bytes_of(settings.kwargs) + bytes_of(conversation.kwargs);
  const auto add = [&](std::string_view key, Value value) {
    inputs.variables.emplace_back(key, std::move(value));
  };
  add("messages", Value::of(std::move(messages)));
  add("tools", to_jinja(conversation.tools, {}));
  add("documents", to_jinja(conversation.documents, {-1, ChatField::Content}));
  add("add_generation_prompt", Value::of(prompt));
  for (const auto& [token, shown] : settings.tokens) add(token, Value::string(jinja::plain(shown)));
  if (settings.bos) add("bos_token", Value::string(jinja::plain(*settings.bos)));
  if (settings.eos) add("eos_token", Value::string(jinja::plain(*settings.eos)));
  for (const auto& [key, value] : conversation.kwargs.members) add(key, to_jinja(value, kKwargs));
  for (const auto& [key, value] : settings.kwargs.members) {
    if (conversation.kwargs.find(key) == nullptr) add(key, to_jinja(value, kKwargs));
  }
  if (date) inputs.today = jinja::Day{date->year, date->month, date->day};
  auto rendering = made.render(inputs);
  if (!rendering.ok()) return error_at("chat template", rendering.error());
  return rendering;
}

// Rewrites unsupported parts of a conversation for the template, one after the other.
Result<jinja::Rendering> ChatTemplate::Impl::render(Conversation& conversation, const Oddities& odd,
                                                    bool prompt) const {
  const BadArguments bad = odd.arguments && !takes_strings ? read_arguments(conversation) : BadArguments();
  auto rendering = render_as_it_is(conversation, prompt, settings.date);
  if (odd.lists && (!rendering.ok() || rendering->printed_list || !shows_lists(conversation, *rendering))) {
    say_lists_as_text(conversation);
    rendering = render_as_it_is(conversation, prompt, settings.date);
  }
  if (odd.silent && !rendering.ok()) {
    say_nothing_beside_calls(conversation);
    auto again = render_as_it_is(conversation, prompt, settings.date);
    if (again.ok()) rendering = std::move(again);
  }
  if (rendering.ok()) SLUICE_TRY(check_shown(bad, rendering->text));
  return rendering;
}

RenderedChat ChatTemplate::Impl::finish(const Conversation& conversation,
                                        const jinja::Rendering& rendering) const {
  const auto& messages = conversation.messages;
  RenderedChat chat;
  chat.text = rendering.text.bytes();
  std::vector<bool> answers(messages.size()), shown(messages.size()), thought(messages.size()),
      called(messages.size());
  std::vector<Speaker> speakers;
  for (const ChatValue& message : messages) speakers.push_back(speaker_of(message.find("role")->text));
  for (size_t i = 0; i < messages.size(); ++i) answers[i] = speakers[i] == Speaker::Assistant;
  Turns turns = turns_of(rendering.text, speakers, marks);
  chat.pieces = std::move(turns.pieces);
  if (learnt_unthought) chat.renewed = std::move(turns.unthought);
  for (size_t i = 0; left_system && i < messages.size(); ++i) {
    if (messages[i].find("role")->text == "system") chat.renewed.push_back(int32_t(i));
  }
  bool tools = false;
  for (const auto& run : rendering.text.runs()) {
    if ((run.origin & ~jinja::kMarked) == jinja::kTemplate) continue;
    const ChatOrigin origin = chat_origin(run.origin);
    if (origin.message < 0) {
      tools = tools || origin.field == ChatField::Other;
      continue;
    }
    const auto i = size_t(origin.message);
    shown[i] = true;
    thought[i] = thought[i] || origin.field == ChatField::Thought;
    called[i] = called[i] || origin.field == ChatField::Calls || origin.field == ChatField::Arguments;
  }
  chat.lacks_tools = !conversation.tools.items.empty() && !tools;
  // A message without content has nothing to show.
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatValue* content = messages[i].find("content");
    const bool says = messages[i].find("tool_calls") != nullptr ||
                      (content != nullptr && (!content->is_string() || says_something(content->text)));
    chat.lacks_messages += says && !shown[i] ? 1 : 0;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatValue* reason = messages[i].find("reasoning_content");
    const bool thinks = reason != nullptr && reason->is_string() && says_something(reason->text);
    chat.lacks_reasoning = chat.lacks_reasoning || (answers[i] && thinks && !thought[i]);
    chat.lacks_tool_calls =
        chat.lacks_tool_calls || (messages[i].find("tool_calls") != nullptr && !called[i]);
  }
  return chat;
}

// How the template writes turns is seen from conversations of which everything is known.
void ChatTemplate::Impl::probe() {
  const ChatDate date = settings.date.value_or(ChatDate{2025, 1, 1});
  const Conversation asked{{turn("user", "Qa1")}, {}};
  const Conversation chat{
      {turn("user", "Qa1"), turn("assistant", "Ab2"), turn("user", "Qc3"), turn("assistant", "Ad4")}, {}};
  std::vector<std::string> stops = settings.stops;
  if (settings.eos) stops.push_back(*settings.eos);
  const auto look = [&](const Conversation& one, const Conversation& two) {
    const auto question = render_as_it_is(one, false, date), prompt = render_as_it_is(one, true, date),
               whole = render_as_it_is(two, false, date);
    if (question.ok() && prompt.ok() && whole.ok())
      marks = turn_marks(question->text, prompt->text, whole->text, stops);
  };
  look(asked, chat);
  // Some templates show texts in lists alone.
  if (marks.ends.empty()) look(as_lists(asked), as_lists(chat));
  const auto call = parse_value(
      R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "abcdefghi",
          "function": {"name": "f", "arguments": "{\"a\": 1}"}}]})");
  const auto called = render_as_it_is({{turn("user", "Qa1"), *call}, {}}, false, date);
  takes_strings =
      called.ok() && std::any_of(called->asked.begin(), called->asked.end(), [](jinja::Origin origin) {
        return chat_origin(origin).field == ChatField::Arguments;
      });
}

std::vector<std::string_view> chat_template_names() {
  std::vector<std::string_view> names;
  for (const ChatText& text : chat_texts()) names.push_back(text.name);
  return names;
}

Result<ChatDate> ChatDate::parse(std::string_view text) {
  constexpr int kDays[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  ChatDate date;
  const auto number = [&](size_t at, size_t size, int& value) {
    const char* end = text.data() + at + size;
    const auto [stop, failed] = std::from_chars(text.data() + at, end, value);
    return failed == std::errc() && stop == end && text[at] != '-';
  };
  const bool good = text.size() == 10 && text[4] == '-' && text[7] == '-' && number(0, 4, date.year) &&
                    number(5, 2, date.month) && number(8, 2, date.day) && date.month >= 1 &&
                    date.month <= 12 && date.day >= 1 && date.day <= kDays[date.month - 1];
  if (!good) return error("'{}' is no date; dates are written YYYY-MM-DD", text);
  return date;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, ChatSettings settings,
                                         std::string_view source) {
  SLUICE_TRY(check_kwargs("data.template_kwargs", settings.kwargs));
  auto made = jinja::Template::parse(text);
  if (!made.ok()) {
    Error bad = error_at("chat template", made.error());
    return source.empty() ? bad : error_at(std::string(source), bad);
  }
  SLUICE_ASSIGN(const uint64_t hash, jinja::fingerprint(text));
  const KnownText* known = known_text(hash);
  auto impl = std::make_shared<Impl>(
      Impl{std::move(*made), std::move(settings),
           known != nullptr ? std::string(known->name) : fmt::format("unnamed ({:016x})", hash),
           std::string(text), std::string(source)});
  impl->known = known != nullptr;
  impl->names_date = known != nullptr && known->names_date;
  impl->learnt_unthought = known != nullptr && known->learnt_unthought;
  impl->left_system = known != nullptr && known->left_system;
  impl->probe();
  return ChatTemplate(std::move(impl));
}

std::string_view ChatTemplate::name() const {
  return impl_->name;
}

bool ChatTemplate::asks_date() const {
  return impl_->names_date || impl_->made.reads("strftime_now");
}

bool ChatTemplate::marks_anew() const {
  return impl_->learnt_unthought;
}

bool ChatTemplate::marks() const {
  const std::string& text = impl_->text;
  for (size_t at = text.find("{%"); at != text.npos; at = text.find("{%", at + 2)) {
    const size_t word = text.find_first_not_of("-+ \t\r\n", at + 2);
    if (word != text.npos && std::string_view(text).substr(word).starts_with("generation")) return true;
  }
  return false;
}

bool ChatTemplate::mentions(std::string_view word) const {
  const std::string& text = impl_->text;
  const auto is_letter = [&](size_t at) {
    return at < text.size() && (std::isalnum(uint8_t(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (!is_letter(at + word.size()) && !(at > 0 && is_letter(at - 1))) return true;
  }
  return false;
}

bool ChatTemplate::reads(std::string_view variable) const {
  return impl_->made.reads(variable);
}

std::vector<std::string> ChatTemplate::unread() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : impl_->settings.kwargs.members) {
    if (!reads(key)) names.push_back(key);
  }
  return names;
}

std::string ChatTemplate::text() const {
  std::string text;
  for (const auto& [key, value] : impl_->settings.kwargs.members)
    text += fmt::format("{{%- if {0} is not defined %}}{{% set {0} = {1} %}}{{% endif -%}}\n", key,
                        literal(value));
  return text + impl_->text;
}

std::string_view ChatTemplate::source() const {
  return impl_->source;
}

std::string ChatTemplate::identity() const {
  const ChatSettings& settings = impl_->settings;
  const auto& date = settings.date;
  const bool dated = impl_->known ? impl_->names_date : asks_date();
  const std::string day =
      dated && date ? fmt::format("{:04}-{:02}-{:02}", date->year, date->month, date->day) : "";
  std::string identity =
      fmt::format("{} '{}' '{}' {}", name(), settings.bos.value_or(""), settings.eos.value_or(""), day);
  for (const auto& [token, text] : settings.tokens) {
    if (impl_->made.reads(token)) identity += fmt::format(" {} '{}'", token, text);
  }
  for (const auto& [key, value] : settings.kwargs.members) {
    if (impl_->made.reads(key)) identity += fmt::format(" {} = {}", key, to_json(value));
  }
  return identity;
}

Result<RenderedChat> ChatTemplate::render(const Conversation& conversation) const {
  Oddities odd;
  SLUICE_ASSIGN(Conversation chat, plain(conversation, odd));
  SLUICE_ASSIGN(const jinja::Rendering rendering, impl_->render(chat, odd, false));
  return impl_->finish(chat, rendering);
}

Result<ChatPrompt> ChatTemplate::prompt(const Conversation& conversation) const {
  Oddities odd;
  SLUICE_ASSIGN(Conversation chat, plain(conversation, odd));
  const bool goes_on = chat.messages.back().find("role")->text == "assistant";
  if (goes_on) SLUICE_TRY(mark_going_on(chat.messages.back()));
  SLUICE_ASSIGN(const jinja::Rendering rendering, impl_->render(chat, odd, !goes_on));
  const auto& ends = impl_->marks.ends;
  ChatPrompt prompt{impl_->finish(chat, rendering), ends.empty() ? "" : ends.front()};
  if (goes_on) SLUICE_TRY(cut_at_mark(prompt.chat));
  return prompt;
}

AnswerShape ChatTemplate::answer() const {
  const auto stretch = [](std::string_view text, size_t begin, size_t end) {
    return begin < end && end <= text.size() ? std::string(text.substr(begin, end - begin)) : "";
  };
  // Where a turn begins and ends.
  const auto turn_of = [](const RenderedChat& chat, int32_t message) {
    std::pair<size_t, size_t> turn{chat.text.size(), 0};
    for (const ChatPiece& piece : chat.pieces) {
      if (!piece.own || piece.message != message) continue;
      turn = {std::min(turn.first, piece.begin), piece.end};
    }
    return turn;
  };
  const auto render_either = [&](const Conversation& chat) {
    auto rendered = render(chat);
    return rendered.ok() && rendered->text.find("Ad4") != std::string::npos ? rendered
                                                                            : render(as_lists(chat));
  };
  AnswerShape shape;
  Conversation chat{
      {turn("user", "Qa1"), turn("assistant", "Ab2"), turn("user", "Qc3"), turn("assistant", "Ad4")}, {}};
  const auto rendered = render_either(chat);
  if (!rendered.ok()) return shape;
  const std::string& text = rendered->text;
  const auto first = turn_of(*rendered, 1), last = turn_of(*rendered, 3);
  const size_t asked = text.find("Qc3") + 3;
  const std::string before = stretch(text, asked, last.first);
  shape.header = before;
  for (const std::string& header : impl_->marks.headers) {
    const size_t at = before.rfind(header);
    if (header.empty() || at == before.npos) continue;
    shape.header = header;
    shape.unthought = before.substr(at + header.size());
    break;
  }
  shape.end = stretch(text, text.find("Ab2") + 3, first.second);
  shape.last_end = stretch(text, text.find("Ad4") + 3, last.second);
  if (shape.last_end == shape.end) shape.last_end.clear();
  chat.messages[3].members.emplace_back("reasoning_content", ChatValue::string("Te5"));
  const auto thinking = render_either(chat);
  const size_t thought = thinking.ok() ? thinking->text.find("Te5") : std::string::npos;
  if (thought != std::string::npos)
    shape.thought = stretch(thinking->text, turn_of(*thinking, 3).first, thought) + "..." +
                    stretch(thinking->text, thought + 3, thinking->text.find("Ad4"));
  return shape;
}

}  // namespace sluice::core
