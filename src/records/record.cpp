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

Result<std::string> string_of(const Value& object, std::string_view key) {
  const Value* value = object.find(key);
  if (value == nullptr) return error("{} is missing", key);
  if (!value->is_string()) return error("{} is {}, no string", key, value->kind_text());
  return value->text;
}

// A list, or a string that holds one as JSON.
Result<Value> tools_of(const Value& object) {
  const Value* tools = object.find("tools");
  if (tools == nullptr || tools->is_null() || (tools->is_string() && tools->text.empty())) return Value{};
  if (tools->is_string()) {
    auto parsed = parse_value(tools->text);
    if (!parsed.ok()) return error("tools: a string that is no JSON: {}", parsed.message());
    if (parsed->is_array()) return std::move(*parsed);
    return error("tools: a string that holds {}, no list", parsed->kind_text());
  }
  if (!tools->is_array()) return error("tools is {}, no list", tools->kind_text());
  return *tools;
}

Value member(std::string_view key, Value value) {
  Value object;
  object.kind = Value::Kind::Object;
  object.members.emplace_back(key, std::move(value));
  return object;
}

// {"name", "arguments"}, or a list of such, as a turn of the assistant.
Result<Value> calls_of(std::string_view text) {
  auto parsed = parse_value(text);
  if (!parsed.ok()) return error("function_call: value is no JSON: {}", parsed.message());
  Value message = member("role", Value::string("assistant"));
  message.members.emplace_back("content", Value::string(""));
  Value calls;
  calls.kind = Value::Kind::Array;
  std::vector<Value> items;
  if (parsed->is_array()) {
    items = parsed->items;
  } else {
    items.push_back(*parsed);
  }
  for (Value& item : items) {
    Value call = member("type", Value::string("function"));
    call.members.emplace_back("function", std::move(item));
    calls.items.push_back(std::move(call));
  }
  message.members.emplace_back("tool_calls", std::move(calls));
  return message;
}

// ShareGPT's {"from", "value"}.
Result<Value> message_of(const Value& turn) {
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
  Value message = member("role", Value::string(role->second));
  message.members.emplace_back("content", Value::string(value));
  return message;
}

Status check_message(const Value& message) {
  if (!message.is_object()) return error("it is {}, no object", message.kind_text());
  SLUICE_TRY(string_of(message, "role"));
  const Value* content = message.find("content");
  if (content != nullptr && !content->is_null() && !content->is_string() && !content->is_array() &&
      message.find("role")->text != "tool")
    return error("content is {}; allowed are a string and a list of texts", content->kind_text());
  const Value* calls = message.find("tool_calls");
  if ((content == nullptr || content->is_null()) && (calls == nullptr || calls->items.empty()))
    return error("neither content nor tool_calls");
  return {};
}

Result<Record> chat_of(const Value& object, std::string_view key) {
  Record record;
  record.kind = Record::Kind::Chat;
  const Value& list = *object.find(key);
  if (!list.is_array()) return error("{} is {}, no list", key, list.kind_text());
  if (list.items.empty()) return error("{} is empty", key);
  const Value* system = object.find("system");
  if (key == "conversations" && system != nullptr && system->is_string() && !system->text.empty()) {
    Value message = member("role", Value::string("system"));
    message.members.emplace_back("content", Value::string(system->text));
    record.chat.messages.push_back(std::move(message));
  }
  for (size_t i = 0; i < list.items.size(); ++i) {
    const auto place = [&] { return fmt::format("{}[{}]", key, i); };
    const Value& item = list.items[i];
    if (item.find("from") != nullptr && item.find("role") == nullptr) {
      auto message = message_of(item);
      if (!message.ok()) return error_at(place(), message.error());
      record.chat.messages.push_back(std::move(*message));
    } else {
      if (auto checked = check_message(item); !checked.ok()) return error_at(place(), checked.error());
      record.chat.messages.push_back(item);
    }
  }
  SLUICE_ASSIGN(record.chat.tools, tools_of(object));
  return record;
}

