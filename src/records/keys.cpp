// SPDX-License-Identifier: Apache-2.0
#include "records/keys.h"

#include <algorithm>
#include <cctype>

namespace sluice::core {
namespace {

using Use = DataKey::Use;
using Value = DataKey::Value;

constexpr bool kMessage = true;

// Rows of one place stand together; the content of records first.
constexpr DataKey kKeys[] = {
    {"messages", false, Use::Content, Value::Any, "OpenAI, TRL, axolotl", "a conversation",
     "read; the assistant's turns are learnt"},
    {"conversations", false, Use::Content, Value::Any, "ShareGPT, axolotl", "a conversation",
     "read like messages"},
    {"prompt completion", false, Use::Content, Value::Any, "TRL", "two texts, or two lists of messages",
     "read; the completion is learnt"},
    {"instruction question query input context", false, Use::Content, Value::Any, "Alpaca, Dolly, axolotl",
     "what is asked, and what belongs to it", "read with the answer"},
    {"output response answer generation", false, Use::Content, Value::Any, "Alpaca, Dolly, axolotl",
     "the answer", "read; it is learnt"},
    {"system system_prompt", false, Use::Content, Value::Any, "ShareGPT, axolotl", "the system's turn",
     "read with conversations under conversations, and with questions"},
    {"text", false, Use::Content, Value::Any, "TRL, axolotl", "plain text", "read; all of it is learnt"},
    {"segments", false, Use::Decides, Value::List, "axolotl",
     "pieces of text, each with a label: true or false", "followed: those with true are learnt"},
    {"learnt", false, Use::Decides, Value::Any, "Sluice", "which bytes of text are learnt", "followed"},
    {"tools", false, Use::Content, Value::Any, "OpenAI, TRL", "the tools that there are",
     "given to the template"},
    {"functions", false, Use::Content, Value::Any, "OpenAI, before tools", "the same",
     "given to the template"},
    {"parallel_tool_calls", false, Use::Idle, Value::Any, "OpenAI", "how a served model calls tools",
     "passed over: it changes no text"},
    {"chosen rejected", false, Use::Refused, Value::Any, "TRL, axolotl",
     "the better and the worse of two answers (DPO, ORPO)",
     "Sluice does not learn from comparisons. To learn the better answers: data.fields.completion = "
     "\"chosen\" "
     "(data.fields.messages where it is a whole conversation) and data.ignore = [\"rejected\"]"},
    {"preferred_output non_preferred_output", false, Use::Refused, Value::Any, "OpenAI",
     "the better and the worse of two answers (DPO)",
     "Sluice does not learn from comparisons. To learn the better answers, write each as messages"},
    {"label", false, Use::Refused, Value::Truth, "TRL, axolotl", "whether the answer is a good one (KTO)",
     "bad answers would be learnt as good ones. Keep the good ones (jq -c 'select(.label)'), and pass over "
     "the "
     "key with data.ignore = [\"label\"]"},
    {"score reward margin", false, Use::Refused, Value::Number, "TRL, axolotl", "how good an answer is",
     "Sluice does not weigh records by it. Keep the records that are good enough, and pass over the key with "
     "data.ignore"},
    {"weight", false, Use::Refused, Value::NotOne, "several", "how much a record counts",
     "records count alike here. data.weights says how often the records of a file come; data.ignore passes "
     "over the key"},
    {"completions", false, Use::Refused, Value::List, "TRL", "answers in steps (PRM)",
     "steps are not judged here. Join them to one completion"},
    {"labels", false, Use::Refused, Value::List, "TRL, axolotl", "which steps, or which tokens, are learnt",
     "records are text here. For tokens made elsewhere write a token file; data.ignore passes over the key"},
    {"input_ids completion_mask assistant_masks", false, Use::Refused, Value::List, "TRL, axolotl",
     "tokens made elsewhere, and which of them are learnt",
     "records are text here. Write a token file, or leave them out with data.ignore"},
    {"corrected", false, Use::Refused, Value::Any, "axolotl", "the answer after a reflection",
     "two answers are there. Say which is learnt with data.fields.completion, and pass over the other with "
     "data.ignore"},
    {"choices", false, Use::Refused, Value::List, "axolotl", "the answers to choose from",
     "no prompt would show them. Write them into the question, or leave them out with data.ignore"},
    {"images image videos audio audios", false, Use::Refused, Value::Any, "TRL, axolotl",
     "pictures and sounds that belong to the text", "models of text have none. Leave these records out"},
    {"chat_template_kwargs", false, Use::Refused, Value::Any, "TRL", "what the chat template is told",
     "templates are told nothing here. Render with scripts/render_chats, or leave it out with data.ignore"},
    {"role from", kMessage, Use::Content, Value::Any, "OpenAI; ShareGPT", "who speaks", "read"},
    {"content value", kMessage, Use::Content, Value::Any, "OpenAI; ShareGPT", "what is said", "read"},
    {"tool_calls tool_call_id name", kMessage, Use::Content, Value::Any, "OpenAI, TRL", "calls of tools",
     "read; learnt where the template shows them, else the turn is context"},
    {"function_call", kMessage, Use::Content, Value::Any, "OpenAI, before tool_calls", "a call of a tool",
     "read like tool_calls"},
    {"reasoning_content reasoning thinking", kMessage, Use::Content, Value::Any, "transformers, axolotl",
     "what was thought before the answer", "learnt where the template shows it, else counted in a warning"},
    {"weight", kMessage, Use::Decides, Value::Any, "OpenAI", "0: this turn is not learnt; 1: it is",
     "followed; other numbers are refused"},
    {"train training", kMessage, Use::Decides, Value::Any, "axolotl", "whether this turn is learnt",
     "followed"},
    {"loss", kMessage, Use::Decides, Value::Any, "ms-swift", "whether this turn is learnt", "followed"},
    {"train_detail training_detail reasoning_training_detail", kMessage, Use::Refused, Value::List, "axolotl",
     "which characters of a turn are learnt",
     "a turn is learnt whole or not at all. Write text with learnt, or leave it out with data.ignore"},
    {"mask", kMessage, Use::Refused, Value::Any, "several", "whether a turn is learnt, or is not",
     "programs mean opposite things by it. Write \"weight\": 0 where a turn is not learnt"},
    {"refusal", kMessage, Use::Refused, Value::Any, "OpenAI", "what is said instead of the content",
     "no template shows it. Write it as the content, or leave it out with data.ignore"},
    {"audio images image", kMessage, Use::Refused, Value::Any, "OpenAI, TRL", "sounds and pictures",
     "models of text have none. Leave these records out"},
};

// Calls f(name) for each.
void for_names(std::string_view names, auto&& f) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    f(names.substr(0, end));
    names.remove_prefix(std::min(names.size(), end + 1));
  }
}

