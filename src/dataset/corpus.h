// SPDX-License-Identifier: Apache-2.0
// What people bring, as tokens with what is learnt: split into training and held-out documents, and cached as
// token files.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/places.h"
#include "dataset/sources.h"
#include "dataset/token_set.h"
#include "records/findings.h"
#include "records/record.h"
#include "tokenizer/tokenizer.h"

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
  Tokens,  // split_documents() of dataset/split.h
  Count,   // split_by_count()
};

// How a share is taken of the documents of a path whose weight is no whole number.
enum class ShareRule : uint8_t {
  Rows,       // all are in the corpus once, and rows of them are drawn, others in each epoch (BatchOptions)
  Documents,  // those that draw less than it by name and line, the same in each epoch: what earlier runs did
};

struct CorpusOptions {
  SourceOptions sources;
  // How often the documents of each of sources.paths come, from 0 to 100; empty: once.
  std::vector<double> weights;
  ShareRule shares = ShareRule::Rows;
  // Files to hold out, as sources.paths has them; the fraction does not matter then.
  std::vector<std::string> heldout_paths;
  // Fraction of the tokens to hold out, 0 to below 1, in whole documents. Every document draws by its file's
  // path below the named directory, its line and the seed, so that files added later move but those at the
  // limit. If the fraction is positive, both sides get at least one document. A corpus of a single one that
  // is a file of text or tokens is cut instead, and its last part held out.
  double heldout = 0.05;
  SplitRule split = SplitRule::Tokens;
  // Corpus::content of a run that goes on: where it is that of earlier rules, they hold.
  std::string goes_on;
  uint64_t seed = 0;
  // Its tokenizer may be null: a token is a byte (ByteTokenizer).
  TokenMaking making;
  bool skip_malformed =
      false;          // records, and text that is not UTF-8, and count them, instead of refusing them
  FieldNames fields;  // RecordOptions::fields
  std::vector<std::string> ignore;  // RecordOptions::ignore
  std::vector<std::string> roles;   // RecordOptions::roles
  int threads = 1;                  // that encode
  EncodingRoom room;                // of the same threads; what would take more is refused
  // Told from time to time which of two passes over how many bytes is how far: they are read for their
  // checksum, and become tokens if the cache has none.
  std::function<void(const char* what, int64_t done_bytes, int64_t all_bytes)> progress;
  // Told of every finding and its place: tokens are made anew for it.
  Findings::Told told;

  // Whether rows are drawn of what this path has.
  bool is_share(size_t entry) const {
    return shares == ShareRule::Rows && !weights.empty() && weights[entry] != std::floor(weights[entry]);
  }
};

struct Corpus {
  TokenSet train;
  std::optional<TokenSet> heldout;
  int64_t files = 0;   // that are not empty
  bool built = false;  // false: the cache had it
  std::string key;     // equal for equal options, files, contents and tokenizers
  // Equal for equal tokens, as checkpoints say it. Where Sluice 0.1.0 read as this version does, it has the
  // name that it had there. Else it is the key, with the number of the first reader behind it that reads it
  // so. `contents_before`: what readers before that called it.
  std::string content;
  std::vector<std::string> contents_before;
  std::string notice;                // why what the cache had was not believed; empty: it was, or had nothing
  Findings findings;                 // of all documents, each once
  std::vector<std::string> notices;  // on what is held out and left out, a sentence each
  // Bytes of text that the learnt tokens of each side stand for; 0: unknown.
  int64_t train_bytes = 0, heldout_bytes = 0;
  std::vector<double> shares;  // weights of paths that rows are drawn of, 0 of others; empty: of none
  std::filesystem::path places_path;

  // Not known of tokens that an earlier version made of text.
  PlacesFile places() const {
    return PlacesFile::open(places_path, train.documents(), heldout ? heldout->documents() : 0);
  }
};

// Where a corpus of that key says in a cache what it was made of: a sealed file of this kind.
constexpr std::string_view kCorpusKind = "corpus 2";
std::filesystem::path corpus_file(const std::filesystem::path& cache, std::string_view key);

// A document is a file of text, a record, or a document of a token file; they are in the order of their
// files' paths. The token files are in `cache_directory`/<hash of options, paths, contents and tokenizer>/
// with their checksums and what they were made of. So changed input is found again or built, never mixed up.
// A file that is damaged, or somebody else's, is built anew. Errors: input that changes while it is read.
Result<Corpus> open_corpus(const CorpusOptions& options, const std::filesystem::path& cache_directory);

}  // namespace sluice::core
