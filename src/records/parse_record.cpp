// SPDX-License-Identifier: Apache-2.0
// A record's keys to what they mean together.
#include <algorithm>
#include <charconv>

#include "records/chat_record.h"
#include "records/keys.h"
#include "records/preference.h"
#include "records/record.h"
#include "records/table_reader.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

// A prompt under one of these names has an answer under one of those. `input` is what an instruction is
// about, or what is asked where nothing else is.
constexpr std::string_view kAsked[] = {"prompt", "instruction", "INSTRUCTION", "question", "query"};
constexpr std::string_view kAnswers[] = {"completion", "response", "RESPONSE",
                                         "output",     "answer",   "generation"};
constexpr std::string_view kContexts[] = {"input", "context"};
constexpr std::string_view kSystems[] = {"system", "system_prompt"};
// These belong to a question.
constexpr std::string_view kBeside[] = {"input", "context",   "system",    "system_prompt",       "history",
                                        "tools", "functions", "documents", "chat_template_kwargs"};
// Keys that Sluice 0.1.0 read.
constexpr std::string_view kFirstKeys[] = {"messages", "conversations", "tools", "system",
                                           "prompt",   "completion",    "text",  "learnt"};

bool among(std::string_view key, auto& names) {
  return std::find(std::begin(names), std::end(names), key) != std::end(names);
}

