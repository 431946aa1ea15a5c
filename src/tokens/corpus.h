// SPDX-License-Identifier: Apache-2.0
// What people bring, as tokens with what is learnt: split into training and held-out documents, and cached as
// token files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "records/findings.h"
#include "records/record.h"
#include "tokenizer/tokenizer.h"
#include "tokens/sources.h"
#include "tokens/token_set.h"

namespace sluice::core {

// Bounds on what is encoded at once, from the memory that there is for it.
struct EncodingRoom {
  RecordOptions records;
  int64_t batch_bytes = int64_t{1} << 20;       // ReadingOptions::batch_bytes
  int64_t part_bytes = int64_t{4} << 20;        // TokenizeOptions::part_bytes
  int64_t most_part_bytes = int64_t{64} << 20;  // TokenizeOptions::most_bytes
  TokenizerOptions tokenizer;
  std::string why;  // there is no more: ends the errors that follow from it

  // Bounds with which `threads` threads hold no more than so many bytes beside the tokenizer.
  static EncodingRoom of(int64_t bytes, int threads, std::string why);
};

// Which documents a fraction of them is.
enum class SplitRule : uint8_t {
  Tokens,  // split_documents() of tokens/split.h
  Count,   // split_by_count()
};

struct CorpusOptions {
  SourceOptions sources;
  // How often the documents of each of sources.paths come, from 0 to 100; empty: once. Of 0.3 come three
  // documents in ten, of 1.3 these twice. They are drawn by name, line and seed.
  std::vector<double> weights;
  // Files to hold out, as sources.paths has them; the fraction does not matter then.
  std::vector<std::string> heldout_paths;
  // Fraction of the tokens to hold out, 0 to below 1, in whole documents. Every document draws by its file's
  // path below the named directory, its line and the seed, so that files added later move but those at the
  // limit. If the fraction is positive, both sides get at least one document; a corpus of a single one that
  // is a file of text or tokens is cut instead, and its last part held out.
  double heldout = 0.05;
  SplitRule split = SplitRule::Tokens;
  // Corpus::key of a run that goes on: where it is that of SplitRule::Count, that is the rule.
  std::string goes_on;
  uint64_t seed = 0;
  // Its tokenizer may be null: a token is a byte (ByteTokenizer).
  TokenMaking making;
  bool skip_malformed =
      false;          // records, and text that is not UTF-8, and count them, instead of refusing them
  FieldNames fields;  // RecordOptions::fields
  std::vector<std::string> ignore;  // RecordOptions::ignore
  int threads = 1;                  // that encode
  EncodingRoom room;                // of the same threads; what would take more is refused
  // Told from time to time which of two passes over how many bytes is how far: they are read for their
  // checksum, and become tokens if the cache has none.
  std::function<void(const char* what, int64_t done_bytes, int64_t all_bytes)> progress;
};

struct Corpus {
  TokenSet train;
  std::optional<TokenSet> heldout;
  int64_t files = 0;   // that are not empty
  bool built = false;  // false: the cache had it
  std::string key;     // equal for equal options, files, contents and tokenizers
  // Equal for equal tokens, as checkpoints say it: what Sluice 0.1.0 read as this version does has the name
  // that it had there, `content_before`; else the key, with the number of the reader behind it.
  std::string content, content_before;
  std::string notice;                // why what the cache had was not believed; empty: it was, or had nothing
  Findings findings;                 // of all documents, each once
  std::vector<std::string> notices;  // on what is held out, a sentence each
  // Of text, that the learnt tokens of each side's documents stand for; 0: unknown.
  int64_t train_bytes = 0, heldout_bytes = 0;
};

// Where a corpus of that key says in a cache what it was made of: a sealed file of this kind.
constexpr std::string_view kCorpusKind = "corpus 2";
std::filesystem::path corpus_file(const std::filesystem::path& cache, std::string_view key);

// A document is a file of text, a record, or a document of a token file; they are in the order of their
// files' paths. The token files are in `cache_directory`/<hash of options, paths, contents and tokenizer>/
// with their checksums and what they were made of, so changed input is found again or built, never mixed up;
// what is damaged there, or somebody else's, is built anew. Errors: input that changes while it is read.
Result<Corpus> open_corpus(const CorpusOptions& options, const std::filesystem::path& cache_directory);

}  // namespace sluice::core
