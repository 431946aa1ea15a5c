// SPDX-License-Identifier: Apache-2.0
#include "records/record.h"

#include <algorithm>
#include <charconv>

#include "records/line_reader.h"
#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

constexpr std::string_view kNames[] = {"text", "prompt and completion", "messages",
                                       "text with what is learnt"};

Status check_string(const ChatValue& object, std::string_view key) {
  const ChatValue* value = object.find(key);
  if (value == nullptr) return error("{} is missing", key);
  if (!value->is_string()) return error("{} is {}, no string", key, value->kind_text());
  return {};
}

Result<std::string> string_of(const ChatValue& object, std::string_view key) {
  SLUICE_TRY(check_string(object, key));
  return object.find(key)->text;
}

// Leaves nothing behind: texts may be long.
Result<std::string> take_string(ChatValue& object, std::string_view key) {
  SLUICE_TRY(check_string(object, key));
  return std::move(object.find(key)->text);
}

// The keys that something is read of.
bool is_read(std::string_view key) {
  constexpr std::string_view kKeys[] = {"messages", "conversations", "tools", "system",
                                        "prompt",   "completion",    "text",  "learnt"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

// A list, or a string that holds one as JSON.
Result<ChatValue> tools_of(const ChatValue& object) {
  const ChatValue* tools = object.find("tools");
  if (tools == nullptr || tools->is_null() || (tools->is_string() && tools->text.empty())) return ChatValue{};
  if (tools->is_string()) {
    auto parsed = parse_value(tools->text);
    if (!parsed.ok()) return error("tools: a string that is no JSON: {}", parsed.message());
    if (parsed->is_array()) return std::move(*parsed);
    return error("tools: a string that holds {}, no list", parsed->kind_text());
  }
  if (!tools->is_array()) return error("tools is {}, no list", tools->kind_text());
  return *tools;
}

ChatValue member(std::string_view key, ChatValue value) {
  ChatValue object;
  object.kind = ChatValue::Kind::Object;
  object.members.emplace_back(key, std::move(value));
  return object;
}

// {"name", "arguments"}, or a list of such, as a turn of the assistant.
Result<ChatValue> calls_of(std::string_view text) {
  auto parsed = parse_value(text);
  if (!parsed.ok()) return error("function_call: value is no JSON: {}", parsed.message());
  ChatValue message = member("role", ChatValue::string("assistant"));
  message.members.emplace_back("content", ChatValue::string(""));
  ChatValue calls;
  calls.kind = ChatValue::Kind::Array;
  std::vector<ChatValue> items;
  if (parsed->is_array()) {
    items = parsed->items;
  } else {
    items.push_back(*parsed);
  }
  for (ChatValue& item : items) {
    ChatValue call = member("type", ChatValue::string("function"));
    call.members.emplace_back("function", std::move(item));
    calls.items.push_back(std::move(call));
  }
  message.members.emplace_back("tool_calls", std::move(calls));
  return message;
}

// ShareGPT's {"from", "value"}.
Result<ChatValue> message_of(const ChatValue& turn) {
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"human", "user"},     {"user", "user"},        {"gpt", "assistant"},         {"chatgpt", "assistant"},
      {"bing", "assistant"}, {"bard", "assistant"},   {"assistant", "assistant"},   {"system", "system"},
      {"tool", "tool"},      {"observation", "tool"}, {"function_response", "tool"}};
  SLUICE_ASSIGN(const std::string from, string_of(turn, "from"));
  SLUICE_ASSIGN(const std::string value, string_of(turn, "value"));
  if (from == "function_call") return calls_of(value);
  const auto* const role = std::find_if(std::begin(kRoles), std::end(kRoles),
                                        [&](const auto& pair) { return pair.first == from; });
  if (role == std::end(kRoles))
    return error(
        "from '{}'; allowed are human, user, gpt, assistant, system, tool, observation, function_call", from);
  ChatValue message = member("role", ChatValue::string(role->second));
  message.members.emplace_back("content", ChatValue::string(value));
  return message;
}