const ChatValue* present(const ChatValue& object, std::string_view key) {
  const ChatValue* value = key.empty() ? nullptr : object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The one of these that the object has; empty: none. Errors: two of them say something.
Result<std::string_view> one_of(const ChatValue& object, auto& names, std::string_view field) {
  std::string_view found;
  for (const std::string_view name : names) {
    const ChatValue* value = present(object, name);
    if (value == nullptr) continue;
    const bool two = !found.empty() && says_something(*value) && says_something(*object.find(found));
    if (two)
      return error("both {} and {} may be the {}: data.fields.{} says which is", found, name, field, field);
    if (found.empty() || says_something(*value)) found = name;
  }
  return found;
}

// Which keys have what: as they are known, or as data.fields says.
struct Names {
  std::string_view text = "text", prompt, completion, messages;
  bool given = false;  // by data.fields

  // Whether prompt and completion are a question and its answer, and not two parts of one text.
  bool ask() const { return given || prompt != "prompt" || completion != "completion"; }
};

std::string first_text(const ChatValue& object, auto& names) {
  for (const std::string_view name : names) {
    const ChatValue* value = present(object, name);
    if (value != nullptr && value->is_string() && !value->text.empty()) return value->text;
  }
  return {};
}

Result<Record> marked_of(ChatValue& object) {
  Record record;
  record.kind = Record::Kind::Marked;
  record.form = "text with what is learnt of it";
  SLUICE_ASSIGN(record.text, take_string(object, "text"));
  const ChatValue& list = *object.find("learnt");
  const auto number = [](const ChatValue& value, size_t& out) {
    const char* end = value.text.data() + value.text.size();
    return value.kind == ChatValue::Kind::Number && std::from_chars(value.text.data(), end, out).ptr == end;
  };
  size_t last = 0;
  if (!list.is_array()) return error("learnt is {}, no list", list.kind_text());
  for (const ChatValue& item : list.items) {
    size_t begin = 0, end = 0;
    const bool good = item.items.size() == 2 && number(item.items[0], begin) && number(item.items[1], end) &&
                      begin >= last && begin <= end && end <= record.text.size();
    if (!good)
      return error("learnt: {:.40}; it holds [begin, end] in bytes of the text, which rise up to {}",
                   to_json(item), record.text.size());
    record.learnt.emplace_back(begin, end);
    last = end;
  }
  return record;
}

// axolotl's pieces of a text, each with whether it is learnt.
Result<Record> segments_of(ChatValue& object) {
  Record record;
  record.kind = Record::Kind::Marked;
  record.form = "segments";
  record.read_anew = true;
  ChatValue& list = *object.find("segments");
  if (!list.is_array())
    return error("segments is {}; allowed is a list of {{\"label\": true, \"text\": \"...\"}}",
                 list.kind_text());
  for (size_t i = 0; i < list.items.size(); ++i) {
    const std::string place = fmt::format("segments[{}]", i);
    const ChatValue* label = list.items[i].find("label");
    if (label == nullptr || label->kind != ChatValue::Kind::Boolean)
      return error("{}: label is {}; allowed are true, where the text is learnt, and false", place,
                   label == nullptr ? "missing" : label->kind_text());
    auto text = take_string(list.items[i], "text");
    if (!text.ok()) return error_at(place, text.error());
    const size_t begin = record.text.size();
    record.text += *text;
    if (label->boolean) record.learnt.emplace_back(begin, record.text.size());
  }
  return record;
}

Result<Record> chat_of(ChatValue& object, std::string_view key, const RecordOptions& options) {
  Record record;
  record.kind = Record::Kind::Chat;
  record.form = key;
  SLUICE_TRY(add_messages(object, key, options, record));
  const std::string system = first_text(object, kSystems);
  const ChatValue& first = record.chat.messages.front();
  const bool has_one = first.find("role")->text == "system";
  const bool share_gpt = key == "conversations" && present(object, "system") != nullptr;
  if (!system.empty() && (share_gpt || !has_one)) {
    add_system(system, record);
    record.read_anew |= !share_gpt;
  } else if (const ChatValue* content = first.find("content");
             !system.empty() && (content == nullptr || content->text != system)) {
    record.unused.emplace_back("system");
  }
  SLUICE_TRY(add_tools(object, record));
  return record;
}

// TRL's conversational prompt and completion.
Result<Record> answered_turns_of(ChatValue& object, const Names& names, const RecordOptions& options) {
  Record record;
  record.kind = Record::Kind::Chat;
  record.form = fmt::format("{} and {} as messages", names.prompt, names.completion);
  record.read_anew = true;
  SLUICE_TRY(add_messages(object, names.prompt, options, record));
  record.chat.answers_from = record.chat.messages.size();
  SLUICE_TRY(add_messages(object, names.completion, options, record));
  SLUICE_TRY(add_tools(object, record));
  return record;
}

Result<Record> pair_of(ChatValue& object, const Names& names, const RecordOptions& options) {
  const ChatValue *prompt = present(object, names.prompt), *completion = present(object, names.completion);
  if (prompt->is_array() && completion->is_array()) return answered_turns_of(object, names, options);
  if (prompt->is_array() != completion->is_array())
    return error("{} is {}, and {} {}: both are texts, or both lists of messages", names.prompt,
                 prompt->kind_text(), names.completion, completion->kind_text());
  Record record;
  record.kind = Record::Kind::Pair;
  record.asks = names.ask();
  record.read_anew = record.asks;
  record.form = names.prompt;
  if (record.asks) {
    for (const std::string_view name : kContexts) {
      if (name == names.prompt || name == names.completion) continue;
      const ChatValue* value = present(object, name);
      if (value == nullptr) continue;
      SLUICE_ASSIGN(std::string context, take_string(object, name));
      if (context.empty()) continue;
      record.context += (record.context.empty() ? "" : "\n\n") + std::move(context);
      record.form += fmt::format(" and {}", name);
    }
    record.system = first_text(object, kSystems);
    SLUICE_TRY(add_history(object, record));
    SLUICE_TRY(add_tools(object, record));
    record.read_later |= !record.chat.tools.items.empty();
    if (!record.history.empty()) record.form += " and history";
  }
  record.form += fmt::format("{}{}", record.asks ? ", answered by " : " and ", names.completion);
  SLUICE_ASSIGN(record.text, take_string(object, names.prompt));
  SLUICE_ASSIGN(const std::string answer, take_string(object, names.completion));
  record.completion = record.text.size();
  record.text += answer;
  return record;
}

Result<Record> text_record(ChatValue& object, std::string_view key) {
  Record record;
  record.form = key;
  record.read_anew = key != "text";
  SLUICE_ASSIGN(record.text, take_string(object, key));
  return record;
}

// Takes the names of data.fields that the record has.
Names given_names(const ChatValue& object, const FieldNames& fields) {
  Names names;
  if (present(object, fields.messages) != nullptr) names.messages = fields.messages;
  if (present(object, fields.prompt) != nullptr && present(object, fields.completion) != nullptr)
    names.prompt = fields.prompt, names.completion = fields.completion;
  if (present(object, fields.text) != nullptr) names.text = fields.text;
  names.given = !names.messages.empty() || !names.prompt.empty() || names.text != "text";
  return names;
}

Error nothing_known(const ChatValue& object, const RecordOptions& options) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.members) keys.push_back(key);
  const FieldNames& f = options.fields;
  const auto hint = [&]() -> std::string {
    if (object.find("role") != nullptr || object.find("from") != nullptr)
      return "a conversation is a list of such under messages";
    if (!f.prompt.empty())
      return fmt::format("data.fields.prompt = {} and data.fields.completion = {} are not there both",
                         f.prompt, f.completion);
    return fmt::format(
        "data.fields.prompt and data.fields.completion say which keys are a question and its answer, "
        "data.fields.messages and data.fields.text which is a conversation or text{}",
        keys.size() == 1
            ? fmt::format("; if {0} holds the records, jq -c '.[\"{0}\"][]' takes them out", keys[0])
            : "");
  };
  return error(
      "none of messages, conversations, prompt and completion, question and answer, text; its keys are: "
      "{:.120}; {}",
      fmt::format("{}", fmt::join(keys, ", ")), hint());
}

