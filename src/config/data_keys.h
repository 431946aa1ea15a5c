// SPDX-License-Identifier: Apache-2.0
// The table of [data]: what is learnt from.
#pragma once

#include <string>
#include <vector>

#include "config/row.h"
#include "config/values.h"

namespace sluice::core {

constexpr GoesOn kOtherDocuments =
    allowed_by("data", "other documents, or other names of them", "data.content");
constexpr GoesOn kOtherRecords =
    allowed_by("data", "of records: others are learnt, or others of them", "data.content");
constexpr GoesOn kRecordsMayDiffer =
    same_bits("but `--allow data` where they change what is learnt of a record");
constexpr GoesOn kTextMayDiffer = same_bits(
    "but `--allow data` where they change what conversations are rendered to. A date that is left open is "
    "the checkpoint's");
constexpr GoesOn kOtherRows = allowed_by("data", "other rows");

struct DataKeys {
  std::vector<std::string> paths, include, exclude;
  std::vector<double> weights;  // of paths
  double heldout = 0.05;
  std::vector<std::string> heldout_paths;
  std::string learn = "assistant", chat_template, date, malformed = "refuse";
  std::string pairs = "auto";
  struct {
    std::string text, prompt, completion, messages;
  } fields;                         // names of keys and columns
  std::vector<std::string> ignore;  // keys of records and messages
  std::vector<std::string> roles;   // of messages
  bool open_ends = false, learn_thoughts = true, allow_unlearnt = false;
  std::vector<std::string> special_in_text;  // special tokens
  std::string template_kwargs;               // a JSON object; empty: none
  std::string mode = "auto", long_documents = "continue";
  bool respect_documents = true;
  std::string cache = ".cache/sluice";
};
// Calls key(name, field, constraint, row) for every key.
template <class Keys, class F>
void visit_data_keys(Keys& c, F&& key) {
  key("data.paths", c.paths, InputPath(),
      {"files of text, JSON, CSV or tokens, directories, patterns or a name of the Hugging Face hub; empty: "
       "random tokens",
       kOtherDocuments});
  key("data.weights", c.weights, Range{0, 100},
      {"how often the documents of each of data.paths come; empty: once", kOtherDocuments,
       Recorded::Otherwise, KeyOf::Data});
  key("data.include", c.include, nullptr,
      {"endings of the file names to take inside directories", kOtherDocuments});
  key("data.exclude", c.exclude, nullptr, {"patterns of paths to leave out", kOtherDocuments});
  key("data.heldout", c.heldout, Range{0, 0.9},
      {"fraction of the tokens to hold out for evaluation, in whole documents", kOtherDocuments});
  key("data.heldout_paths", c.heldout_paths, InputPath(),
      {"files to hold out instead of a fraction", kOtherDocuments, Recorded::Otherwise, KeyOf::Data});
  key("data.learn", c.learn, Choices{"assistant", "all-turns", "last", "completion", "everything", "marked"},
      {"what is learnt of conversations, and of prompts with completions; marked: what the chat template has "
       "inside of {% generation %}",
       kOtherRecords, Recorded::Otherwise, KeyOf::Data});
  key("data.learn_thoughts", c.learn_thoughts, nullptr,
      {"whether what was thought before an answer is learnt with it", kOtherRecords, Recorded::Otherwise,
       KeyOf::Data});
  key("data.allow_unlearnt", c.allow_unlearnt, nullptr,
      {"whether conversations may be there of which nothing is learnt, or whose markup is", kRecordsMayDiffer,
       Recorded::Otherwise, KeyOf::Data});
  key("data.special_in_text", c.special_in_text, nullptr,
      {"special tokens that stay such where the data has their text", kRecordsMayDiffer, Recorded::Otherwise,
       KeyOf::Data});
  key("data.pairs", c.pairs, Choices{"auto", "chat", "text"},
      {"a question and its answer as turns of a chat, or as one text; auto: turns, if the model has a chat "
       "template, and prompt with completion one text",
       kRecordsMayDiffer, Recorded::Otherwise, KeyOf::Data});
  key("data.fields.prompt", c.fields.prompt, nullptr,
      {"key or column that has the question, where it is called otherwise than usual; goes with completion",
       kOtherRecords, Recorded::Otherwise, KeyOf::Data});
  key("data.fields.completion", c.fields.completion, nullptr,
      {"key or column that has its answer", kOtherRecords, Recorded::Otherwise, KeyOf::Data});
  key("data.fields.text", c.fields.text, nullptr,
      {"key or column that has plain text", kOtherRecords, Recorded::Otherwise, KeyOf::Data});
  key("data.fields.messages", c.fields.messages, nullptr,
      {"key or column that has conversations", kRecordsMayDiffer, Recorded::Otherwise, KeyOf::Data});
  key("data.ignore", c.ignore, nullptr,
      {"keys of records and messages that are passed over", kRecordsMayDiffer, Recorded::Otherwise,
       KeyOf::Data});
  key("data.roles", c.roles, nullptr,
      {"roles of messages that are taken as they stand, beside those that are known", kRecordsMayDiffer,
       Recorded::Otherwise, KeyOf::Data});
  key("data.open_ends", c.open_ends, nullptr,
      {"whether what data marks as learnt may leave out the token that ends a turn; such a model never stops",
       kRecordsMayDiffer, Recorded::Otherwise, KeyOf::Data});
  key("data.template_kwargs", c.template_kwargs, nullptr,
      {"variables of the chat template, a JSON object such as '{\"enable_thinking\": false}'", kTextMayDiffer,
       Recorded::Otherwise, KeyOf::Data});
  key("data.chat_template", c.chat_template, TemplateName(),
      {"name of the model's chat template, where it has several, or chatml, gemma, llama3, mistral, or a "
       "file that ends in .jinja; empty: its default",
       kTextMayDiffer, Recorded::Otherwise, KeyOf::Data});
  key("data.date", c.date, nullptr,
      {"the date that chat templates show which ask for today's, as 2026-01-31; empty: that of the first "
       "start",
       kTextMayDiffer, Recorded::Otherwise, KeyOf::Data});
  key("data.malformed", c.malformed, Choices{"refuse", "skip"},
      {"what becomes of records and texts that cannot be read: an error, or they are left out and counted",
       kOtherRecords, Recorded::Otherwise, KeyOf::Data});
  key("data.mode", c.mode, Choices{"auto", "contiguous", "packed"},
      {"cut the text, or pack whole documents side by side; auto: packed if there are records (JSON, CSV)",
       kOtherRows, Recorded::Always});
  key("data.long_documents", c.long_documents, Choices{"continue", "cut", "drop"},
      {"packed: a document that is longer than a sequence goes on in another, is cut, or is left out",
       kOtherRows, Recorded::Changed, KeyOf::Data});
  key("data.respect_documents", c.respect_documents, nullptr,
      {"attention and targets end at document boundaries", kOtherRows, Recorded::Always});
  key("data.cache", c.cache, OutputPath(), {"directory for tokens and measured costs"});
}

}  // namespace sluice::core