Result<Record> marked_of(const Value& object) {
  Record record;
  record.kind = Record::Kind::Marked;
  SLUICE_ASSIGN(record.text, string_of(object, "text"));
  const Value& list = *object.find("learnt");
  const auto number = [](const Value& value, size_t& out) {
    const char* end = value.text.data() + value.text.size();
    return value.kind == Value::Kind::Number && std::from_chars(value.text.data(), end, out).ptr == end;
  };
  size_t last = 0;
  if (!list.is_array()) return error("learnt is {}, no list", list.kind_text());
  for (const Value& item : list.items) {
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
  SLUICE_ASSIGN(const Value object, parse_value(line));
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
    SLUICE_ASSIGN(record.text, string_of(object, "prompt"));
    SLUICE_ASSIGN(const std::string completion, string_of(object, "completion"));
    record.completion = record.text.size();
    record.text += completion;
    return record;
  }
  if (object.find("text") != nullptr && object.find("learnt") != nullptr) return marked_of(object);
  if (object.find("text") != nullptr) {
    Record record;
    SLUICE_ASSIGN(record.text, string_of(object, "text"));
    return record;
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.members) keys.push_back(key);
  return error("none of messages, conversations, prompt and completion, text; its keys are: {:.120}",
               fmt::format("{}", fmt::join(keys, ", ")));
}

class RecordReader::Impl {
 public:
  Impl(std::filesystem::path path, const RecordOptions& options, LineReader lines)
      : path_(std::move(path)), options_(options), lines_(std::move(lines)) {
    std::string name = path_.filename().string();
    for (const char* end : {".gz", ".zst"}) {
      if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
    }
    is_jsonl_ = name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
  }

  Result<bool> next(Record& record) {
    if (!is_jsonl_) return next_text(record);
    std::string_view line;
    while (true) {
      SLUICE_ASSIGN(const bool more, lines_.next(line));
      if (!more) return false;
      if (lines_.line() == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      auto parsed = parse_record(line);
      if (parsed.ok() && kind_ && parsed->kind != *kind_) {
        return at_line(error("{}, where line {} has {}: a file has records of one kind",
                             name_of(parsed->kind), first_line_, name_of(*kind_)));
      }
      if (parsed.ok()) {
        if (!kind_) first_line_ = lines_.line();
        kind_ = parsed->kind;
        record = std::move(*parsed);
        return true;
      }
      if (!options_.skip_malformed) return at_line(parsed.error());
      if (malformed_++ == 0) first_malformed_ = at_line(parsed.error()).message;
    }
  }
  int64_t line() const { return lines_.line(); }
  int64_t malformed() const { return malformed_; }
  const std::string& first_malformed() const { return first_malformed_; }

 private:
  Error at_line(Error e) const {
    return error_at(fmt::format("{}: line {}", path_.string(), lines_.line()), std::move(e));
  }
  Result<bool> next_text(Record& record) {
    if (std::exchange(read_, true)) return false;
    record = {};
    SLUICE_ASSIGN(record.text, lines_.rest(options_.most_text_bytes));
    if (const size_t bad = find_invalid_utf8(record.text); bad != record.text.npos) {
      const auto line = 1 + std::count(record.text.begin(), record.text.begin() + std::ptrdiff_t(bad), '\n');
      return error("{}: line {}: byte 0x{:02x} is not UTF-8", path_.string(), line,
                   static_cast<unsigned char>(record.text[bad]));
    }
    return !record.text.empty();
  }

  std::filesystem::path path_;
  RecordOptions options_;
  LineReader lines_;
  bool is_jsonl_ = false, read_ = false;
  std::optional<Record::Kind> kind_;
  int64_t first_line_ = 0, malformed_ = 0;
  std::string first_malformed_;
};

Result<RecordReader> RecordReader::open(const std::filesystem::path& path, const RecordOptions& options) {
  SLUICE_ASSIGN(LineReader lines, LineReader::open(path, options.most_line_bytes));
  return RecordReader(std::make_unique<Impl>(path, options, std::move(lines)));
}

RecordReader::RecordReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader::~RecordReader() = default;
Result<bool> RecordReader::next(Record& record) {
  return impl_->next(record);
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