// A question and its answer under the names that are usual.
Result<Names> asked_names(const ChatValue& object) {
  Names names;
  SLUICE_ASSIGN(names.prompt, one_of(object, kAsked, "prompt"));
  SLUICE_ASSIGN(names.completion, one_of(object, kAnswers, "completion"));
  if (names.prompt.empty() && present(object, "input") != nullptr && !names.completion.empty())
    names.prompt = "input";
  if (!names.prompt.empty() && names.completion.empty())
    return error(
        "{} without an answer: nothing would be learnt of it. data.fields.completion says which key has it",
        names.prompt);
  if (names.prompt.empty()) names.completion = {};
  return names;
}

// An error where a key that no form reads says why there is none.
Status check_formless(const ChatValue& object) {
  std::vector<std::string> unused;
  const Status checked = check_keys(object, KeysOf::Record, kBeside, unused);
  if (checked.ok() || checked.error().detail("later").empty()) return checked;
  Error wrong = checked.error();
  wrong.details.clear();  // no version took it
  return wrong;
}

// Makes a record of an object, and checks the keys that its form does not read.
Result<Record> made_of(ChatValue& object, const RecordOptions& options, const Names& given) {
  const auto has = [&](std::string_view key) { return present(object, key) != nullptr; };
  const auto checked = [&](KeysOf kind, std::vector<std::string_view> read, auto&& make) -> Result<Record> {
    std::vector<std::string> unused;
    SLUICE_TRY(check_keys(object, kind, read, unused));
    Result<Record> record = make();
    if (record.ok()) record->unused.insert(record->unused.begin(), unused.begin(), unused.end());
    return record;
  };
  const auto chat = [&](std::string_view key) {
    return checked(
        KeysOf::Record,
        {key, "system", "system_prompt", "tools", "functions", "documents", "chat_template_kwargs"},
        [&] { return chat_of(object, key, options); });
  };
  const auto pair = [&](const Names& names) {
    std::vector<std::string_view> read{names.prompt, names.completion};
    if (present(object, names.prompt)->is_array()) {
      read.insert(read.end(), {"tools", "functions", "documents", "chat_template_kwargs"});
    } else if (names.ask()) {
      read.insert(read.end(), std::begin(kBeside), std::end(kBeside));
    }
    return checked(KeysOf::Record, std::move(read), [&] { return pair_of(object, names, options); });
  };
  const auto text = [&](std::string_view key) {
    return checked(KeysOf::Text, {key}, [&] { return text_record(object, key); });
  };
  if (!given.messages.empty()) return chat(given.messages);
  if (!given.prompt.empty()) return pair(given);
  if (given.text != "text") return text(given.text);
  for (const std::string_view key : {"messages", "conversations"}) {
    if (has(key)) return chat(key);
  }
  if (has("prompt") && has("completion")) return pair({.prompt = "prompt", .completion = "completion"});
  if (has("text") && has("learnt"))
    return checked(KeysOf::Text, {"text", "learnt"}, [&] { return marked_of(object); });
  if (has("text")) return text("text");
  if (has("segments")) return checked(KeysOf::Text, {"segments"}, [&] { return segments_of(object); });
  const auto asked = asked_names(object);
  if (asked.ok() && !asked->prompt.empty()) return pair(*asked);
  SLUICE_TRY(check_formless(object));
  return asked.ok() ? nothing_known(object, options) : asked.error();
}

// An object of one answer.
Result<Record> answered_of(ChatValue& object, const RecordOptions& options) {
  bool first_key_ignored = false;
  for (const std::string& key : options.ignore)
    first_key_ignored |= among(key, kFirstKeys) && present(object, key) != nullptr;
  pass_over(object, options.ignore);
  const Names given = given_names(object, options.fields);
  auto record = made_of(object, options, given);
  if (record.ok()) record->read_anew |= first_key_ignored || given.given;
  return record;
}

