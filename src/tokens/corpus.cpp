// SPDX-License-Identifier: Apache-2.0
#include "tokens/corpus.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "base/hash.h"
#include "base/philox.h"
#include "io/file.h"
#include "io/pieces.h"
#include "io/sealed.h"
#include "tokens/byte_tokenizer.h"
#include "tokens/tokenize.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// One input file; `name` is its path below the directory that the user named.
struct Source {
  std::string name;
  fs::path path;
  int64_t bytes = 0;
};

// A stretch of a source that becomes one document.
struct Piece {
  const Source* source;
  int64_t begin, end;  // bytes
};

struct Split {
  std::vector<Piece> train, heldout;
};

bool excluded(const std::string& name, const CorpusOptions& options) {
  return std::any_of(options.exclude.begin(), options.exclude.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), FNM_LEADING_DIR) == 0 ||
           fnmatch(pattern.c_str(), fs::path(name).filename().c_str(), 0) == 0;
  });
}

bool included(const std::string& name, const CorpusOptions& options) {
  return options.include.empty() ||
         std::any_of(options.include.begin(), options.include.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

std::vector<std::string> expand(const std::string& pattern) {
  glob_t matches{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  return paths;
}

// The directory in front of the first wildcard.
fs::path fixed_part(const std::string& pattern) {
  return fs::path(pattern.substr(0, pattern.find_first_of("*?["))).parent_path();
}

Status gather_directory(const fs::path& directory, const fs::path& root, const CorpusOptions& options,
                        std::vector<Source>& sources) {
  SLUICE_ASSIGN(const auto files, list_files(directory));
  for (const fs::path& file : files) {
    const fs::path path = directory / file;
    const std::string name = path.lexically_relative(root).generic_string();
    if (included(name, options) && !excluded(name, options)) sources.push_back({name, path});
  }
  return {};
}

Status gather(const std::string& path, const CorpusOptions& options, std::vector<Source>& sources) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return gather_directory(path, path, options, sources);
  if (fs::exists(path, ignored)) {
    sources.push_back({fs::path(path).filename().generic_string(), path});
    return {};
  }
  const auto matches = expand(path);
  if (matches.empty())
    return error(ErrorKind::NotFound,
                 "corpus: '{}' is neither a file, a directory nor a pattern that matches one", path);
  const fs::path root = fixed_part(path);
  for (const std::string& match : matches) {
    if (fs::is_directory(match, ignored)) {
      SLUICE_TRY(gather_directory(match, root, options, sources));
    } else if (const auto name = fs::path(match).lexically_relative(root).generic_string();
               !excluded(name, options)) {
      sources.push_back({name, match});
    }
  }
  return {};
}

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + item;
  return text + "]";
}

// Every input once, in the order of its name, without empty files.
Result<std::vector<Source>> find_sources(const CorpusOptions& options) {
  std::vector<Source> found;
  for (const std::string& path : options.paths) SLUICE_TRY(gather(path, options, found));
  std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  std::set<fs::path> seen;
  std::vector<Source> sources;
  for (Source& source : found) {
    std::error_code code;
    const bool is_new = seen.insert(fs::canonical(source.path, code)).second;
    if (!code) source.bytes = static_cast<int64_t>(fs::file_size(source.path, code));
    if (code) return error_at("corpus", file_error("inspect", source.path, code.value()));
    if (is_new && source.bytes > 0) sources.push_back(std::move(source));
  }
  if (sources.empty()) {
    return error(ErrorKind::NotFound, "corpus: no file with content among {} with endings {}",
                 list(options.paths), list(options.include));
  }
  return sources;
}

std::string_view view(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// What the token files are made of: equal requests mean equal bytes in, hence equal token files out.
Result<SealedRequest> request_of(const CorpusOptions& options, const std::vector<Source>& sources) {
  SealedRequest request("corpus 2");
  request.add("seed", options.seed).add("heldout", options.heldout);
  for (const Source& source : sources) {
    Checksummer sum;
    SLUICE_TRY(read_pieces(source.path, 0, source.bytes, [&](std::string_view piece) {
      sum.add(piece);
      return Status();
    }));
    request.add(source.name, sum.value().text());
  }
  if (options.tokenizer != nullptr) request.add("tokenizer", options.tokenizer->content());
  return request;
}

// Uniform in (0, 1), by the file's name and the seed.
double draw(const Source& source, uint64_t seed) {
  return uniform_open(philox(seed, Hash().add(source.name).value(), 0).v[0]);
}

// Documents in the order of `sources`.
Result<Split> split(const CorpusOptions& options, const std::vector<Source>& sources) {
  std::vector<Piece> all;
  all.reserve(sources.size());
  for (const Source& source : sources) {
    all.push_back({&source, 0, source.bytes});
  }
  if (options.heldout == 0) return Split{all, {}};
  if (all.size() == 1) {
    Piece first = all.front(), last = first;
    if (first.end < 2)
      return error("corpus: {} is too short to hold a part out", first.source->path.string());
    const auto cut = static_cast<int64_t>(double(first.end) * (1 - options.heldout));
    first.end = last.begin = std::clamp<int64_t>(cut, 1, first.end - 1);
    if (options.tokenizer != nullptr) {
      SLUICE_ASSIGN(const MappedFile file, MappedFile::open(first.source->path));
      first.end = last.begin = place_between(view(file), first.end);
    }
    return Split{{first}, {last}};
  }
  std::vector<double> draws;
  draws.reserve(sources.size());
  for (const Source& source : sources) draws.push_back(draw(source, options.seed));
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return draws[a] < draws[b]; });
  const auto below = std::count_if(draws.begin(), draws.end(), [&](double d) { return d < options.heldout; });
  const auto count = std::clamp<int64_t>(below, 1, int64_t(all.size()) - 1);
  std::vector<char> held(all.size(), 0);
  for (int64_t i = 0; i < count; ++i) held[order[size_t(i)]] = 1;
  Split result;
  for (size_t i = 0; i < all.size(); ++i) (held[i] != 0 ? result.heldout : result.train).push_back(all[i]);
  return result;
}

