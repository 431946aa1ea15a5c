// SPDX-License-Identifier: Apache-2.0
#include "run/data.h"

#include <algorithm>
#include <filesystem>

#include "run/checks.h"
#include "tokens/corpus.h"

namespace sluice::core {
namespace {

BatchOptions batch_options(const RunConfig& c, int64_t vocab) {
  BatchOptions options;
  options.mode = c.data.mode == "packed" ? BatchMode::Packed : BatchMode::Contiguous;
  options.sequence = c.train.seq_len;
  options.rows = c.train.tokens_per_step / c.train.seq_len;
  options.seed = uint64_t(c.train.seed);
  options.vocab = vocab;
  options.respect_documents = c.data.respect_documents;
  return options;
}

bool is_one_file(const std::vector<std::string>& paths) {
  std::error_code ignored;
  return paths.size() == 1 && std::filesystem::is_regular_file(paths.front(), ignored);
}

}  // namespace

bool packs_documents(const RunConfig& c) {
  if (c.data.paths.empty()) return false;
  return c.data.mode == "packed" || (c.data.respect_documents && !is_one_file(c.data.paths));
}

bool holds_out(const RunConfig& c) {
  return !c.data.paths.empty() && c.data.heldout > 0;
}

Result<RunData> open_data(const RunConfig& c, int64_t vocab) {
  BatchOptions options = batch_options(c, vocab);
  RunData data;
  if (c.data.paths.empty()) {
    data.train = make_random_batches(options);
    data.content = "random tokens";
    return data;
  }
  for (const std::string& path : c.data.paths) {
    const bool pattern = path.find_first_of("*?[") != path.npos;
    if (!pattern) SLUICE_TRY(check_input(c, "data.paths", path));
  }
  CorpusOptions corpus_options;
  corpus_options.paths = c.data.paths;
  corpus_options.include = c.data.include;
  corpus_options.exclude = c.data.exclude;
  corpus_options.heldout = c.data.heldout;
  SLUICE_ASSIGN(Corpus corpus, open_corpus(corpus_options, c.data.cache));
  data.content = corpus.key;
  SLUICE_ASSIGN(data.train, make_batches(std::move(corpus.train), options));
  if (corpus.heldout) {
    options.rows = std::max<int64_t>(1, c.eval.rows);
    SLUICE_ASSIGN(data.heldout, make_batches(std::move(*corpus.heldout), options));
  }
  return data;
}

}  // namespace sluice::core
