// SPDX-License-Identifier: Apache-2.0
#include "dataset/corpus.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "dataset/building.h"
#include "dataset/held_out_too.h"
#include "io/file.h"
#include "io/pieces.h"
#include "io/sealed.h"
#include "records/recognise.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// How far a pass over the sources is.
class Meter {
 public:
  Meter(const CorpusOptions& options, const char* what, int64_t all)
      : options_(options), what_(what), all_(all) {
    add(0);
  }
  void add(int64_t bytes) {
    done_ = std::min(all_, done_ + bytes);
    if (options_.progress) options_.progress(what_, done_, all_);
  }

 private:
  const CorpusOptions& options_;
  const char* what_;
  int64_t all_, done_ = 0;
};

struct Sources {
  std::vector<Source> train, held;
  std::vector<std::string> notices;

  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto* side : {&train, &held}) {
      for (const Source& source : *side) sum += source.bytes;
    }
    return sum;
  }
  void keep_marks() {
    for (auto* side : {&train, &held}) {
      for (Source& source : *side) source.begin = 0;
    }
  }
  bool have_marks() const {
    const auto has = [](const Source& source) { return source.begin > 0; };
    return std::any_of(train.begin(), train.end(), has) || std::any_of(held.begin(), held.end(), has);
  }
  bool have(SourceForm form) const {
    const auto is = [&](const Source& source) { return source.form == form; };
    return std::any_of(train.begin(), train.end(), is) || std::any_of(held.begin(), held.end(), is);
  }
};

// Says which patterns and endings no file had: what they name goes by another name, or is not there.
std::vector<std::string> idle_patterns(const SourceOptions& options, const std::set<std::string>& used) {
  std::vector<std::string> notices;
  for (const auto& [key, list, what] :
       {std::tuple{"data.exclude", &options.exclude, "leaves out no file of a directory or a pattern"},
        {"data.include", &options.include, "no file of a directory ends so"}}) {
    for (const std::string& item : *list) {
      if (!used.contains(item)) notices.push_back(fmt::format("{}: '{}': {}", key, item, what));
    }
  }
  return notices;
}

Result<Sources> gather(const CorpusOptions& options) {
  Sources sources;
  std::set<std::string> used;
  SLUICE_ASSIGN(sources.train, find_sources(options.sources, &used));
  if (!options.heldout_paths.empty()) {
    SourceOptions held = options.sources;
    held.paths = options.heldout_paths;
    SLUICE_ASSIGN(sources.held, find_sources(held, &used));
  }
  sources.notices = idle_patterns(options.sources, used);
  if (options.heldout_paths.empty()) return sources;
  std::erase_if(sources.train, [&](const Source& source) {
    return std::any_of(sources.held.begin(), sources.held.end(), [&](const Source& other) {
      std::error_code ignored;
      return fs::equivalent(source.path, other.path, ignored);
    });
  });
  if (sources.train.empty()) return error("data.heldout_paths: they are all of data.paths");
  return sources;
}

Status check(const CorpusOptions& options) {
  if (!(options.heldout >= 0 && options.heldout < 1))
    return error("data: held-out fraction {}; allowed is 0 to below 1", options.heldout);
  if (!options.weights.empty() && options.weights.size() != options.sources.paths.size())
    return error("data.weights: {} of them for {} data.paths", options.weights.size(),
                 options.sources.paths.size());
  for (const double weight : options.weights) {
    if (!(weight >= 0 && weight <= 100))
      return error("data.weights: {}; allowed are numbers from 0 to 100", weight);
  }
  const auto is_zero = [](double weight) { return weight == 0; };
  if (!options.weights.empty() && std::all_of(options.weights.begin(), options.weights.end(), is_zero))
    return error("data.weights = [{}]: nothing of data.paths is taken; a weight above 0 takes documents",
                 fmt::join(options.weights, ", "));
  return {};
}

// Whether documents are drawn that are held out.
bool draws(const CorpusOptions& options, const Sources& sources) {
  const bool one = sources.train.size() == 1 && sources.train[0].form == SourceForm::Text;
  return options.heldout > 0 && sources.held.empty() && !one;
}