bool is_number(std::string_view text) {
  constexpr std::string_view kOf = "+-.0123456789eE";
  return !text.empty() && text.find_first_not_of(kOf) == text.npos;
}

// As JSON and tables spell true, false, 0 and 1.
bool is_truth(const ChatValue& value) {
  if (value.kind == ChatValue::Kind::Boolean) return true;
  std::string text = value.text;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return char(std::tolower(static_cast<unsigned char>(c))); });
  constexpr std::string_view kWords[] = {"true", "false", "0", "1", "0.0", "1.0"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
}

}  // namespace

std::span<const DataKey> data_keys() {
  return kKeys;
}

const DataKey* find_data_key(std::string_view name, bool of_message) {
  for (const DataKey& key : kKeys) {
    bool found = false;
    if (key.of_message == of_message)
      for_names(key.names, [&](std::string_view n) { found = found || n == name; });
    if (found) return &key;
  }
  return nullptr;
}

bool says_something(const ChatValue& value) {
  switch (value.kind) {
    case ChatValue::Kind::Null:
      return false;
    case ChatValue::Kind::String:
      return !value.text.empty();
    case ChatValue::Kind::Array:
      return !value.items.empty();
    case ChatValue::Kind::Object:
      return !value.members.empty();
    default:
      return true;
  }
}

bool is_meant(const DataKey& key, const ChatValue& value) {
  if (!says_something(value)) return false;
  const bool number = value.kind == ChatValue::Kind::Number || (value.is_string() && is_number(value.text));
  switch (key.value) {
    case Value::Any:
      return true;
    case Value::Truth:
      return is_truth(value);
    case Value::Number:
      return number;
    case Value::List:
      return value.is_array();
    case Value::NotOne:
      return number && value.text != "1" && value.text != "1.0";
  }
  return true;
}

Status check_keys(const ChatValue& object, bool of_message) {
  for (const auto& [name, value] : object.members) {
    const DataKey* key = find_data_key(name, of_message);
    if (key == nullptr || key->use != Use::Refused || !is_meant(*key, value)) continue;
    Error refused = error("{}, {}: {}", name, key->meaning, key->here);
    refused.details.emplace_back("key", name);
    return refused;
  }
  return {};
}

std::string data_keys_table() {
  std::string out = "| key | of | what it means | what becomes of it |\n|---|---|---|---|\n";
  for (const DataKey& key : kKeys) {
    std::string names;
    for_names(key.names,
              [&](std::string_view n) { names += fmt::format("{}`{}`", names.empty() ? "" : ", ", n); });
    const bool refused = key.use == Use::Refused;
    out += fmt::format("| {} | {} | {} ({}) | {}{} |\n", names, key.of_message ? "a message" : "a record",
                       key.meaning, key.programs, refused ? "**refused**: " : "", key.here);
  }
  return out;
}

}  // namespace sluice::core
