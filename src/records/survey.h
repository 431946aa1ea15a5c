// SPDX-License-Identifier: Apache-2.0
// What a model would learn of some files, before anything runs.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "chat/learnt.h"
#include "records/record.h"

namespace sluice::core {

struct SurveyOptions {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template =
      nullptr;  // null: conversations are refused, for the reason in no_template
  std::string no_template;
  Learn learn = Learn::Answers;
  int32_t end = -1;      // the token that ends a text or a completion, unless it does so itself; -1: none
  int64_t sequence = 0;  // of the run, to count what is longer; 0: not known
  int64_t examples = 2;  // of documents to keep
  RecordOptions records;
};

// A record as tokens with what is learnt. Errors: the reason, without its place.
Result<LearntTokens> tokens_of(const Record& record, const SurveyOptions& options,
                               RenderedChat* chat = nullptr);

struct Survey {
  int64_t files = 0, documents = 0, tokens = 0, learnt = 0;
  int64_t malformed = 0;  // skipped lines
  std::string first_malformed;
  std::array<int64_t, 4> kinds{};     // documents of each Record::Kind
  std::array<int64_t, 40> lengths{};  // documents with tokens from 2^i on, below 2^(i+1)
  int64_t longest = 0, longer_than_sequence = 0;
  // What usually is a mistake, in documents; straddling: tokens.
  int64_t without_learnt = 0, without_end = 0, two_begins = 0, straddling = 0;
  int64_t lack_tools = 0, lack_tool_calls = 0, lack_messages = 0;
  int64_t lonely_files = 0;  // JSONL of one record

  struct Run {  // tokens beside each other that are learnt, or are not
    std::string text;
    bool learnt;
  };
  struct Example {
    std::string place;  // file and line
    std::vector<Run> runs;
  };
  std::vector<Example> examples;  // the first ones

  // Sentences on what usually is a mistake.
  std::vector<std::string> warnings() const;
};

// Reads all of the files, in bounded memory. Errors name file, line and reason.
Result<Survey> survey(std::span<const std::filesystem::path> files, const SurveyOptions& options);

}  // namespace sluice::core