// The request for the token files: equal requests mean equal bytes in, hence equal token files out. The
// oldest parts, of text alone, come first. By the first rules; finds where text begins.
Result<SealedRequest> request_of(const CorpusOptions& options, Sources& sources) {
  SealedRequest request{std::string(kCorpusKind)};
  request.add("seed", options.seed).add("heldout", options.heldout_paths.empty() ? options.heldout : 0);
  Meter meter(options, "reading data.paths", sources.bytes());
  const auto add_sum = [&](Source& source, const std::string& name) -> Status {
    Checksummer sum;
    bool first = true;
    const auto add_piece = [&](std::string_view piece) -> Status {
      if (std::exchange(first, false) && source.form == SourceForm::Text) {
        SLUICE_TRY(check_compression(source.path, compression_of(piece)));
        SLUICE_TRY(check_format(source.path, piece));
        if (const size_t mark = mark_bytes(piece); mark < size_t(source.bytes)) source.begin = int64_t(mark);
      }
      sum.add(piece);
      meter.add(int64_t(piece.size()));
      return {};
    };
    SLUICE_TRY(read_pieces(source.path, 0, source.bytes, add_piece));
    request.add(name, sum.value().to_text());
    return {};
  };
  for (Source& source : sources.train) {
    SLUICE_TRY(add_sum(source, source.name));
    if (!options.weights.empty()) request.add("weight", options.weights[source.entry]);
  }
  const TokenMaking& making = options.making;
  if (making.tokenizer != nullptr) request.add("tokenizer", making.tokenizer->content());
  if (making.end >= 0) request.add("end", making.end);
  for (Source& source : sources.held) SLUICE_TRY(add_sum(source, "held out: " + source.name));
  for (const int32_t id : making.special) request.add("special in text", *making.tokenizer->token(id));
  if (sources.have(SourceForm::Tokens)) request.add("tokens", "as they are");
  if (sources.have(SourceForm::Records)) {
    request.add("learn", name_of(making.learn));
    if (!making.thoughts) request.add("thoughts", "context");
    request.add("malformed", options.skip_malformed ? "skip" : "refuse");
    request.add("template", making.chat_template == nullptr ? "" : making.chat_template->identity());
  }
  return request;
}

// With what later versions know of records, where it is not as it always was.
SealedRequest with_options(SealedRequest request, const CorpusOptions& o, const Sources& sources) {
  if (!sources.have(SourceForm::Records)) return request;
  const TokenMaking& making = o.making;
  if (making.pairs != Pairs::Auto) request.add("pairs", making.pairs);
  if (making.open_ends) request.add("open ends", "allowed");
  if (making.compares != Compares::Nothing) request.add("compares", making.compares);
  const std::pair<std::string_view, const std::string*> fields[] = {{"text", &o.fields.text},
                                                                    {"prompt", &o.fields.prompt},
                                                                    {"completion", &o.fields.completion},
                                                                    {"messages", &o.fields.messages}};
  for (const auto& [name, value] : fields) {
    if (!value->empty()) request.add(fmt::format("field {}", name), *value);
  }
  for (const std::string& key : o.ignore) request.add("ignore", key);
  for (const std::string& role : o.roles) request.add("role", role);
  return request;
}

constexpr const char* kFile = "corpus";  // in a corpus' folder of the cache

// The content of records that this reader was the first to learn so.
std::string read_anew(const std::string& key, int64_t reader) {
  return fmt::format("{}-{}", key, reader);
}
// The readers since Sluice 0.1.0.
constexpr int64_t kSecondReader = 2;