// The prompt of an answer is all that comes before it; in a conversation the last turn is the answer.
Status expect_answer(Record& record) {
  if (record.kind == Record::Kind::Pair) return {};
  if (record.kind != Record::Kind::Chat)
    return error("{}: the objective compares answers, and here none is told from its prompt",
                 name_of(record.kind));
  const std::vector<ChatValue>& messages = record.chat.messages;
  if (messages.back().find("role")->text != "assistant")
    return error("the last message is by {}; an answer is by the assistant",
                 messages.back().find("role")->text);
  if (record.chat.answers_from == 0) record.chat.answers_from = messages.size() - 1;
  // Marks of what is learnt of a prompt are for supervised training.
  std::fill_n(record.chat.wishes.begin(), record.chat.answers_from, Wish::None);
  return {};
}

Result<Record> pair_of_answers(ChatValue object, const RecordOptions& options) {
  SLUICE_ASSIGN(AnswerPair pair, split_pair(std::move(object)));
  const auto read = [&](ChatValue& answer, const char* name) -> Result<Record> {
    auto record = answered_of(answer, options);
    const Status is_answer = record.ok() ? expect_answer(*record) : Status(record.error());
    return is_answer.ok() ? std::move(record) : Result<Record>(error_at(name, is_answer.error()));
  };
  SLUICE_ASSIGN(Record better, read(pair.chosen, "chosen"));
  SLUICE_ASSIGN(Record worse, read(pair.rejected, "rejected"));
  better.worse.push_back(std::move(worse));
  better.form = std::move(pair.form);
  return better;
}

Result<Record> record_of(ChatValue& object, const RecordOptions& options) {
  if (options.compares == Compares::Nothing) return answered_of(object, options);
  pass_over(object, options.ignore);
  if (options.compares == Compares::Pairs) return pair_of_answers(std::move(object), options);
  SLUICE_ASSIGN(const bool good, take_mark(object));
  SLUICE_ASSIGN(Record record, answered_of(object, options));
  SLUICE_TRY(expect_answer(record));
  record.bad = !good;
  record.form += ", marked";
  return record;
}

// Whether something is read of a key of a record.
auto reads(const RecordOptions& options) {
  return [&options](std::string_view key) {
    const FieldNames& f = options.fields;
    return may_matter(key) || key == "INSTRUCTION" || key == "RESPONSE" || key == f.text || key == f.prompt ||
           key == f.completion || key == f.messages;
  };
}

}  // namespace

Result<Record> parse_record(std::string_view json, const RecordOptions& options) {
  auto object = parse_value(json, reads(options));
  if (!object.ok()) {
    const std::string message = object.message();
    if (message.find("surrogate") != message.npos)
      return error(
          "{}: half of a character, an escape from \\ud800 to \\udfff without its other half; write the "
          "whole "
          "character or none, or leave such records out with data.malformed = skip",
          message.substr(0, message.find(':')));
    const bool no_number = json.find("NaN") != json.npos || json.find("Infinity") != json.npos;
    return error("{}{}", message, no_number ? "; NaN and Infinity are no JSON: write null" : "");
  }
  if (!object->is_object()) {
    return error("{} instead of an object{}", object->kind_text(),
                 object->is_array() ? "; a file has one list, or an object on each line" : "");
  }
  return record_of(*object, options);
}

Result<Record> parse_row(std::string_view row, char separator, const std::vector<std::string>& header,
                         const RecordOptions& options) {
  if (const size_t bad = find_invalid_utf8(row); bad != row.npos)
    return error("byte 0x{:02x} is not UTF-8", static_cast<unsigned char>(row[bad]));
  SLUICE_ASSIGN(std::vector<std::string> fields, fields_of(row, separator, header.size()));
  if (fields.size() != header.size())
    return error("{} fields, where the header has {}", fields.size(), header.size());
  const auto is_read = reads(options);
  // Tables have no null: an empty field says nothing, but where it is what the row is there for.
  const auto answers =
      std::count_if(header.begin(), header.end(), [](const auto& n) { return among(n, kAnswers); });
  const auto counts = [&](const std::string& name) {
    return name == options.fields.completion || (answers == 1 && among(name, kAnswers));
  };
  ChatValue object;
  object.kind = ChatValue::Kind::Object;
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool kept = is_read(header[i]) && (!fields[i].empty() || counts(header[i]));
    object.members.emplace_back(header[i],
                                kept ? ChatValue::string(std::exchange(fields[i], {})) : ChatValue());
  }
  auto record = record_of(object, options);
  if (record.ok()) record->read_anew = true;
  return record;
}

}  // namespace sluice::core
