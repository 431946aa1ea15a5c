// SPDX-License-Identifier: Apache-2.0
#include "run/data.h"

#include <algorithm>
#include <filesystem>

#include "base/host_memory.h"
#include "base/parallel.h"
#include "run/checks.h"
#include "tokens/byte_tokenizer.h"
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

// The folder that a key names, or the one of the file that it names; empty: the key is not set.
std::filesystem::path folder_of(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return path;
  return std::filesystem::path(path).parent_path();
}

Error no_tokenizer(const RunConfig& c, int64_t vocab) {
  std::string where;
  for (const std::string& path : {c.model.weights, c.model.config}) {
    if (path.empty()) continue;
    where += fmt::format("{}{}", where.empty() ? "" : " and ", folder_of(path).string());
  }
  return error(
      "data.paths: this model has a vocabulary of {} tokens, and its tokenizer, which makes them of text, is "
      "not "
      "there: {}. Put its tokenizer.json beside its config.json or weights; a model of bytes has a "
      "vocabulary of {}",
      vocab, where.empty() ? "a preset has none" : "no tokenizer.json is in " + where, ByteTokenizer::kVocab);
}

bool is_one_file(const std::vector<std::string>& paths) {
  std::error_code ignored;
  return paths.size() == 1 && std::filesystem::is_regular_file(paths.front(), ignored);
}

}  // namespace

std::optional<std::filesystem::path> tokenizer_of(const RunConfig& c) {
  for (const std::string& path : {c.model.weights, c.model.config}) {
    std::error_code ignored;
    const std::filesystem::path file = folder_of(path) / "tokenizer.json";
    if (!path.empty() && std::filesystem::exists(file, ignored)) return file;
  }
  return std::nullopt;
}

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
  const auto tokenizer_path = tokenizer_of(c);
  if (!tokenizer_path && vocab != ByteTokenizer::kVocab) return no_tokenizer(c, vocab);
  CorpusOptions corpus_options;
  corpus_options.paths = c.data.paths;
  corpus_options.include = c.data.include;
  corpus_options.exclude = c.data.exclude;
  corpus_options.heldout = c.data.heldout;
  std::optional<Tokenizer> tokenizer;
  if (tokenizer_path) {
    SLUICE_ASSIGN(tokenizer, Tokenizer::open(*tokenizer_path));
    corpus_options.tokenizer = &*tokenizer;
    corpus_options.threads = c.run.threads > 0 ? int(c.run.threads) : search_threads();
  }
  SLUICE_ASSIGN(Corpus corpus, open_corpus(corpus_options, c.data.cache));
  // Its memory is the run's.
  tokenizer.reset();
  release_freed_memory();
  data.content = corpus.key;
  data.notice = corpus.notice;
  if (corpus.dropped > 0) {
    data.notice += data.notice.empty() ? "" : "; ";
    data.notice +=
        fmt::format("data.paths: {} has no token for {} characters or bytes of the text; they are left out",
                    tokenizer_path->string(), corpus.dropped);
  }
  SLUICE_ASSIGN(data.train, make_batches(std::move(corpus.train), options));
  if (corpus.heldout) {
    options.rows = std::max<int64_t>(1, c.eval.rows);
    SLUICE_ASSIGN(data.heldout, make_batches(std::move(*corpus.heldout), options));
  }
  return data;
}

}  // namespace sluice::core