// Text kept beside the checksums of the token files: a line for each but the notices. The first one was a
// number alone, that of the bytes.
std::string kept_text(const BuiltTokens& built) {
  const auto paths = [](const std::vector<TokenSet::Path>& all) {
    auto out = nlohmann::json::array();
    for (const TokenSet::Path& path : all) out.push_back({path.end, path.entry});
    return out;
  };
  const nlohmann::json own = {{"train_bytes", built.train_bytes},  {"heldout_bytes", built.heldout_bytes},
                              {"train", paths(built.train_paths)}, {"heldout", paths(built.heldout_paths)},
                              {"notices", built.notices},          {"compared", built.compared}};
  return fmt::format("{}\n{}", own.dump(), built.findings.to_text());
}
bool parse_own(std::string_view line, BuiltTokens& built) {
  const auto own = nlohmann::json::parse(line, nullptr, false);
  if (own.is_number_integer()) {
    built.heldout_bytes = own.get<int64_t>();
    return true;
  }
  const auto paths = [&](const char* key, std::vector<TokenSet::Path>& out) {
    const auto all = own.find(key);
    if (all == own.end() || !all->is_array()) return false;
    for (const auto& path : *all) {
      const bool two =
          path.is_array() && path.size() == 2 && path[0].is_number_integer() && path[1].is_number_unsigned();
      if (!two || path[0].get<int64_t>() <= (out.empty() ? 0 : out.back().end)) return false;
      out.push_back({path[0].get<int64_t>(), path[1].get<uint32_t>()});
    }
    return true;
  };
  const auto is_count = [&](const char* key) { return own.contains(key) && own[key].is_number_integer(); };
  if (!own.is_object() || !is_count("train_bytes") || !is_count("heldout_bytes")) return false;
  built.train_bytes = own["train_bytes"].get<int64_t>();
  built.heldout_bytes = own["heldout_bytes"].get<int64_t>();
  if (!own.contains("notices") || !own["notices"].is_array()) return false;
  for (const auto& notice : own["notices"]) {
    if (!notice.is_string()) return false;
    built.notices.push_back(notice.get<std::string>());
  }
  built.compared = own.value("compared", nlohmann::json()) == true;  // earlier ones did not keep it
  return paths("train", built.train_paths) && paths("heldout", built.heldout_paths);
}
Result<BuiltTokens> parse_kept(std::string_view text) {
  BuiltTokens built;
  const size_t end = text.find('\n');
  if (end == text.npos || !parse_own(text.substr(0, end), built))
    return error("'{:.60}' is not what is kept of a corpus", text);
  SLUICE_ASSIGN(built.findings, Findings::parse(text.substr(end + 1)));
  return built;
}
// Whether the stretches are those of the tokens; of one entry there are none.
bool covers(const std::vector<TokenSet::Path>& paths, const TokenSet& tokens, size_t entries) {
  if (entries < 2) return paths.empty();
  return !paths.empty() && paths.back().end == tokens.tokens() &&
         std::all_of(paths.begin(), paths.end(), [&](const auto& path) { return path.entry < entries; });
}

// A corpus in its folder of the cache.
class Kept {
 public:
  Kept(const CorpusOptions& options, const Sources& sources, const SealedRequest& request,
       const fs::path& cache)
      : options_(options),
        sources_(sources),
        first_content_(request.key()),
        request_(with_options(request, options, sources)),
        folder_(cache / request_.key()),
        paths_{folder_ / "train.tokens", folder_ / "heldout.tokens"} {}

  bool is_there() const {
    std::error_code ignored;
    return fs::exists(sums(), ignored);
  }

  // The token files as they were built for this request, and no others.
  Result<Corpus> open(bool built) const {
    SLUICE_ASSIGN(const std::string content, read_sealed(sums(), request_));
    std::string found;
    SLUICE_ASSIGN(TokenSet train, open_one(paths_.train, found));
    Corpus corpus{.train = std::move(train),
                  .heldout = {},
                  .files = int64_t(sources_.train.size() + sources_.held.size()),
                  .built = built,
                  .key = request_.key(),
                  .content = first_content_,
                  .contents_before = {},
                  .notice = {},
                  .findings = {}};
    if (holds_out()) {
      SLUICE_ASSIGN(corpus.heldout, open_one(paths_.heldout, found));
    }
    auto rest = content.starts_with(found) ? parse_kept(std::string_view(content).substr(found.size()))
                                           : Result<BuiltTokens>(error("other checksums"));
    if (!rest.ok()) return error("{}: its token files are not those that were made here", folder_.string());
    const size_t entries = std::max(options_.sources.paths.size(), options_.heldout_paths.size());
    if (!covers(rest->train_paths, corpus.train, entries) ||
        (corpus.heldout && !covers(rest->heldout_paths, *corpus.heldout, entries))) {
      return error("{}: it does not say which of data.paths its tokens are of", folder_.string());
    }
    corpus.places_path = places();
    const bool read_since = sources_.have(SourceForm::Records) && rest->findings.reader != Findings::kReader;
    if (read_since) {
      if (!reads_alike(rest->findings))
        return error("{}: another version of Sluice made it, which read records otherwise", folder_.string());
      rest->findings.reader = Findings::kReader;
    }
    const bool marked_since = rest->findings.marks != Findings::kMarks;
    if (marked_since) {
      if (!marks_alike(rest->findings))
        return error("{}: another version of Sluice made it, which learnt otherwise", folder_.string());
      rest->findings.marks = Findings::kMarks;
    }
    const bool compared = rest->compared || !corpus.heldout;
    if (!compared) compare(corpus, *rest);
    // Once: what an earlier version left out is kept with the tokens. A cache that is read only is looked at
    // again.
    if (read_since || marked_since || !compared)
      (void)write_sealed(sums(), request_, found + kept_text(*rest));
    corpus.train.set_paths(std::move(rest->train_paths));
    if (corpus.heldout) corpus.heldout->set_paths(std::move(rest->heldout_paths));
    corpus.findings = std::move(rest->findings);
    const Findings& f = corpus.findings;
    const auto learnt_since = [&](std::string now) {
      corpus.contents_before.push_back(std::exchange(corpus.content, std::move(now)));
    };
    if (f.learnt_anew + f.skipped_anew > 0) learnt_since(read_anew(corpus.key, kSecondReader));
    if (f.learnt_later + f.skipped_later > 0) learnt_since(read_anew(corpus.key, Findings::kReader));
    if (const int64_t marks = f.marked_since(); marks > 0)
      learnt_since(fmt::format("{}-marks{}", corpus.content, marks));
    corpus.notices = std::move(rest->notices);
    corpus.notices.insert(corpus.notices.end(), sources_.notices.begin(), sources_.notices.end());
    corpus.train_bytes = rest->train_bytes;
    corpus.heldout_bytes = rest->heldout_bytes;
    for (size_t entry = 0; entry < options_.weights.size(); ++entry) {
      if (options_.is_share(entry)) {
        corpus.shares.resize(options_.weights.size());
        corpus.shares[entry] = options_.weights[entry];
      }
    }
    return corpus;
  }

