// SPDX-License-Identifier: Apache-2.0
#include "records/keys.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>
#include <unordered_set>

#include "base/nearest.h"

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
    {"instruction question query", false, Use::Content, Value::Any, "Alpaca, Dolly, axolotl", "what is asked",
     "read with the answer"},
    {"input context", false, Use::Belongs, Value::Any, "Alpaca, Dolly", "what belongs to the question",
     "read with the question"},
    {"history", false, Use::Belongs, Value::Any, "Alpaca in LLaMA-Factory, ms-swift",
     "earlier questions and answers: [[question, answer], ...]",
     "read as turns before the question, whose answers are learnt like any other"},
    {"output response answer generation", false, Use::Content, Value::Any, "Alpaca, Dolly, axolotl",
     "the answer", "read; it is learnt"},
    {"system system_prompt", false, Use::Belongs, Value::Any, "ShareGPT, axolotl", "the system's turn",
     "read with conversations under conversations, and with questions"},
    {"text", false, Use::Content, Value::Any, "TRL, axolotl", "plain text", "read; all of it is learnt"},
    {"segments", false, Use::Decides, Value::List, "axolotl",
     "pieces of text, each with a label: true or false", "followed: those with true are learnt"},
    {"learnt", false, Use::Decides, Value::Any, "Sluice", "which bytes of text are learnt", "followed"},
    {"tools", false, Use::Belongs, Value::Any, "OpenAI, TRL, LLaMA-Factory", "the tools that there are",
     "given to the template"},
    {"functions", false, Use::Belongs, Value::Any, "OpenAI, before tools", "the same",
     "given to the template"},
    {"parallel_tool_calls", false, Use::Idle, Value::Any, "OpenAI", "how a served model calls tools",
     "passed over: it changes no text"},
    {"chosen rejected", false, Use::Refused, Value::Any, "TRL, axolotl",
     "the better and the worse of two answers",
     "supervised training does not compare: train.objective = dpo, simpo or orpo does. To learn the better "
     "answers: data.fields.completion = \"chosen\" (data.fields.messages where it is a whole conversation), "
     "and data.ignore = [\"rejected\"]"},
    {"preferred_output non_preferred_output", false, Use::Refused, Value::Any, "OpenAI",
     "the better and the worse of two answers",
     "supervised training does not compare: train.objective = dpo, simpo or orpo does. To learn the better "
     "answers, write each as messages"},
    {"label", false, Use::Refused, Value::Truth, "TRL, axolotl", "whether the answer is a good one",
     "supervised training would learn bad answers as good ones: train.objective = kto does not. Or keep the "
     "good ones (jq -c 'select(.label)'), and pass over the key with data.ignore = [\"label\"]"},
    {"kto_tag", false, Use::Refused, Value::Any, "LLaMA-Factory", "whether the answer is a good one",
     "supervised training would learn bad answers as good ones: train.objective = kto does not. Or keep the "
     "good ones, and pass over the key with data.ignore"},
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
    {"documents", false, Use::Belongs, Value::List, "transformers", "what the answer is found in",
     "given to the template"},
    {"chat_template_kwargs", false, Use::Belongs, Value::Any, "TRL", "what the chat template is told",
     "given to the template, before data.template_kwargs"},
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
    {"train training trainable", kMessage, Use::Decides, Value::Any, "axolotl and others",
     "whether this turn is learnt", "followed"},
    {"loss", kMessage, Use::Decides, Value::Any, "ms-swift", "whether this turn is learnt", "followed"},
    {"train_detail training_detail reasoning_training_detail", kMessage, Use::Refused, Value::List, "axolotl",
     "which characters of a turn are learnt",
     "a turn is learnt whole or not at all. Write text with learnt, or leave it out with data.ignore"},
    {"mask loss_mask", kMessage, Use::Refused, Value::Any, "several", "whether a turn is learnt, or is not",
     "programs mean opposite things by it. Write \"weight\": 0 where a turn is not learnt"},
    {"refusal", kMessage, Use::Refused, Value::Any, "OpenAI", "what is said instead of the content",
     "no template shows it. Write it as the content, or leave it out with data.ignore"},
    {"audio images image", kMessage, Use::Refused, Value::Any, "OpenAI, TRL", "sounds and pictures",
     "models of text have none. Leave these records out"},
};

