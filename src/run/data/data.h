// SPDX-License-Identifier: Apache-2.0
// What a run learns from. Plans ask only what the configuration says of it.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "dataset/batches.h"
#include "measure/row_sample.h"
#include "records/findings.h"
#include "sluice/observer.h"

namespace sluice::core {

// How documents become rows: as data.mode says it, where "auto" goes by the names of the files.
BatchMode batch_mode(const RunConfig& config);
// Whether documents may begin inside a sequence, as far as the configuration tells: a single text file is one
// document. Opens nothing.
bool packs_documents(const RunConfig& config);
// Whether records are prompts, of run/data/prompts.h.
bool reads_prompts(const RunConfig& config);
// Whether a part of the data is held out.
bool holds_out(const RunConfig& config);

// data.date, or where it is left open that of the checkpoint that the run goes on from, or today.
Result<std::string> date_of(const RunConfig& config);

// The documents of training, or the held-out ones.
struct Inventory {
  int64_t documents = 0, tokens = 0, learnt = 0, longest = 0;
  std::array<int64_t, 40> lengths{};  // documents with tokens from 2^i on, below 2^(i+1)
};

// A conversation as it is rendered, stretch after stretch.
struct ShownChat {
  struct Stretch {
    std::string by;  // a role, "template", or "record": what stands beside the messages, such as tools
    std::string text;
    bool learnt = false;
  };
  std::string place;  // place_text()
  std::vector<Stretch> stretches;
};

class Prompts;  // run/data/prompts.h

struct RunData {
  std::unique_ptr<BatchSource> train, heldout;  // heldout may be null
  std::shared_ptr<const Prompts> prompts;       // of an objective that rewards answers, else null
  std::string content;                          // equal for equal tokens
  std::vector<std::string> contents_before;     // as Corpus has it
  // data.date, where a chat template shows it: it is among what checkpoints say the run is.
  std::string date;
  // Notices on how text became tokens, and on held-out or omitted text, a sentence each.
  std::vector<std::string> notices, heldout_notices;
  Findings findings;
  int64_t files = 0;
  Inventory train_documents, heldout_documents;
  std::string chat_template;  // its name; empty: nothing is rendered
  // Bytes of text that a token stands for whose loss counts, in the mean; 0: unknown. Of the rows of training
  // only where they are evaluated.
  double train_bytes_per_token = 0, heldout_bytes_per_token = 0;
  // Names behind the held-out documents: each of data.paths or data.heldout_paths, as seen from here.
  std::vector<std::string> names, heldout_names;
  // Text before the first held-out answer that leaves as much room in a sequence, with the template's special
  // tokens as text, and the special token that ends the answer. Without answers "// ", and -1.
  std::string prompt = "// ";
  int32_t answer_end = -1;
  std::string other_end;  // that it is none of the folder's ends, a notice; empty: it is one
  // Why training does not start: conversations of which nothing is learnt, or markup is; empty: it does.
  std::string unlearnt;
  // Texts that checkpoints have in place of the model's files, by name. They are the end of answers beside
  // the folder's, and the chat template that was learnt with, where it is not the folder's own.
  std::map<std::string, std::string> model_texts;
  std::optional<ShownChat> first_chat;  // of a data set that is looked at
};
// The use of training's rows.
enum class DataUse : uint8_t {
  Train,
  Look,      // they are shown, and so is the first conversation
  Evaluate,  // every token is in one
};
// Reads, and if need be tokenizes, data.paths; random tokens when there are none. Text is never bytes for a
// model whose vocabulary is not: without its tokenizer it is refused. `told`: of every finding with its
// place, for which tokens are made anew.
Result<RunData> open_data(const RunConfig& config, int64_t vocab, Observer& observer = silent_observer(),
                          DataUse use = DataUse::Train, const Findings::Told& told = {});

// How documents lie in the rows of training; empty, where none begins inside one.
RowSample sample_rows(const RunData& data);

// Sentences on so many steps beside the data.
std::vector<std::string> step_notices(const RunConfig& config, int64_t steps, const RunData& data);

}  // namespace sluice::core