Status check_message(const ChatValue& message) {
  if (!message.is_object()) return error("it is {}, no object", message.kind_text());
  SLUICE_TRY(check_string(message, "role"));
  const ChatValue* content = message.find("content");
  if (content != nullptr && !content->is_null() && !content->is_string() && !content->is_array() &&
      message.find("role")->text != "tool")
    return error("content is {}; allowed are a string and a list of texts", content->kind_text());
  const ChatValue* calls = message.find("tool_calls");
  if ((content == nullptr || content->is_null()) && (calls == nullptr || calls->items.empty()))
    return error("neither content nor tool_calls");
  return {};
}

Result<Record> chat_of(ChatValue& object, std::string_view key) {
  Record record;
  record.kind = Record::Kind::Chat;
  ChatValue& list = *object.find(key);
  if (!list.is_array()) return error("{} is {}, no list", key, list.kind_text());
  if (list.items.empty()) return error("{} is empty", key);
  const ChatValue* system = object.find("system");
  if (key == "conversations" && system != nullptr && system->is_string() && !system->text.empty()) {
    ChatValue message = member("role", ChatValue::string("system"));
    message.members.emplace_back("content", ChatValue::string(system->text));
    record.chat.messages.push_back(std::move(message));
  }
  for (size_t i = 0; i < list.items.size(); ++i) {
    const auto place = [&] { return fmt::format("{}[{}]", key, i); };
    ChatValue& item = list.items[i];
    if (item.find("from") != nullptr && item.find("role") == nullptr) {
      auto message = message_of(item);
      if (!message.ok()) return error_at(place(), message.error());
      record.chat.messages.push_back(std::move(*message));
    } else {
      if (auto checked = check_message(item); !checked.ok()) return error_at(place(), checked.error());
      record.chat.messages.push_back(std::move(item));
    }
  }
  SLUICE_ASSIGN(record.chat.tools, tools_of(object));
  return record;
}

Result<Record> marked_of(ChatValue& object) {
  Record record;
  record.kind = Record::Kind::Marked;
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

}  // namespace

std::string_view name_of(Record::Kind kind) {
  return kNames[size_t(kind)];
}

Result<Record> parse_record(std::string_view line) {
  SLUICE_ASSIGN(ChatValue object, parse_value(line, is_read));
  if (!object.is_object()) {
    return error(
        "{} instead of an object{}", object.kind_text(),
        object.is_array() ? "; JSONL has an object on each line (jq -c '.[]' makes them of a list)" : "");
  }
  if (object.find("messages") != nullptr) return chat_of(object, "messages");
  if (object.find("conversations") != nullptr) return chat_of(object, "conversations");
  if (object.find("prompt") != nullptr && object.find("completion") != nullptr) {
    Record record;
    record.kind = Record::Kind::Pair;
    SLUICE_ASSIGN(record.text, take_string(object, "prompt"));
    SLUICE_ASSIGN(const std::string completion, take_string(object, "completion"));
    record.completion = record.text.size();
    record.text += completion;
    return record;
  }
  if (object.find("text") != nullptr && object.find("learnt") != nullptr) return marked_of(object);
  if (object.find("text") != nullptr) {
    Record record;
    SLUICE_ASSIGN(record.text, take_string(object, "text"));
    return record;
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.members) keys.push_back(key);
  return error("none of messages, conversations, prompt and completion, text; its keys are: {:.120}",
               fmt::format("{}", fmt::join(keys, ", ")));
}

bool is_compressed(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".gz") || name.ends_with(".zst");
}

bool is_jsonl(const std::filesystem::path& path) {
  const std::filesystem::path name = is_compressed(path) ? path.stem() : path.filename();
  return name.extension() == ".jsonl" || name.extension() == ".ndjson" || name.extension() == ".json";
}

class RecordReader::Impl {
 public:
  Impl(std::filesystem::path path, const RecordOptions& options, LineReader lines)
      : path_(std::move(path)), options_(options), lines_(std::move(lines)), is_jsonl_(is_jsonl(path_)) {}