// Names of one thing, of which an object may have several where they say the same.
struct OneThing {
  std::string_view names;
  bool of_message;
};
constexpr OneThing kOneThing[] = {
    {"system system_prompt", false},
    {"tools functions", false},
    {"role from", kMessage},
    {"content value", kMessage},
    {"tool_calls function_call", kMessage},
    {"reasoning_content reasoning thinking", kMessage},
};

// Ids, sources and other things about a record that no program learns from.
constexpr std::string_view kHarmless =
    "id _id ids idx index uuid uid guid hash md5 sha1 sha256 key custom_id record_id row_id example_id "
    "sample_id "
    "conversation_id conv_id chat_id dialog_id dialogue_id thread_id session_id request_id user_id prompt_id "
    "question_id task_id doc_id document_id message_id parent_id tool_call_ids source sources src origin "
    "dataset "
    "dataset_name subset split url urls uri link license licence copyright author authors title description "
    "date "
    "time timestamp timestamps created created_at updated_at create_time update_time year language languages "
    "lang "
    "language_score int_score locale country category categories topic topics tag tags keyword keywords type "
    "kind "
    "task tasks task_type task_category domain subject subjects field level difficulty model models "
    "model_name "
    "generator engine provider version revision meta metadata meta_data info extra extras additional_info "
    "notes "
    "note comment comments annotator annotators file file_name filename file_path filepath path dump line "
    "lineno "
    "row turn turns num_turns n_turns length len size count num_tokens n_tokens token_count tokens_count "
    "usage "
    "finish_reason stop_reason logprobs temperature top_p seed cache_control views";

// A key whose name has one of these words says what is learnt, or how good it is, whatever else it is called.
struct Mark {
  // Marks: a truth value, a number, or a list. Content: anything else.
  enum class Value : uint8_t { Any, Marks, Truth, Content, List };
  std::string_view words;
  Value value;
  bool learns;  // it says what is learnt
};
constexpr Mark kMarks[] = {
    {"loss mask masked masking train trainable training trained untrained learn learnt learned learnable "
     "unlearn "
     "supervised ignore ignored skip skipped exclude excluded omit",
     Mark::Value::Marks, true},
    {"hidden deleted removed discard discarded drop dropped disabled enabled keep kept valid invalid",
     Mark::Value::Truth, true},
    {"rejected reject chosen preferred dispreferred negative negatives undesirable kto dpo", Mark::Value::Any,
     false},
    {"reward rewards advantage advantages score scores rating ratings quality weight weights label labels "
     "desirable vote votes upvotes",
     Mark::Value::Marks, false},
    {"good bad correct incorrect accepted approved passed failed", Mark::Value::Truth, false},
    {"system sys history instructions", Mark::Value::Content, false},
    {"tool tools function functions", Mark::Value::List, false},
};
// With one of these it is a measure or a name after all.
constexpr std::string_view kMeasures =
    "id ids idx index count counts num n len length time at date version step steps epoch epochs size total "
    "tokens "
    "path file name names url type source model models";

// Calls f(name) for each.
void for_names(std::string_view names, auto&& f) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    f(names.substr(0, end));
    names.remove_prefix(std::min(names.size(), end + 1));
  }
}

bool has_name(std::string_view names, std::string_view name) {
  bool found = false;
  for_names(names, [&](std::string_view n) { found = found || n == name; });
  return found;
}

using Rows = std::unordered_map<std::string_view, const DataKey*>;
const Rows& rows_of(bool of_message) {
  static const auto kMade = [] {
    std::array<Rows, 2> rows;
    for (const DataKey& key : kKeys)
      for_names(key.names, [&](std::string_view n) { rows[key.of_message ? 1 : 0].emplace(n, &key); });
    return rows;
  }();
  return kMade[of_message ? 1 : 0];
}

