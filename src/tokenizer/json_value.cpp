// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json_value.h"

#include "tokenizer/code_set.h"

namespace sluice::core {
namespace {

constexpr int kMostSequences = 16;

Status flatten(const JsonValue& value, std::string_view members, int depth, std::vector<JsonValue>& parts) {
  if (depth > kMostSequences) return value.error("more than {} levels of Sequence", kMostSequences);
  SLUICE_ASSIGN(const std::string type, value.string("type"));
  if (type != "Sequence") {
    parts.push_back(value);
    return {};
  }
  SLUICE_ASSIGN(const JsonValue list, value.get(members));
  SLUICE_ASSIGN(const auto elements, list.elements());
  for (const JsonValue& element : elements) SLUICE_TRY(flatten(element, members, depth + 1, parts));
  return {};
}

}  // namespace

Result<JsonValue> JsonValue::get(std::string_view key) const {
  if (!json_->is_object()) return error("{} instead of an object", json_->type_name());
  const auto it = json_->find(key);
  if (it == json_->end()) return error("'{}' is missing", key);
  return JsonValue(*it, place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key));
}

Result<std::optional<JsonValue>> JsonValue::find(std::string_view key) const {
  if (!json_->is_object()) return error("{} instead of an object", json_->type_name());
  const auto it = json_->find(key);
  if (it == json_->end() || it->is_null()) return std::optional<JsonValue>();
  SLUICE_ASSIGN(JsonValue value, get(key));
  return std::optional<JsonValue>(std::move(value));
}

Result<std::vector<JsonValue>> JsonValue::elements() const {
  if (!json_->is_array()) return error("{} instead of an array", json_->type_name());
  std::vector<JsonValue> values;
  values.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i)
    values.emplace_back((*json_)[i], fmt::format("{}[{}]", place_, i));
  return values;
}

Result<std::string> JsonValue::string() const {
  if (!json_->is_string()) return error("{} instead of a string", json_->type_name());
  return json_->get<std::string>();
}

Result<bool> JsonValue::boolean() const {
  if (!json_->is_boolean()) return error("{} instead of true or false", json_->type_name());
  return json_->get<bool>();
}

Result<int64_t> JsonValue::integer(int64_t least, int64_t most) const {
  if (!json_->is_number_integer()) return error("{} instead of a whole number", json_->type_name());
  const bool huge = json_->is_number_unsigned() && json_->get<uint64_t>() > uint64_t(INT64_MAX);
  const int64_t value = huge ? INT64_MAX : json_->get<int64_t>();
  if (value < least || value > most) return error("{}: allowed are {} to {}", json_->dump(), least, most);
  return value;
}

Result<std::string> JsonValue::string(std::string_view key) const {
  SLUICE_ASSIGN(const JsonValue value, get(key));
  return value.string();
}

Result<std::string> JsonValue::character(std::string_view key) const {
  SLUICE_ASSIGN(const JsonValue value, get(key));
  if (!value.is_string()) return value.error("{} instead of a string", value.json().type_name());
  const auto& text = value.json().get_ref<const std::string&>();
  if (text.empty() || text.size() != size_t(utf8_length(text.front())))
    return value.error("'{}' is not one character", text);
  return text;
}

Result<bool> JsonValue::boolean(std::string_view key) const {
  SLUICE_ASSIGN(const JsonValue value, get(key));
  return value.boolean();
}

Result<bool> JsonValue::boolean(std::string_view key, bool missing) const {
  SLUICE_ASSIGN(const auto value, find(key));
  if (!value) return missing;
  return value->boolean();
}

Result<std::vector<JsonValue>> flatten_sequence(const JsonValue& value, std::string_view members) {
  std::vector<JsonValue> parts;
  if (!value.is_null()) SLUICE_TRY(flatten(value, members, 0, parts));
  return parts;
}

}  // namespace sluice::core