Status write_bytes(const fs::path& path, const std::vector<Piece>& pieces) {
  SLUICE_ASSIGN(TokenFileWriter writer, TokenFileWriter::create(path, /*token_bytes=*/2));
  for (const Piece& piece : pieces) {
    SLUICE_TRY(read_pieces(piece.source->path, piece.begin, piece.end, [&](std::string_view text) {
      return writer.append(ByteTokenizer::encode(text));
    }));
    writer.end_document();
  }
  return writer.commit();
}

Status write_tokens(const fs::path& path, const std::vector<Piece>& pieces, const CorpusOptions& options,
                    int64_t& dropped) {
  if (options.tokenizer == nullptr) return write_bytes(path, pieces);
  SLUICE_ASSIGN(TokenFileWriter writer, TokenFileWriter::create(path, token_bytes(*options.tokenizer)));
  std::vector<TextRange> documents;
  documents.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    documents.push_back({piece.source->path, piece.begin, piece.end, piece.source->bytes});
  }
  TokenizeOptions tokenizing;
  tokenizing.threads = options.threads;
  EncodeCounts counts;
  SLUICE_TRY(tokenize(documents, *options.tokenizer, tokenizing, writer, counts));
  dropped += counts.dropped;
  if (writer.tokens() == 0) return error("corpus: the tokenizer makes no token of any document");
  return writer.commit();
}

}  // namespace

Result<Corpus> open_corpus(const CorpusOptions& options, const fs::path& cache_directory) {
  if (!(options.heldout >= 0 && options.heldout < 1)) {
    return error("corpus: held-out fraction {}; allowed is 0 to below 1", options.heldout);
  }
  SLUICE_ASSIGN(const auto sources, find_sources(options));
  SLUICE_ASSIGN(const SealedRequest request, request_of(options, sources));
  const std::string key = request.key();
  const fs::path directory = cache_directory / key, sums = directory / "corpus";
  const fs::path train = directory / "train.tokens", heldout = directory / "heldout.tokens";

  // The token files as they were built for this request, and no others.
  const auto open = [&](bool built) -> Result<Corpus> {
    SLUICE_ASSIGN(const std::string expected, read_sealed(sums, request));
    std::string found;
    const auto open_one = [&](const fs::path& path) -> Result<TokenSet> {
      SLUICE_ASSIGN(TokenFile file, TokenFile::open(path));
      found += file.checksum().text() + "\n";
      std::vector<TokenFile> files;
      files.push_back(std::move(file));
      return TokenSet(std::move(files));
    };
    SLUICE_ASSIGN(TokenSet train_tokens, open_one(train));
    Corpus corpus{
        .train = std::move(train_tokens), .files = int64_t(sources.size()), .built = built, .key = key};
    if (options.heldout > 0) {
      SLUICE_ASSIGN(corpus.heldout, open_one(heldout));
    }
    if (found != expected)
      return error("{}: its token files are not those that were made here", directory.string());
    return corpus;
  };
  int64_t dropped = 0;
  const auto build = [&]() -> Status {
    SLUICE_ASSIGN(const Split parts, split(options, sources));
    SLUICE_TRY(make_directories(directory));
    std::string sum;
    for (const auto& [path, pieces] : {std::pair(&train, &parts.train), {&heldout, &parts.heldout}}) {
      if (pieces->empty()) continue;
      SLUICE_TRY(write_tokens(*path, *pieces, options, dropped));
      SLUICE_ASSIGN(const TokenFile file, TokenFile::open(*path));
      sum += file.checksum().text() + "\n";
    }
    // Written last: what it names is there.
    return write_sealed(sums, request, sum);
  };

  std::error_code ignored;
  std::string notice;
  if (fs::exists(sums, ignored)) {
    auto kept = open(false);
    if (kept.ok()) return kept;
    notice = kept.message() + "; it is made anew";
  }
  SLUICE_TRY(build());
  SLUICE_ASSIGN(Corpus corpus, open(true));
  corpus.notice = notice;
  corpus.dropped = dropped;
  return corpus;
}

}  // namespace sluice::core
