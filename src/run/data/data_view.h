// SPDX-License-Identifier: Apache-2.0
// What a run would learn, to be looked at before it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/data/data.h"
#include "run/loaded/evaluation.h"

namespace sluice::core {

// How a stretch of a row is learnt.
enum class Part : uint8_t { Context, Learnt };

struct ShownRun {  // tokens beside each other
  std::string text;
  Part part = Part::Context;
  bool special = false;  // a token that no text becomes
};
struct ShownDocument {  // or the piece of one that is in a row
  int64_t tokens = 0, learnt = 0;
  std::vector<ShownRun> runs;
};
struct ShownRow {
  std::vector<ShownDocument> documents;
  int64_t padding = 0;  // tokens
};

struct DataView {
  std::string config;  // what was asked for, as people wrote it
  std::string tokenizer, chat_template;
  int64_t files = 0;
  Findings findings;
  Inventory train, heldout;
  int64_t heldout_rows = 0;
  RowsCount evaluated;  // of them, at a time
  RowCounts counts;     // of training
  BatchMode mode = BatchMode::Contiguous;
  std::string long_documents;
  int64_t sequence = 0, rows_per_step = 0, steps_per_epoch = 0;
  struct Share {  // RowShare
    std::string name;
    int64_t rows, an_epoch;
  };
  std::vector<Share> shares;
  std::vector<ShownRow> rows;             // the first ones of training
  std::optional<ShownChat> first_chat;    // beside rows
  std::vector<std::string> warnings;      // what usually is a mistake, a sentence each
  std::vector<std::string> step_notices;  // as step_notices() has them
};

// Opens what the configuration says, or takes it from the cache. `rows`: how many to show. `told`: as
// open_data() has it.
Result<DataView> view_data(const RunConfig& config, int64_t vocab, int64_t rows, Observer& observer,
                           const Findings::Told& told = {});

// As text, in which what others wrote is printable (base/printable.h): what there is to say, and the first
// rows, in colours or with marks.
std::string overview(const DataView& view);
std::string rows_as_text(const DataView& view, bool colours);
// As JSON, for programs.
std::string to_json(const DataView& view);
// A page that needs nothing beside it.
std::string to_html(const DataView& view);

}  // namespace sluice::core