  Status build() const {
    SLUICE_TRY(make_own_directory(folder_));
    Meter meter(options_, "making tokens", sources_.bytes());
    SLUICE_ASSIGN(const BuiltTokens built, build_tokens(options_, sources_.train, sources_.held, paths_,
                                                        [&](int64_t bytes) { meter.add(bytes); }));
    for (const auto* side : {&sources_.train, &sources_.held}) {
      for (const Source& source : *side) SLUICE_TRY(check_unchanged(source));
    }
    std::string sum;
    SLUICE_TRY(sum_of(paths_.train, sum));
    if (holds_out()) SLUICE_TRY(sum_of(paths_.heldout, sum));
    SLUICE_TRY(write_places(places(), built.places));
    // Written last: what it names is there.
    return write_sealed(sums(), request_, sum + kept_text(built));
  }

 private:
  fs::path sums() const { return folder_ / kFile; }
  fs::path places() const { return folder_ / "places"; }
  // Whether the second reader read every record as this version does, which is seen from the records alone.
  bool reads_alike(const Findings& findings) const {
    const bool other_turns = options_.making.learn == Learn::AllTurns && findings.rendered > 0;
    if (findings.reader != kSecondReader || findings.count(FindingKind::Malformed) > 0 || other_turns)
      return false;
    for (const auto* side : {&sources_.train, &sources_.held}) {
      for (const Source& source : *side) {
        if (source.form != SourceForm::Records) continue;
        auto reader = RecordReader::open(source.path, record_options_of(options_));
        Record record;
        while (reader.ok()) {
          const auto more = reader->next(record);
          if (!more.ok() || (*more && record.read_later)) return false;
          if (!*more) break;
        }
        if (!reader.ok()) return false;
      }
    }
    return true;
  }
  // Whether what an earlier version marked is learnt so now, which is seen from the template and the text.
  bool marks_alike(const Findings& findings) const {
    const TokenMaking& making = options_.making;
    const ChatTemplate* chat = making.chat_template;
    if (findings.marks == 0 && findings.rendered > 0 && chat != nullptr && chat->marks_anew()) return false;
    if (making.tokenizer == nullptr) return true;
    for (const auto* side : {&sources_.train, &sources_.held}) {
      for (const Source& source : *side) {
        const bool alike = source.form == SourceForm::Text      ? !is_written_in_file(source)
                           : source.form == SourceForm::Records ? !is_written_in_records(source)
                                                                : true;
        if (!alike) return false;
      }
    }
    return true;
  }
  // Whether the characters of a special token may be in text.
  bool is_written(std::string_view text) const {
    return options_.making.tokenizer->written_in(text, options_.making.special) != -1;
  }
  bool is_written_in_file(const Source& source) const {
    constexpr size_t kLongest = 1024;  // of a token
    std::string text;
    const Status read = read_pieces(source.path, source.begin, source.bytes, [&](std::string_view piece) {
      text.erase(0, text.size() - std::min(text.size(), kLongest));
      text += piece;
      return is_written(text) ? Status(error("written")) : Status();
    });
    return !read.ok();
  }
  bool is_written_in_records(const Source& source) const {
    auto reader = RecordReader::open(source.path, record_options_of(options_));
    Record record;
    while (reader.ok()) {
      const auto more = reader->next(record);
      if (!more.ok() || !*more) return !more.ok();
      if (is_written(plain_text_of(record, options_.making))) return true;
    }
    return true;
  }
  bool holds_out() const { return options_.heldout > 0 || !sources_.held.empty(); }
  void compare(const Corpus& corpus, BuiltTokens& built) const {
    constexpr int64_t kTokenBytes = sizeof(int32_t);
    Meter meter(options_, "comparing what is held out",
                (corpus.train.tokens() + corpus.heldout->tokens()) * kTokenBytes);
    built.findings.told = options_.told;
    std::string notice = find_held_out_too(*corpus.heldout, corpus.train, corpus.places(), built.findings,
                                           [&](int64_t tokens) { meter.add(tokens * kTokenBytes); });
    if (!notice.empty()) built.notices.push_back(std::move(notice));
    built.compared = true;
  }
  static Result<TokenSet> open_one(const fs::path& path, std::string& sums) {
    SLUICE_ASSIGN(TokenFile file, TokenFile::open(path));
    sums += file.checksum().to_text() + "\n";
    std::vector<TokenFile> files;
    files.push_back(std::move(file));
    return TokenSet(std::move(files));
  }