  Result<bool> next(RawRecord& raw) {
    if (!is_jsonl_) {
      if (std::exchange(read_, true)) return false;
      SLUICE_ASSIGN(raw.text, lines_.rest(options_.most_text_bytes));
      return !raw.text.empty();
    }
    while (true) {
      SLUICE_ASSIGN(const bool more, lines_.next(raw.text));
      if (!more) return false;
      if (lines_.line() == 1 && raw.text.starts_with("\xef\xbb\xbf")) raw.text.erase(0, 3);
      if (raw.text.find_first_not_of(" \t\r") != raw.text.npos) break;
    }
    raw.line = lines_.line();
    return true;
  }
  Result<Record> parse(RawRecord& raw) const {
    if (is_jsonl_) {
      auto record = parse_record(raw.text);
      raw.text = {};
      return record;
    }
    if (const size_t bad = find_invalid_utf8(raw.text); bad != raw.text.npos) {
      const auto line = 1 + std::count(raw.text.begin(), raw.text.begin() + std::ptrdiff_t(bad), '\n');
      return error("line {}: byte 0x{:02x} is not UTF-8", line, static_cast<unsigned char>(raw.text[bad]));
    }
    Record record;
    record.text = std::move(raw.text);
    return record;
  }
  Result<bool> accept(const RawRecord& raw, Record::Kind kind, const Status& made) {
    if (made.ok() && kind_ && kind != *kind_) {
      return at(raw, error("{}, where line {} has {}: a file has records of one kind", name_of(kind),
                           first_line_, name_of(*kind_)));
    }
    if (made.ok()) {
      if (!kind_) first_line_ = raw.line;
      kind_ = kind;
      return true;
    }
    if (!options_.skip_malformed) return at(raw, made.error());
    if (malformed_++ == 0) first_malformed_ = at(raw, made.error()).message;
    return false;
  }
  Result<bool> next(Record& record) {
    RawRecord raw;
    while (true) {
      SLUICE_ASSIGN(const bool more, next(raw));
      if (!more) return false;
      Result<Record> parsed = parse(raw);
      const bool good = parsed.ok();
      SLUICE_ASSIGN(const bool taken, accept(raw, good ? parsed->kind : Record::Kind::Text,
                                             good ? Status() : Status(parsed.error())));
      if (!taken) continue;
      record = std::move(*parsed);
      return true;
    }
  }
  int64_t line() const { return lines_.line(); }
  int64_t malformed() const { return malformed_; }
  const std::string& first_malformed() const { return first_malformed_; }

 private:
  Error at(const RawRecord& raw, Error e) const {
    return error_at(raw.line > 0 ? fmt::format("{}: line {}", path_.string(), raw.line) : path_.string(),
                    std::move(e));
  }

  std::filesystem::path path_;
  RecordOptions options_;
  LineReader lines_;
  bool is_jsonl_, read_ = false;
  std::optional<Record::Kind> kind_;
  int64_t first_line_ = 0, malformed_ = 0;
  std::string first_malformed_;
};

Result<RecordReader> RecordReader::open(const std::filesystem::path& path, const RecordOptions& options) {
  SLUICE_ASSIGN(LineReader lines, LineReader::open(path, options.most_line_bytes, options.why));
  return RecordReader(std::make_unique<Impl>(path, options, std::move(lines)));
}

RecordReader::RecordReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader::~RecordReader() = default;
Result<bool> RecordReader::next(Record& record) {
  return impl_->next(record);
}
Result<bool> RecordReader::next(RawRecord& raw) {
  return impl_->next(raw);
}
Result<Record> RecordReader::parse(RawRecord& raw) const {
  return impl_->parse(raw);
}
Result<bool> RecordReader::accept(const RawRecord& raw, Record::Kind kind, const Status& made) {
  return impl_->accept(raw, kind, made);
}
int64_t RecordReader::line() const {
  return impl_->line();
}
int64_t RecordReader::malformed() const {
  return impl_->malformed();
}
const std::string& RecordReader::first_malformed() const {
  return impl_->first_malformed();
}

}  // namespace sluice::core