bool is_harmless(std::string_view name) {
  static const auto kKnown = [] {
    std::unordered_set<std::string_view> names;
    for_names(kHarmless, [&](std::string_view n) { names.insert(n); });
    return names;
  }();
  const auto is_made = [&](std::string_view by) { return name.starts_with(by); };
  if (name.empty() || is_made("Unnamed: ") || is_made("__index_level_"))
    return true;  // pandas' numbers of rows
  if (kKnown.contains(name)) return true;
  std::string small(name);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](char c) { return char(std::tolower(uint8_t(c))); });
  return kKnown.contains(small);
}

// The words of a name, in lower case: of loss_mask, lossMask and "loss mask" loss and mask.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  bool after_small = false;
  for (const char c : name) {
    const bool large = std::isupper(uint8_t(c)) != 0, letter = std::isalnum(uint8_t(c)) != 0;
    if ((!letter || (large && after_small)) && !words.back().empty()) words.emplace_back();
    if (letter) words.back() += char(std::tolower(uint8_t(c)));
    after_small = letter && !large;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

const Mark* find_mark(std::string_view name) {
  const Mark* found = nullptr;
  for (const std::string& word : words_of(name)) {
    if (has_name(kMeasures, word)) return nullptr;
    for (const Mark& mark : kMarks) {
      if (found == nullptr && has_name(mark.words, word)) found = &mark;
    }
  }
  return found;
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

bool is_number(const ChatValue& value) {
  return value.kind == ChatValue::Kind::Number || (value.is_string() && is_number(value.text));
}

bool is_meant(const Mark& mark, const ChatValue& value) {
  switch (mark.value) {
    case Mark::Value::Any:
      return true;
    case Mark::Value::Marks:
      return is_truth(value) || is_number(value) || value.is_array();
    case Mark::Value::Truth:
      return is_truth(value);
    case Mark::Value::Content:
      return !is_truth(value) && !is_number(value);
    case Mark::Value::List:
      return value.is_array();
  }
  return true;
}

// Whether a name is another one with a letter too many, too few, wrong or swapped, or spelt in another case.
// A plural is a word of its own, but not the singular of a list.
bool is_mistyped(std::string_view name, std::string_view known) {
  constexpr size_t kShort = 5;
  const std::string a = plain_name(name), b = plain_name(known);
  if (a == b || b == a + "s") return true;
  const size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  if (shorter < kShort || longer - shorter > 1 || a == b + "s") return false;
  return edit_distance(a, b) == 1;
}

// `later`: earlier versions passed over the key.
Error refusal(std::string_view key, bool later, std::string message) {
  Error refused = error("{}", message);
  refused.details.emplace_back("key", key);
  if (later) refused.details.emplace_back("later", "yes");
  return refused;
}

Status check_one_thing(const ChatValue& object, bool of_message) {
  for (const OneThing& thing : kOneThing) {
    const ChatValue* said = nullptr;
    std::string_view by;
    Status twice;
    if (thing.of_message == of_message) {
      for_names(thing.names, [&](std::string_view name) {
        const ChatValue* value = object.find(name);
        if (value == nullptr || !says_something(*value)) return;
        if (said != nullptr && twice.ok() && to_json(*said) != to_json(*value))
          twice = refusal(name, /*later=*/true,
                          fmt::format("{} and {} are both there, and may say two things: data.ignore = "
                                      "[\"{}\"] passes over the one that is not meant",
                                      by, name, name));
        if (said == nullptr) said = value, by = name;
      });
    }
    SLUICE_TRY(twice);
  }
  return {};
}

}  // namespace

std::span<const DataKey> data_keys() {
  return kKeys;
}

const DataKey* find_data_key(std::string_view name, bool of_message) {
  const Rows& rows = rows_of(of_message);
  const auto it = rows.find(name);
  return it == rows.end() ? nullptr : it->second;
}

bool may_matter(std::string_view name) {
  return find_data_key(name, /*of_message=*/false) != nullptr ||
         (!is_harmless(name) && find_mark(name) != nullptr);
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
  switch (key.value) {
    case Value::Any:
      return true;
    case Value::Truth:
      return is_truth(value);
    case Value::Number:
      return is_number(value);
    case Value::List:
      return value.is_array();
    case Value::NotOne:
      return is_number(value) && value.text != "1" && value.text != "1.0";
  }
  return true;
}

std::string key_meant_by(std::string_view name, bool of_message) {
  for (const DataKey& key : kKeys) {
    std::string found;
    if (key.of_message == of_message) {
      for_names(key.names, [&](std::string_view n) {
        if (found.empty() && is_mistyped(name, n)) found = n;
      });
    }
    if (!found.empty()) return found;
  }
  return {};
}

Status check_keys(const ChatValue& object, KeysOf kind, std::span<const std::string_view> read,
                  std::vector<std::string>& unused) {
  const bool of_message = kind == KeysOf::Message, is_text = kind == KeysOf::Text;
  if (!is_text) SLUICE_TRY(check_one_thing(object, of_message));
  std::vector<std::string> marks;
  for (const auto& [name, value] : object.members) {
    if (std::find(read.begin(), read.end(), name) != read.end()) continue;
    if (const DataKey* key = find_data_key(name, of_message)) {
      const bool refused = key->use == Use::Refused;
      if (!is_meant(*key, value) || key->use == Use::Idle || (of_message && !refused)) continue;
      if (refused && !is_text)
        return refusal(name, /*later=*/false, fmt::format("{}, {}: {}", name, key->meaning, key->here));
      if (key->use == Use::Belongs && !is_text)
        return refusal(name, /*later=*/true,
                       fmt::format("{}, {}, is not read beside {}: write it in there, or pass over it with "
                                   "data.ignore = [\"{}\"]",
                                   name, key->meaning, read.front(), name));
      unused.push_back(name);
      continue;
    }
    if (is_harmless(name)) continue;
    // A key beside the one that may be meant is another one.
    if (const std::string meant = key_meant_by(name, of_message);
        !meant.empty() && !is_text && object.find(meant) == nullptr)
      return refusal(
          name, /*later=*/true,
          fmt::format("key '{}' is not known; did you mean {}? data.ignore = [\"{}\"] passes over it", name,
                      meant, name));
    if (const Mark* mark = find_mark(name); mark != nullptr && (mark->learns || !is_text)) {
      if (!says_something(value)) continue;
      if (is_meant(*mark, value)) {
        marks.push_back(name);
        continue;
      }
    }
    unused.push_back(name);
  }
  if (marks.empty()) return {};
  const bool one = marks.size() == 1;
  return refusal(
      marks.front(), /*later=*/true,
      fmt::format("{}: the {} of what is learnt, how good an answer is, or what belongs to it, and Sluice "
                  "does not know how to follow that. Keep the records that are to be learnt, write "
                  "\"weight\": 0 into "
                  "messages that are not, and pass over {} with data.ignore = [\"{}\"]",
                  fmt::join(marks, ", "), one ? "name tells" : "names tell", one ? "the key" : "the keys",
                  fmt::join(marks, "\", \"")));
}

std::string data_keys_table() {
  std::string out = "| key | of | what it means | what becomes of it |\n|---|---|---|---|\n";
  const auto quoted = [](std::string_view all) {
    std::string names;
    for_names(all, [&](std::string_view n) { names += fmt::format("{}`{}`", names.empty() ? "" : ", ", n); });
    return names;
  };
  for (const DataKey& key : kKeys) {
    const bool refused = key.use == Use::Refused;
    out += fmt::format("| {} | {} | {} ({}) | {}{} |\n", quoted(key.names),
                       key.of_message ? "a message" : "a record", key.meaning, key.programs,
                       refused ? "**refused**: " : "", key.here);
  }
  for (const Mark& mark : kMarks) {
    constexpr std::string_view kValues[] = {"", ", with a truth value, a number or a list",
                                            ", with a truth value", ", with a text or a list",
                                            ", with a list"};
    out += fmt::format(
        "| any other name with the word {}{} | either | {} | **refused**: it may change what is to be "
        "learnt |\n",
        quoted(mark.words), kValues[size_t(mark.value)],
        mark.learns ? "what is learnt" : "how good it is, or what belongs to it");
  }
  out += fmt::format("| {} | either | what a record is, and where it comes from | passed over |\n",
                     quoted(kHarmless));
  return out + "| any other | either | nothing that is known | passed over, and named at the start |\n";
}

}  // namespace sluice::core