  static Status sum_of(const fs::path& path, std::string& sums) {
    const auto set = open_one(path, sums);
    return set.ok() ? Status() : Status(set.error());
  }

  const CorpusOptions& options_;
  const Sources& sources_;
  std::string first_content_;  // what this corpus was called by Sluice 0.1.0
  SealedRequest request_;
  fs::path folder_;
  TokenPaths paths_;
};

}  // namespace

// A record on its way takes this many bytes for each of its own at most: four while its line is parsed. Then
// what was read, what is rendered of it, and five for each token, of which there may be one a byte. A piece
// in which tokens are merged takes more.
constexpr int64_t kRecordBytes = 9, kMergeBytes = 64;

EncodingRoom EncodingRoom::of(int64_t bytes, int threads, std::string why) {
  constexpr int64_t kLeast = int64_t{1} << 16;
  EncodingRoom room;
  const auto bound = [&](int64_t& value, int64_t share) { value = std::clamp(bytes / share, kLeast, value); };
  // Either a share for each thread, all of which may be one piece, or one record with a piece in it.
  bound(room.batch_bytes, (kRecordBytes + kMergeBytes) * threads);
  bound(room.part_bytes, (kRecordBytes + kMergeBytes) * threads);
  bound(room.records.most_line_bytes, 2 * kRecordBytes);
  bound(room.records.most_text_bytes, 2 * kRecordBytes);
  bound(room.most_part_bytes, 2 * kRecordBytes);
  bound(room.tokenizer.most_piece_bytes, 2 * kMergeBytes);
  bound(room.tokenizer.most_text_bytes, 2 * kRecordBytes);
  room.records.why = room.tokenizer.why = room.why = std::move(why);
  return room;
}

fs::path corpus_file(const fs::path& cache, std::string_view key) {
  return cache / key / kFile;
}

Result<Corpus> open_corpus(const CorpusOptions& given, const fs::path& cache_directory) {
  CorpusOptions options = given;
  SLUICE_TRY(check(options));
  SLUICE_ASSIGN(Sources sources, gather(options));
  SLUICE_ASSIGN(SealedRequest request, request_of(options, sources));
  // A run that goes on keeps the rules by which it began.
  // A run that went on with what is learnt otherwise since has a later reader's name, or that of later marks.
  const std::string began = options.goes_on.substr(0, options.goes_on.find("-marks"));
  const auto began_so = [&] {
    const std::string key = with_options(request, options, sources).key();
    return began == request.key() || began == read_anew(key, kSecondReader) ||
           began == read_anew(key, Findings::kReader);
  };
  bool began_before = began_so();
  if (began_before) options.split = SplitRule::Count;
  if (options.split == SplitRule::Tokens && draws(options, sources)) {
    request.add("split", "tokens");
    began_before = began_so();
  }
  if (began_before) {
    options.shares = ShareRule::Documents;
    sources.keep_marks();
  }
  if (sources.have_marks()) request.add("byte order marks", "left out");
  for (size_t entry = 0; entry < options.weights.size(); ++entry) {
    if (options.is_share(entry)) request.add("share", options.sources.paths.size() > 1 ? entry : 0);
  }
  const Kept kept(options, sources, request, cache_directory);
  std::string notice;
  if (kept.is_there() && !options.told) {
    auto corpus = kept.open(false);
    if (corpus.ok()) return corpus;
    notice = corpus.message() + "; it is made anew";
  }
  SLUICE_TRY(kept.build());
  SLUICE_ASSIGN(Corpus corpus, kept.open(true));
  corpus.notice = notice;
  return corpus;
}

}  // namespace sluice::core
