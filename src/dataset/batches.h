// SPDX-License-Identifier: Apache-2.0
// The rows a model is trained on, by random access. Row `row` of step `step` is a pure function of the data,
// the seed and the two numbers, so that resuming a run replays nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/batch.h"
#include "base/status.h"
#include "dataset/sides.h"
#include "dataset/token_set.h"

namespace sluice::core {

// How a source's documents become rows.
struct RowCounts {
  int64_t rows = 0;     // until one comes again
  int64_t padding = 0;  // tokens in them that are of no document
  int64_t cut = 0;      // documents that are longer than a row
  int64_t dropped = 0;  // documents of which nothing is in a row: too short, or too long
  std::vector<int64_t> dropped_documents = {};  // their numbers
  int64_t left_out = 0;                         // tokens of documents that are in no row
  int64_t all = 0;                              // rows that there are; of shares some come in later epochs
};

// Rows that a share of a path's comes as.
struct RowShare {
  size_t entry = 0;                // of what people named
  int64_t rows = 0, an_epoch = 0;  // that there are, and that an epoch has
};

// A row is `sequence` tokens, of which there is what base/batch.h lists. fill() allocates nothing and may be
// called by several threads.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t sequence() const = 0;
  // Rows until one comes again. Row and step only enter as step * rows + row: an epoch need not end with a
  // step.
  virtual int64_t epoch_rows() const = 0;
  virtual RowCounts counts() const = 0;
  virtual std::vector<RowShare> shares() const { return {}; }
  // Whether documents may begin inside a row (AttnShape::packed).
  virtual bool packed() const = 0;
  // Every column that `to` has. REQUIRES: it is a row.
  virtual void fill(int64_t step, int64_t row, const RowsView& to) const = 0;
  // The sides in a row, of documents whose answers are compared (BatchOptions::compares); those of a pair
  // stand side by side.
  virtual std::vector<RowSide> sides(int64_t /*step*/, int64_t /*row*/) const { return {}; }
  // A document of these, whether rows have it or not, and how many there are.
  virtual SidedDocument document(int64_t /*number*/) const { return {}; }
  virtual int64_t documents() const { return 0; }
};

// Rows [first, first + tokens / sequence) of a step. REQUIRES: `to` is whole rows.
void fill_rows(const BatchSource& source, int64_t step, int64_t first, const RowsView& to);

enum class BatchMode : uint8_t {
  Contiguous,  // all documents one after another, cut every `sequence` tokens
  Packed,      // whole documents side by side in a row; longer ones are cut into pieces of `sequence` tokens
};

// Packed only: what becomes of a document that is longer than a row.
enum class LongDocuments : uint8_t {
  Continue,  // pieces of `sequence` tokens, each from position 0; the last token of one has its target
  Cut,       // the first piece; the rest is left out
  Drop,
};

struct BatchOptions {
  BatchMode mode = BatchMode::Contiguous;
  int64_t sequence = 0;
  int64_t rows = 0;   // of a step
  uint64_t seed = 0;  // of the shuffled order, another one for every epoch
  int64_t vocab = 0;  // of the model
  // Contiguous only: a document that begins inside a row starts at position 0, and the last token of the one
  // before has no target. Packed always does so. When false, positions run through the row and every token
  // has a target.
  bool respect_documents = true;
  // Contiguous only: the tokens that are left after the last whole row are a row, too, and the rest of it
  // padding.
  bool tail = false;
  LongDocuments long_documents = LongDocuments::Continue;
  // How often the rows of each entry come that people named, where that is not once an epoch: 0.3, or 0
  // for all. Empty: of none. Rows are drawn by the seed, and each comes before one comes again. REQUIRES: the
  // tokens of such entries stand together, behind the others.
  std::vector<double> shares = {};
  std::vector<std::string> share_names = {};  // what errors call those of an entry; empty: nothing
  std::string name = {};                      // what errors call the tokens; empty: their files
  // Packed only: documents are answers to compare. One that is longer than a row is in none, and
  // `whole_targets` gives the chosen prompts of pairs targets, too.
  Compares compares = Compares::Nothing;
  bool whole_targets = false;
};

// Rows from token files. A row's targets may reach one token past it. In packed rows the rest of a row is
// padding (ColumnFacts::padding). Pieces in which nothing is learnt are left out of them.
// Context has target -1, whatever row it is in.
//
// For evaluation, read rows 0 to n - 1 of step 0 of a source over the held-out tokens, at most epoch_rows().
// They are a fixed random choice of its rows, each once.
//
// Errors: tokens outside the vocabulary, too few tokens for one row, nothing that is learnt, a share of which
// no row comes, documents without the sides that are compared.
Result<std::unique_ptr<BatchSource>> make_batches(TokenSet tokens, const BatchOptions& options);

// Rows of random tokens below options.vocab, without files: for trying out shapes, speed and memory. Of the
// options, mode and respect_documents do not matter.
std::unique_ptr<BatchSource> make_random_batches(const BatchOptions& options);

}  // namespace sluice::core
