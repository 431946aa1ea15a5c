// SPDX-License-Identifier: Apache-2.0
// The documents of sources to the two token files of a corpus.
#pragma once

#include <span>

#include "dataset/corpus.h"

namespace sluice::core {

struct BuiltTokens {
  Findings findings;                           // as Corpus has them
  int64_t train_bytes = 0, heldout_bytes = 0;  // as Corpus has them
  std::vector<TokenSet::Path> train_paths, heldout_paths;
  DocumentPlaces places;
  std::vector<std::string> notices;  // as Corpus has them
  bool compared = false;             // what is held out with what is trained on
};

// How records are read.
RecordOptions record_options_of(const CorpusOptions& options);

// Where the two files go.
struct TokenPaths {
  std::filesystem::path train, heldout;
};

// Writes the train file, and the other one if something is held out. `held` are sources of which all is.
// `told` gets the bytes of them that were read since the last time.
Result<BuiltTokens> build_tokens(const CorpusOptions& options, std::span<const Source> sources,
                                 std::span<const Source> held, const TokenPaths& paths,
                                 const std::function<void(int64_t)>& told);

}  // namespace sluice::core
